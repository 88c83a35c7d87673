//! Fatal faults: exceptions and panics. Prints a report on the console, stores a crash record, and restarts the
//! machine. Only one core reports; another core that has a fault or prints in the meantime is halted.

use core::arch::naked_asm;
use core::fmt::{self, Write as _};
use core::ptr::with_exposed_provenance;

use lowroad_kernel::symbols;

use crate::interrupts::set_gate;
use crate::serial::{self, SerialConsole, say};
use crate::{boot_placement, cores, crash_record, power};

/// The stack frame that the processor and the stubs push.
#[repr(C)]
struct ExceptionFrame {
    /// rax, rbx, rcx, rdx, rsi, rdi, rbp, r8 to r15.
    registers: [u64; 15],
    vector: u64,
    error: u64,
    rip: u64,
    cs: u64,
    flags: u64,
    rsp: u64,
    ss: u64,
}

const NAMES: [&str; 15] = [
    "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15",
];

unsafe extern "C" {
    static image_start: u8;
    static text_end: u8;
}

macro_rules! stub {
    ($($vector:literal $($code:literal)?,)*) => {$({
        #[unsafe(naked)]
        extern "C" fn stub() {
            naked_asm!(stub!(@push $($code)?), concat!("push ", $vector), "jmp {all}", all = sym all)
        }
        set_gate($vector, stub as *const () as u64, 1);
    })*};
    (@push) => { "push 0" };
    (@push $code:literal) => { "" };
}

/// Sets the gates of all exceptions.
pub fn open() {
    // A second number marks exceptions for which the processor pushes an error code.
    stub!(0, 1, 2, 3, 4, 5, 6, 7, 8 1, 9, 10 1, 11 1, 12 1, 13 1, 14 1, 15, 16, 17 1, 18, 19, 20, 21 1, 28, 29 1, 30 1,);
}

#[unsafe(naked)]
extern "C" fn all() {
    naked_asm!(
        "push r15", "push r14", "push r13", "push r12", "push r11", "push r10", "push r9", "push r8",
        "push rbp", "push rdi", "push rsi", "push rdx", "push rcx", "push rbx", "push rax",
        "cld", "mov rdi, rsp", "and rsp, -16", "call {report}",
        report = sym report,
    )
}

extern "C" fn report(frame: &ExceptionFrame) -> ! {
    let _hold = serial::lock_for_report();
    let description = match frame.vector {
        0 => "division by zero",
        2 => "non-maskable interrupt",
        6 => "invalid instruction",
        8 => "double fault",
        13 => "protection fault",
        14 => "page fault",
        18 => "machine check",
        _ => "exception",
    };
    say!(
        "lowroad: {CoreLocal}{description} ({}, error {:#x}) at {:#x}",
        frame.vector,
        frame.error,
        frame.rip
    );
    if frame.vector == 14 {
        let address: u64;
        // SAFETY: reads a register.
        unsafe {
            core::arch::asm!("mov {}, cr2", out(reg) address, options(nomem, nostack, preserves_flags))
        }
        say!("  address {address:#x}");
    }
    for (n, (name, value)) in NAMES.iter().zip(frame.registers).enumerate() {
        let _ = write!(
            SerialConsole,
            "{}{name:>5} {value:016x}",
            if n % 4 == 0 && n > 0 { "\n" } else { "" }
        );
    }
    say!("  rsp {:016x}", frame.rsp);
    // Register 6 is rbp, the start of the chain of frames.
    line(frame.rip);
    trace(frame.registers[6]);
    crash_record::record(format_args!("{CoreLocal}{description} at {:#x}", frame.rip));
    power::restart()
}

#[panic_handler]
fn panicked(info: &core::panic::PanicInfo<'_>) -> ! {
    let _hold = serial::lock_for_report();
    say!("lowroad: {CoreLocal}{info}");
    let frame: u64;
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!("mov {}, rbp", out(reg) frame, options(nomem, nostack, preserves_flags))
    }
    trace(frame);
    crash_record::record(format_args!("{CoreLocal}{info}"));
    power::restart()
}

/// Formats the number of this core, if there are several.
struct CoreLocal;

impl fmt::Display for CoreLocal {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match cores::count() {
            1 => Ok(()),
            _ => write!(to, "core {}: ", cores::current()),
        }
    }
}

/// Prints the callers along the chain of frame pointers.
fn trace(mut frame: u64) {
    for _ in 0..40 {
        if !cores::is_stack(frame) {
            break;
        }
        let pair = with_exposed_provenance::<[u64; 2]>(frame as usize);
        // SAFETY: within a stack, as checked by `cores::is_stack`.
        let [next, return_address] = unsafe { pair.read() };
        line(return_address);
        // Callers have frames at higher addresses; anything else is a damaged chain or its end.
        if next <= frame {
            break;
        }
        frame = next;
    }
}

fn line(address: u64) {
    if !(&raw const image_start as u64..&raw const text_end as u64).contains(&address) {
        return;
    }
    match symbols::name_of(boot_placement::symbols(), address) {
        Some((name, offset)) => say!("  {address:#x} {name}+{offset:#x}"),
        None => say!("  {address:#x}"),
    }
}
