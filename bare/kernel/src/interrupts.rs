//! The tables that the processor wants for interrupts and exceptions. Exceptions go to `exceptions`, on a stack of their
//! own (the precompiled core keeps data below the stack pointer); what wakes the main loop only tells the
//! interrupt controller that it was taken. All cores share the handlers; each has a task segment with stacks of its own.

use core::arch::{asm, naked_asm};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::cores;

/// Where the code segment's descriptor lies in the table of `boot`.
const CODE: u16 = 8;
/// A device has something.
pub const DEVICE: u8 = 0x40;
/// The timer has run out.
pub const TIMER: u8 = 0x41;
/// A power button, which sets [`BUTTON`].
pub const POWER: u8 = 0x42;
/// Another core has something.
pub const WAKE: u8 = 0x43;
/// What the interrupt controller sends when it has changed its mind.
pub const SPURIOUS: u8 = 0xff;

/// Set by the power button's interrupt.
pub static BUTTON: AtomicBool = AtomicBool::new(false);

/// Bytes of the stack of exceptions, and of that of wake-ups behind it.
pub const STACK_LEN: usize = 16 << 10;

#[repr(C, align(16))]
struct Shared<T>(UnsafeCell<T>);

// SAFETY: written before interrupts are switched on and before other cores are started, or by the one core whose part it
// is; then by processors themselves.
unsafe impl<T> Sync for Shared<T> {}

#[derive(Clone, Copy)]
#[repr(C, packed(4))]
struct Task {
    reserved: u32,
    stacks: [u64; 3],
    reserved2: u64,
    interrupt_stacks: [u64; 7],
    reserved3: u64,
    ports: u32,
}

const TASK: Task = Task {
    reserved: 0,
    stacks: [0; 3],
    reserved2: 0,
    interrupt_stacks: [0; 7],
    reserved3: 0,
    ports: size_of::<Task>() as u32,
};

static TASKS: [Shared<Task>; cores::MAX] = [const { Shared(UnsafeCell::new(TASK)) }; cores::MAX];
static STACKS: Shared<[[u8; STACK_LEN]; 2]> = Shared(UnsafeCell::new([[0; STACK_LEN]; 2]));
static GATES: Shared<[[u64; 2]; 256]> = Shared(UnsafeCell::new([[0; 2]; 256]));

unsafe extern "C" {
    static mut descriptors: [u64; 4 + 2 * cores::MAX];
    static stack_bottom: u8;
    static stack_top: u8;
}

/// Sets up the tables, and the first core. Interrupts stay off.
pub fn open() {
    gate(POWER, power as *const () as u64, 2);
    gate(SPURIOUS, nothing as *const () as u64, 2);
    enter(
        0,
        (&raw const stack_bottom as u64, &raw const stack_top as u64),
        STACKS.0.get() as u64,
    );
}

/// Makes the processor that calls this core `core`: `stack` is what it runs on, and the two of interrupts begin at
/// `interrupt_stacks`. Called once for each, on itself, with interrupts off.
pub fn enter(core: u16, stack: (u64, u64), interrupt_stacks: u64) {
    let first_end = interrupt_stacks + STACK_LEN as u64;
    cores::set_stacks(core, stack.0..stack.1, interrupt_stacks..first_end);
    let task = TASKS[usize::from(core)].0.get();
    let selector = cores::TASK + 16 * core;
    // SAFETY: this core's own parts of the tables, which nobody else uses; the descriptor is as the processor's manual
    // wants it (AMD64 volume 2, 4.8 and 8.9).
    unsafe {
        (*task).interrupt_stacks[0] = first_end;
        (*task).interrupt_stacks[1] = first_end + STACK_LEN as u64;
        let base = task as u64;
        let entry = (&raw mut descriptors)
            .cast::<u64>()
            .add(usize::from(selector / 8));
        entry.write_volatile(
            (size_of::<Task>() as u64 - 1)
                | (base & 0xff_ffff) << 16
                | 0x89 << 40
                | (base >> 24 & 0xff) << 56,
        );
        entry.add(1).write_volatile(base >> 32);
        asm!("ltr {0:x}", in(reg) selector, options(nostack, preserves_flags));
    }
    let pointer: [u16; 5] = {
        let (base, limit) = (GATES.0.get() as u64, 4095);
        [
            limit,
            base as u16,
            (base >> 16) as u16,
            (base >> 32) as u16,
            (base >> 48) as u16,
        ]
    };
    // SAFETY: the table stays where it is.
    unsafe { asm!("lidt [{0}]", in(reg) &pointer, options(nostack, preserves_flags)) }
}

