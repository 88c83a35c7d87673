//! Interrupt and exception tables. Exceptions are handled by `exceptions` on separate stacks, since the precompiled
//! `core` library uses the red zone below the stack pointer. Handlers of wake-up interrupts only acknowledge the
//! interrupt. All cores share the handlers; each core has a task segment with its stacks.

use core::arch::{asm, naked_asm};
use core::cell::UnsafeCell;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::cores;

/// The selector of the code segment in the descriptor table of `boot`.
const CODE: u16 = 8;
/// Vector of device interrupts.
pub const DEVICE: u8 = 0x40;
/// Vector of the timer.
pub const TIMER: u8 = 0x41;
/// Vector of the power button, which sets [`BUTTON`].
pub const POWER: u8 = 0x42;
/// Vector of wake-ups by other cores.
pub const WAKE: u8 = 0x43;
/// Vector of spurious interrupts.
pub const SPURIOUS: u8 = 0xff;

/// Set by the handler of the power button's interrupt.
pub static BUTTON: AtomicBool = AtomicBool::new(false);

/// Length of the stack for exceptions, and of the stack for wake-ups behind it.
pub const STACK_LEN: usize = 16 << 10;

#[repr(C, align(16))]
struct InterruptTables<T>(UnsafeCell<T>);

// SAFETY: written before interrupts are enabled and other cores start, or by the core that owns this part; afterwards
// read only by processors.
unsafe impl<T> Sync for InterruptTables<T> {}

#[derive(Clone, Copy)]
#[repr(C, packed(4))]
struct TaskStateSegment {
    reserved: u32,
    stacks: [u64; 3],
    reserved2: u64,
    interrupt_stacks: [u64; 7],
    reserved3: u64,
    ports: u32,
}

const TASK: TaskStateSegment = TaskStateSegment {
    reserved: 0,
    stacks: [0; 3],
    reserved2: 0,
    interrupt_stacks: [0; 7],
    reserved3: 0,
    ports: size_of::<TaskStateSegment>() as u32,
};

static TASKS: [InterruptTables<TaskStateSegment>; cores::MAX] =
    [const { InterruptTables(UnsafeCell::new(TASK)) }; cores::MAX];
static STACKS: InterruptTables<[[u8; STACK_LEN]; 2]> =
    InterruptTables(UnsafeCell::new([[0; STACK_LEN]; 2]));
static GATES: InterruptTables<[[u64; 2]; 256]> = InterruptTables(UnsafeCell::new([[0; 2]; 256]));

unsafe extern "C" {
    static mut descriptors: [u64; 4 + 2 * cores::MAX];
    static stack_bottom: u8;
    static stack_top: u8;
}

/// Sets up the tables, and the first core. Interrupts stay off.
pub fn open() {
    set_gate(POWER, power as *const () as u64, 2);
    set_gate(SPURIOUS, nothing as *const () as u64, 2);
    enter(
        0,
        &raw const stack_bottom as u64..&raw const stack_top as u64,
        STACKS.0.get() as u64,
    );
}

/// Makes the calling processor core number `core`. `stack` is its current stack; its two interrupt stacks begin at
/// `interrupt_stacks`. To be called once on each core, with interrupts off.
pub fn enter(core: u16, stack: Range<u64>, interrupt_stacks: u64) {
    let first_end = interrupt_stacks + STACK_LEN as u64;
    cores::set_stacks(core, stack, interrupt_stacks..first_end);
    let task = TASKS[usize::from(core)].0.get();
    let selector = cores::TASK + 16 * core;
    // SAFETY: this core's own parts of the tables; the descriptor's format is that of the AMD64 manual (volume 2, 4.8
    // and 8.9).
    unsafe {
        (*task).interrupt_stacks[0] = first_end;
        (*task).interrupt_stacks[1] = first_end + STACK_LEN as u64;
        let base = task as u64;
        let entry = (&raw mut descriptors)
            .cast::<u64>()
            .add(usize::from(selector / 8));
        entry.write_volatile(
            (size_of::<TaskStateSegment>() as u64 - 1)
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
    // SAFETY: the table is static.
    unsafe { asm!("lidt [{0}]", in(reg) &pointer, options(nostack, preserves_flags)) }
}

/// Sets the wake-up handlers, which acknowledge interrupts through a memory-mapped register or, on an x2APIC, through a
/// model-specific register.
pub fn open_wake_ups(is_x2: bool) {
    let handler = if is_x2 {
        wake_x2 as *const ()
    } else {
        wake as *const ()
    };
    for vector in [DEVICE, WAKE] {
        set_gate(vector, handler as u64, 2);
    }
    let timer = if is_x2 {
        timer_x2 as *const ()
    } else {
        timer as *const ()
    };
    set_gate(TIMER, timer as u64, 2);
}

/// Whether a core's timer has expired; indexed by the core's task selector.
static HAS_RUN_OUT: [AtomicBool; SEGMENTS_LEN] = [const { AtomicBool::new(false) }; SEGMENTS_LEN];
const SEGMENTS_LEN: usize = cores::TASK as usize + 16 * cores::MAX;

/// Whether this core's timer has expired since the last call.
pub fn take_timer() -> bool {
    let segment = usize::from(cores::TASK) + 16 * usize::from(cores::current());
    let timer_flag = HAS_RUN_OUT.get(segment);
    timer_flag
        .is_some_and(|flag| flag.load(Ordering::Relaxed) && flag.swap(false, Ordering::Relaxed))
}

/// Sets the gate of a vector. The handler runs on the stack for exceptions (1) or for wake-ups (2).
pub fn set_gate(vector: u8, handler: u64, stack: u64) {
    let low = (handler & 0xffff)
        | u64::from(CODE) << 16
        | stack << 32
        | 0x8e << 40
        | (handler >> 16 & 0xffff) << 48;
    // SAFETY: called only while interrupts are off and only one core runs.
    unsafe { (*GATES.0.get())[usize::from(vector)] = [low, handler >> 32] }
}

/// Waits for an interrupt; returns immediately if one is pending. Interrupts are off before and after.
pub fn wait() {
    // SAFETY: the handlers run on their own stack, and change only the registers named here and static flags. `sti`
    // takes effect after the next instruction, so no interrupt can occur between it and `hlt`.
    unsafe { asm!("sti", "hlt", "cli", out("rax") _, out("rcx") _, out("rdx") _) }
}

/// The handler of the timer's interrupt; continues with [`wake`]. The task selector identifies the core.
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

/// Like [`timer`], on an x2APIC.
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

/// The handler of wake-up interrupts. It runs only between `sti` and `cli` in [`wait`], so it may use the registers
/// named there.
#[unsafe(naked)]
extern "C" fn wake() {
    naked_asm!(
        "xor eax, eax",
        "mov ecx, 0xfee000b0",
        "mov [rcx], eax",
        "iretq"
    )
}

/// Like [`wake`], on an x2APIC.
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

/// The handler of the power button's interrupt; continues with [`wake`]. It detects the kind of controller each time,
/// since it runs rarely.
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
