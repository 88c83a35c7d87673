//! Starts the machine's other processors, one after the other, and gives each its work. A started processor waits in
//! [`begin`] for work; a processor that does not start in time is never used.
//!
//! Read first: Intel SDM volume 3, 9.4.4 (how processors are started).

use alloc::boxed::Box;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering};

use lowroad_kernel::regions::{MemoryMap, MemoryRegion};

use crate::apic::LocalApic;
use crate::clock::TickClock;
use crate::cpu::{self, DeviceRegisters};
use crate::serial::say;
use crate::{cores, heap, interrupts, mapping};

/// Layout of a core's memory: a guard page, the stack, and the two interrupt stacks.
const GUARD_LEN: usize = 4096;
const STACK_LEN: usize = 256 << 10;
const CORE_LEN: usize = GUARD_LEN + STACK_LEN + 2 * interrupts::STACK_LEN;
/// The delay between INIT and SIPI.
const RESET_US: u64 = 10_000;
/// After this time the start command is repeated, since the processor may have missed the first command.
const RETRY_US: u64 = 1_000;
/// After this time the processor is given up. The time is long, since a hypervisor may be busy.
const START_TIMEOUT_US: u64 = 2_000_000;
const EFER: u32 = 0xc000_0080;
/// The bits of EFER that are passed to other processors: long mode and no-execute pages.
const EFER_COPIED_BITS: u64 = 1 << 8 | 1 << 11;

unsafe extern "C" {
    static trampoline_start: u8;
    static trampoline_end: u8;
    static processor_stack: AtomicU64;
    static processor_efer: AtomicU32;
}

/// The number of the core that has started last.
static LAST_STARTED: AtomicU16 = AtomicU16::new(0);
static WORK: [AtomicPtr<CoreWork>; cores::MAX] =
    [const { AtomicPtr::new(ptr::null_mut()) }; cores::MAX];

/// The work of a core; `run` is called with the core's local APIC and with `ticks`.
struct CoreWork {
    /// The time stamp counter of the assigning core at the time of [`assign_work`].
    ticks: u64,
    run: Box<dyn FnOnce(LocalApic, u64) + Send>,
}

/// Finds a free page in low memory at which processors can start.
pub fn find_start_page(memory: &MemoryMap, occupied: &MemoryMap) -> Option<u8> {
    // The first page stays unmapped, to catch null pointers.
    let limits = MemoryRegion {
        start: 0x1000,
        end: 0xa_0000,
    };
    let free = memory.largest_free(occupied, limits);
    let page = free.start.next_multiple_of(4096);
    (page + 4096 <= free.end).then_some((page / 4096) as u8)
}

/// Starts processors with the given ids until there are `count` cores, at a page from [`find_start_page`]. Returns the
/// number of cores.
pub fn start(
    ids: impl Iterator<Item = u32> + Clone,
    count: u16,
    page: u8,
    local: &LocalApic,
    clock: &mut TickClock,
) -> u16 {
    let current_id = local.id();
    let ids = ids
        .filter_map(|id| u8::try_from(id).ok())
        // 255 is the broadcast address.
        .filter(|id| *id != current_id && *id != u8::MAX);
    // All stacks are allocated before the first start: page tables can't change later, since the TLBs of other cores
    // are not flushed.
    let tops: [Option<u64>; cores::MAX] = core::array::from_fn(|core| {
        let core = core as u16;
        (1..count).contains(&core).then(|| stack(core)).flatten()
    });
    prepare(page);
    ids.clone().for_each(|id| local.reset(id));
    wait(RESET_US, clock, || false);
    let mut core = 1;
    for id in ids {
        if core == count {
            break;
        }
        let Some(top) = tops[usize::from(core)] else {
            say!("lowroad: no memory for the stack of core {core}");
            break;
        };
        let outcome = start_processor(id, core, top, page, local, clock);
        if outcome == CoreStart::Here {
            core += 1;
            continue;
        }
        say!("lowroad: processor {id} does not start");
        if outcome == CoreStart::Lost {
            break;
        }
    }
    cores::set_count(core);
    core
}

