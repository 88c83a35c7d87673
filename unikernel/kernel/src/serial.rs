//! The console on the first serial port (16550). It never waits for long: bytes that the port does not accept are
//! dropped. One core prints at a time, for a line or a report.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::cpu::{self, in8, out8};
use crate::{cores, power};

const PORT: u16 = 0x3f8;
/// Number of port reads to wait for a byte: at 115,200 baud it takes 87 us; a read takes at least about 1 us.
const POLLS_MAX: u32 = 1000;
/// A core that holds the console during so many port reads has died, since even the longest line takes less.
const LOCK_POLLS_MAX: u32 = 1_000_000;

static IS_ABSENT: AtomicBool = AtomicBool::new(false);
static DROPPED: AtomicU32 = AtomicU32::new(0);

/// Sets 115,200 baud, 8 bits, no parity.
pub fn open() {
    for (register, value) in [(1, 0), (3, 0x80), (0, 1), (1, 0), (3, 3), (2, 7), (4, 3)] {
        out8(PORT + register, value);
    }
    // All bits of an absent port read as ones.
    IS_ABSENT.store(in8(PORT + 5) == 0xff, Ordering::Relaxed);
}

/// The number of bytes that the port did not accept.
pub fn dropped() -> u32 {
    DROPPED.load(Ordering::Relaxed)
}

fn write_byte(byte: u8) {
    if IS_ABSENT.load(Ordering::Relaxed) || !(0..POLLS_MAX).any(|_| in8(PORT + 5) & 0x20 != 0) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    } else {
        out8(PORT, byte);
    }
}

/// The core that holds the console, as its number plus one; 0 if the console is free.
static LOCK_OWNER: AtomicU32 = AtomicU32::new(0);

/// Exclusive use of the console until this is dropped. A core may hold it several times.
#[must_use]
pub struct ConsoleGuard {
    is_outermost: bool,
}

/// Waits until no other core prints, or the printing core has exceeded its time.
pub fn lock() -> ConsoleGuard {
    let core_id = u32::from(cores::current()) + 1;
    if LOCK_OWNER.load(Ordering::Relaxed) == core_id {
        return ConsoleGuard {
            is_outermost: false,
        };
    }
    let is_free = |_| {
        halt_if_reporting();
        let _ = in8(PORT + 5);
        try_lock(core_id)
    };
    if !try_lock(core_id) && !(0..LOCK_POLLS_MAX).any(is_free) {
        LOCK_OWNER.store(core_id, Ordering::Relaxed);
    }
    ConsoleGuard { is_outermost: true }
}

fn try_lock(core_id: u32) -> bool {
    LOCK_OWNER
        .compare_exchange(0, core_id, Ordering::Acquire, Ordering::Relaxed)
        .is_ok()
}

impl Drop for ConsoleGuard {
    fn drop(&mut self) {
        if self.is_outermost {
            release();
        }
    }
}

/// Releases the console regardless of nested guards, before this core stops.
fn release() {
    // The console is released only if no other core has taken it over after this core's timeout.
    let core_id = u32::from(cores::current()) + 1;
    let _ = LOCK_OWNER.compare_exchange(core_id, 0, Ordering::Release, Ordering::Relaxed);
}

/// The core that reports a fault, as its number plus one; 0 if there is none.
static REPORTER: AtomicU32 = AtomicU32::new(0);

/// Takes the console to report a fault. A second fault of the reporting core restarts the machine immediately; a fault
/// of another core during a report only halts that core.
pub fn lock_for_report() -> ConsoleGuard {
    let core_id = u32::from(cores::current()) + 1;
    let previous = REPORTER.compare_exchange(0, core_id, Ordering::Relaxed, Ordering::Relaxed);
    match previous {
        Ok(_) => lock(),
        Err(reporter) if reporter == core_id => power::restart(),
        Err(_) => {
            release();
            cpu::halt()
        }
    }
}

/// Halts this core if another core reports a fault, since the report ends with a restart.
fn halt_if_reporting() {
    let reporter = REPORTER.load(Ordering::Relaxed);
    if reporter != 0 && reporter != u32::from(cores::current()) + 1 {
        cpu::halt();
    }
}

/// Writes to the console; the caller should hold it.
pub struct SerialConsole;

impl Write for SerialConsole {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if byte == b'\n' {
                write_byte(b'\r');
            }
            // Control characters from the network must not reach the operator's terminal.
            write_byte(if byte == b'\n' || (b' '..0x7f).contains(&byte) {
                byte
            } else {
                b'?'
            });
        }
        Ok(())
    }
}

/// Prints a line on the console.
macro_rules! say {
    ($($arg:tt)*) => {{
        use core::fmt::Write as _;
        let _hold = $crate::serial::lock();
        let _ = writeln!($crate::serial::SerialConsole, $($arg)*);
    }};
}
pub(crate) use say;
