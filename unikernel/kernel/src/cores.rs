//! The cores in use: the current core's number, the stacks, and the APIC ids. Core 0 is the boot processor.

use core::arch::asm;
use core::ops::Range;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};

/// Maximum number of cores in use.
pub const MAX: usize = 16;
/// The selector of the first core's task segment in the descriptor table of `boot`; those of the other cores follow at
/// intervals of 16 bytes. Filled in by `interrupts`.
pub const TASK: u16 = 32;

static COUNT: AtomicU16 = AtomicU16::new(1);
static CORE_SLOTS: [CoreSlot; MAX] = [const { CoreSlot::new() }; MAX];

/// Data of a core that other cores use.
struct CoreSlot {
    /// Its APIC id.
    id: AtomicU8,
    stack: [AtomicU64; 2],
    exception_stack: [AtomicU64; 2],
}

impl CoreSlot {
    const fn new() -> CoreSlot {
        CoreSlot {
            id: AtomicU8::new(0),
            stack: [AtomicU64::new(0), AtomicU64::new(0)],
            exception_stack: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }
}

/// The number of cores; 1 until other cores have started.
pub fn count() -> u16 {
    COUNT.load(Ordering::Relaxed)
}

/// Sets the number of cores, once all have started.
pub fn set_count(count: u16) {
    COUNT.store(count, Ordering::Relaxed);
}

/// The number of the current core, from its task register.
pub fn current() -> u16 {
    let selector: u16;
    // SAFETY: reads a register, which is 0 while only the first core runs.
    unsafe {
        asm!("str {0:x}", out(reg) selector, options(nomem, nostack, preserves_flags));
    }
    selector.saturating_sub(TASK) / 16
}

/// Records a core's stacks.
pub fn set_stacks(core: u16, stack: Range<u64>, exception_stack: Range<u64>) {
    let slot = &CORE_SLOTS[usize::from(core)];
    for (to, from) in [
        (&slot.stack, stack),
        (&slot.exception_stack, exception_stack),
    ] {
        to[0].store(from.start, Ordering::Relaxed);
        to[1].store(from.end, Ordering::Relaxed);
    }
}

/// Whether the two words at `address` are within a stack of any core.
pub fn is_stack(address: u64) -> bool {
    address.is_multiple_of(8)
        && CORE_SLOTS
            .iter()
            .flat_map(|slot| [&slot.stack, &slot.exception_stack])
            .any(|[start, end]| {
                let end = end.load(Ordering::Relaxed);
                (start.load(Ordering::Relaxed)..end.saturating_sub(15)).contains(&address)
            })
}

/// Records a core's APIC id, as read on that core.
pub fn set_id(core: u16, id: u8) {
    CORE_SLOTS[usize::from(core)]
        .id
        .store(id, Ordering::Relaxed);
}

/// The APIC id of a core.
pub fn id(core: u16) -> u8 {
    CORE_SLOTS[usize::from(core)].id.load(Ordering::Relaxed)
}
