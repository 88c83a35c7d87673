//! The console: the first serial port (16550). Never waits long: bytes that the port does not take are dropped. One
//! core prints at a time, for a line or a report.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::cpu::{self, in8, out8};
use crate::{cores, power};

const PORT: u16 = 0x3f8;
/// A byte at 115,200 baud takes 87 us; a port read takes at least about one.
const POLLS_MAX: u32 = 1000;
/// The longest line takes less; a core that holds the console for this many port reads has died.
const HOLD_POLLS_MAX: u32 = 1_000_000;

static GONE: AtomicBool = AtomicBool::new(false);
static DROPPED: AtomicU32 = AtomicU32::new(0);

/// Sets 115,200 baud, 8 bits, no parity.
pub fn open() {
    for (register, value) in [(1, 0), (3, 0x80), (0, 1), (1, 0), (3, 3), (2, 7), (4, 3)] {
        out8(PORT + register, value);
    }
    // An absent port reads as ones.
    GONE.store(in8(PORT + 5) == 0xff, Ordering::Relaxed);
}

/// Bytes that the port did not take.
pub fn dropped() -> u32 {
    DROPPED.load(Ordering::Relaxed)
}

fn write_byte(byte: u8) {
    if GONE.load(Ordering::Relaxed) || !(0..POLLS_MAX).any(|_| in8(PORT + 5) & 0x20 != 0) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    } else {
        out8(PORT, byte);
    }
}

/// The holder of the console: the core's number plus one; 0: free.
static HOLDER: AtomicU32 = AtomicU32::new(0);

/// Exclusive use of the console, until dropped. A core may hold it several times.
#[must_use]
pub struct ConsoleGuard {
    is_outermost: bool,
}

/// Waits until no other core prints, or the printing core has exceeded its time.
pub fn lock() -> ConsoleGuard {
    let core_id = u32::from(cores::current()) + 1;
    if HOLDER.load(Ordering::Relaxed) == core_id {
        return ConsoleGuard {
            is_outermost: false,
        };
    }
    let is_free = |_| {
        halt_if_reporting();
        let _ = in8(PORT + 5);
        try_lock(core_id)
    };
    if !try_lock(core_id) && !(0..HOLD_POLLS_MAX).any(is_free) {
        HOLDER.store(core_id, Ordering::Relaxed);
    }
    ConsoleGuard { is_outermost: true }
}

fn try_lock(core_id: u32) -> bool {
    HOLDER
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

/// Releases the console regardless of nested holds, before this core ends.
fn release() {
    // Only if no other core has taken it over by timeout.
    let core_id = u32::from(cores::current()) + 1;
    let _ = HOLDER.compare_exchange(core_id, 0, Ordering::Release, Ordering::Relaxed);
}

/// The reporting core's number plus one; 0: none.
static REPORTER: AtomicU32 = AtomicU32::new(0);

/// Takes the console for a fault's report. A second fault of the reporting core restarts at once; a fault of another
/// core during a report only halts that core.
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

/// Halts this core if another core reports: the report ends in a restart.
fn halt_if_reporting() {
    let reporter = REPORTER.load(Ordering::Relaxed);
    if reporter != 0 && reporter != u32::from(cores::current()) + 1 {
        cpu::halt();
    }
}

/// Writes to the console, which the caller should hold.
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