/// Sets how wake-ups tell the interrupt controller that they were taken: by a register in memory or, for an x2APIC, by
/// a model-specific one.
pub fn open_wake_ups(is_x2: bool) {
    let handler = if is_x2 {
        wake_x2 as *const ()
    } else {
        wake as *const ()
    };
    for vector in [DEVICE, WAKE] {
        gate(vector, handler as u64, 2);
    }
    let timer = if is_x2 {
        timer_x2 as *const ()
    } else {
        timer as *const ()
    };
    gate(TIMER, timer as u64, 2);
}

/// By task segment, as an offset of the table of descriptors: the core's timer has run out.
static HAS_RUN_OUT: [AtomicBool; SEGMENTS_LEN] = [const { AtomicBool::new(false) }; SEGMENTS_LEN];
const SEGMENTS_LEN: usize = cores::TASK as usize + 16 * cores::MAX;

/// Whether this core's timer has run out since the last call.
pub fn take_timer() -> bool {
    let segment = usize::from(cores::TASK) + 16 * usize::from(cores::own());
    let has_run_out = HAS_RUN_OUT.get(segment);
    has_run_out.is_some_and(|it| it.load(Ordering::Relaxed) && it.swap(false, Ordering::Relaxed))
}

/// Leads a vector to its handler, which runs on the stack of exceptions (1) or of wake-ups (2).
pub fn gate(vector: u8, handler: u64, stack: u64) {
    let low = (handler & 0xffff)
        | u64::from(CODE) << 16
        | stack << 32
        | 0x8e << 40
        | (handler >> 16 & 0xffff) << 48;
    // SAFETY: only called while interrupts are off and there is one core.
    unsafe { (*GATES.0.get())[usize::from(vector)] = [low, handler >> 32] }
}

/// Waits for an interrupt; at once back if one is pending. Interrupts are off before and after.
pub fn wait() {
    // SAFETY: the handlers run on their own stack and change nothing but what is named here and `BUTTON`.
    unsafe { asm!("sti", "hlt", "cli", out("rax") _, out("rcx") _, out("rdx") _) }
}

/// See [`wake`]; which core it is, its task segment says.
#[unsafe(naked)]
extern "C" fn timer() {
    naked_asm!(
        "str eax",
        "lea rdx, [rip + {out}]",
        "mov byte ptr [rdx + rax], 1",
        "jmp {wake}",
        out = sym HAS_RUN_OUT,
        wake = sym wake,
    )
}

/// See [`timer`].
#[unsafe(naked)]
extern "C" fn timer_x2() {
    naked_asm!(
        "str eax",
        "lea rdx, [rip + {out}]",
        "mov byte ptr [rdx + rax], 1",
        "jmp {wake}",
        out = sym HAS_RUN_OUT,
        wake = sym wake_x2,
    )
}

/// Runs between `sti` and `cli` of [`wait`] only, so the registers named there are free.
#[unsafe(naked)]
extern "C" fn wake() {
    naked_asm!(
        "xor eax, eax",
        "mov ecx, 0xfee000b0",
        "mov [rcx], eax",
        "iretq"
    )
}

/// See [`wake`].
#[unsafe(naked)]
extern "C" fn wake_x2() {
    naked_asm!(
        "mov ecx, 0x80b",
        "xor eax, eax",
        "xor edx, edx",
        "wrmsr",
        "iretq"
    )
}

/// See [`wake`]; which controller it is, is asked, since it comes once in a life.
#[unsafe(naked)]
extern "C" fn power() {
    naked_asm!(
        "mov byte ptr [{button}], 1",
        "mov ecx, 0x1b",
        "rdmsr",
        "test eax, 0x400",
        "jnz {x2}",
        "jmp {plain}",
        button = sym BUTTON,
        x2 = sym wake_x2,
        plain = sym wake,
    )
}

#[unsafe(naked)]
extern "C" fn nothing() {
    naked_asm!("iretq")
}
