//! The cores that are used: which one this is, where their stacks are, the numbers of their interrupt controllers. Core 0 is
//! the processor that has booted the machine. Knows nothing of what they do.

use core::arch::asm;
use core::ops::Range;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};

/// Cores at most.
pub const MAX: usize = 16;
/// Where the task segment's descriptor of the first core lies in the table of `boot`, and those of the others 16 bytes behind each other;
/// filled in by `interrupts`.
pub const TASK: u16 = 32;

static COUNT: AtomicU16 = AtomicU16::new(1);
static PLACES: [Place; MAX] = [const { Place::new() }; MAX];

/// What others know of a core.
struct Place {
    /// Of its interrupt controller.
    id: AtomicU8,
    stack: [AtomicU64; 2],
    exception_stack: [AtomicU64; 2],
}

impl Place {
    const fn new() -> Place {
        Place {
            id: AtomicU8::new(0),
            stack: [AtomicU64::new(0), AtomicU64::new(0)],
            exception_stack: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }
}

/// How many there are; 1 until others have come.
pub fn count() -> u16 {
    COUNT.load(Ordering::Relaxed)
}

/// Says how many there are, once all of them are here.
pub fn set_count(count: u16) {
    COUNT.store(count, Ordering::Relaxed);
}

/// The number of the core that asks: each has a task segment of its own.
pub fn own() -> u16 {
    let selector: u16;
    // SAFETY: reads a register, which is 0 as long as there is only the first core.
    unsafe {
        asm!("str {0:x}", out(reg) selector, options(nomem, nostack, preserves_flags));
    }
    selector.saturating_sub(TASK) / 16
}

/// Notes where a core's stacks are.
pub fn set_stacks(core: u16, stack: Range<u64>, exception_stack: Range<u64>) {
    let place = &PLACES[usize::from(core)];
    for (to, from) in [
        (&place.stack, stack),
        (&place.exception_stack, exception_stack),
    ] {
        to[0].store(from.start, Ordering::Relaxed);
        to[1].store(from.end, Ordering::Relaxed);
    }
}

/// Whether the two words at `address` lie within a stack of any core.
pub fn is_stack(address: u64) -> bool {
    address.is_multiple_of(8)
        && PLACES
            .iter()
            .flat_map(|place| [&place.stack, &place.exception_stack])
            .any(|[start, end]| {
                let end = end.load(Ordering::Relaxed);
                (start.load(Ordering::Relaxed)..end.saturating_sub(15)).contains(&address)
            })
}

/// Notes the number of a core's interrupt controller, as it has told it itself.
pub fn set_id(core: u16, id: u8) {
    PLACES[usize::from(core)].id.store(id, Ordering::Relaxed);
}

/// The number of a core's interrupt controller.
pub fn id(core: u16) -> u8 {
    PLACES[usize::from(core)].id.load(Ordering::Relaxed)
}