/// Copies the trampoline to its page, and passes it the mode bits of this processor.
fn prepare(page: u8) {
    let start = (&raw const trampoline_start).cast::<u8>();
    let len = &raw const trampoline_end as usize - start as usize;
    // SAFETY: an unused page of memory below 1 MiB.
    let to = unsafe { DeviceRegisters::new(u64::from(page) << 12) };
    for n in 0..len {
        // SAFETY: within the image's code.
        to.write(n, unsafe { start.add(n).read() });
    }
    let efer = cpu::read_msr(EFER) & EFER_COPIED_BITS;
    // SAFETY: a static of `boot`, used as an atomic number only.
    unsafe { &processor_efer }.store(efer as u32, Ordering::Release);
}

/// Allocates a core's stacks, and writes the core's number to the top of the first one. Returns that address.
fn stack(core: u16) -> Option<u64> {
    let start = heap::pages(CORE_LEN)?.as_ptr();
    if !mapping::guard(start as u64) {
        return None;
    }
    let top = start.wrapping_add(GUARD_LEN + STACK_LEN - 16);
    // SAFETY: within the memory just allocated, aligned to 16.
    unsafe { top.cast::<u64>().write(core.into()) }
    Some(top as u64)
}

#[derive(PartialEq, Eq)]
enum CoreStart {
    Here,
    /// The processor has not taken its stack, and gets none later.
    Absent,
    /// The processor has taken its stack, and with it its core number, which is lost.
    Lost,
}

/// Starts a processor as a core. A processor that is late either finds no stack and halts, or takes the stack of the
/// next core and becomes that core, since each core reads its number from its stack.
fn start_processor(
    id: u8,
    core: u16,
    top: u64,
    page: u8,
    local: &LocalApic,
    clock: &mut TickClock,
) -> CoreStart {
    // SAFETY: a static of `boot`, used as an atomic number only.
    let stack_slot = unsafe { &processor_stack };
    stack_slot.store(top, Ordering::Release);
    let has_started = || LAST_STARTED.load(Ordering::Acquire) == core;
    local.start(id, page);
    if !wait(RETRY_US, clock, has_started) {
        local.start(id, page);
        if !wait(START_TIMEOUT_US, clock, has_started) {
            let is_stack_taken = stack_slot.swap(0, Ordering::AcqRel) == 0;
            // The stack was taken at the last moment, so the core will start very soon.
            return match is_stack_taken && wait(RETRY_US, clock, has_started) {
                true => CoreStart::Here,
                false if is_stack_taken => CoreStart::Lost,
                false => CoreStart::Absent,
            };
        }
    }
    CoreStart::Here
}

/// Waits until `is_done` returns true, at most for `us` microseconds; returns its last result.
fn wait(us: u64, clock: &mut TickClock, is_done: impl Fn() -> bool) -> bool {
    let end_us = clock.now().mono_us + us;
    while !is_done() {
        if clock.now().mono_us >= end_us {
            return is_done();
        }
        core::hint::spin_loop();
    }
    true
}

/// The entry point of each started core, called from `boot` on the core's own stack; `top` is the top of that stack.
pub extern "C" fn begin(core: u64, top: u64) -> ! {
    let core = core as u16;
    let end = top + 16;
    interrupts::enter(core, end - STACK_LEN as u64..end, end);
    let local = LocalApic::enter();
    cores::set_id(core, local.id());
    LAST_STARTED.store(core, Ordering::Release);
    loop {
        let work = WORK[usize::from(core)].swap(ptr::null_mut(), Ordering::Acquire);
        if !work.is_null() {
            // SAFETY: the pointer comes from a box in `assign_work`; after the swap, this core is its only owner.
            let work = unsafe { Box::from_raw(work) };
            (work.run)(local, work.ticks);
            cpu::halt();
        }
        // Work that arrives between the check and the sleep ends the sleep immediately, since interrupts are off in
        // between.
        interrupts::wait();
    }
}

/// Assigns work to a started core; the core halts when the work ends.
pub fn assign_work(core: u16, local: &LocalApic, run: Box<dyn FnOnce(LocalApic, u64) + Send>) {
    let work = Box::new(CoreWork {
        ticks: cpu::ticks(),
        run,
    });
    WORK[usize::from(core)].store(Box::into_raw(work), Ordering::Release);
    local.wake(core);
}
