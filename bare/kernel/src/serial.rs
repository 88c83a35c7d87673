//! The console: the first serial port (16550). Never waits long: what the port does not take is dropped. One core speaks
//! at a time, for a line or for a report.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::cpu::{self, in8, out8};
use crate::{cores, power};

const PORT: u16 = 0x3f8;
/// A byte at 115,200 baud takes 87 us; reading a port takes about one at least.
const POLLS_MAX: u32 = 1000;
/// The longest line takes less; a core that holds the console for so many reads of the port has died meanwhile.
const HOLD_POLLS_MAX: u32 = 1_000_000;

static GONE: AtomicBool = AtomicBool::new(false);
static DROPPED: AtomicU32 = AtomicU32::new(0);

/// Sets the port to 115,200 baud, 8 bits, no parity.
pub fn open() {
    for (register, value) in [(1, 0), (3, 0x80), (0, 1), (1, 0), (3, 3), (2, 7), (4, 3)] {
        out8(PORT + register, value);
    }
    // Nothing that answers, reads as ones.
    GONE.store(in8(PORT + 5) == 0xff, Ordering::Relaxed);
}

/// Bytes that the port has not taken.
pub fn dropped() -> u32 {
    DROPPED.load(Ordering::Relaxed)
}

fn put(byte: u8) {
    if GONE.load(Ordering::Relaxed) || !(0..POLLS_MAX).any(|_| in8(PORT + 5) & 0x20 != 0) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    } else {
        out8(PORT, byte);
    }
}

/// Who speaks: the core's number and one; 0 for nobody.
static HOLDER: AtomicU32 = AtomicU32::new(0);

/// The console, for this core alone until it is dropped. A core may hold it several times at once.
#[must_use]
pub struct Hold {
    is_outermost: bool,
}

/// Waits until no other core speaks, or until one has spoken for too long.
pub fn hold() -> Hold {
    let own = u32::from(cores::own()) + 1;
    if HOLDER.load(Ordering::Relaxed) == own {
        return Hold {
            is_outermost: false,
        };
    }
    let is_free = |_| {
        give_way();
        let _ = in8(PORT + 5);
        take(own)
    };
    if !take(own) && !(0..HOLD_POLLS_MAX).any(is_free) {
        HOLDER.store(own, Ordering::Relaxed);
    }
    Hold { is_outermost: true }
}

fn take(own: u32) -> bool {
    HOLDER
        .compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed)
        .is_ok()
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.is_outermost {
            release();
        }
    }
}

/// Lets others speak, however often this core holds the console; for its end.
fn release() {
    // Unless another core has given this one up.
    let own = u32::from(cores::own()) + 1;
    let _ = HOLDER.compare_exchange(own, 0, Ordering::Release, Ordering::Relaxed);
}

/// Who reports: the core's number and one; 0 for nobody.
static REPORTER: AtomicU32 = AtomicU32::new(0);

/// Takes the console for a report. A fault while this core reports a fault ends at once; while another does, it is the
/// other's that is told.
pub fn hold_for_report() -> Hold {
    let own = u32::from(cores::own()) + 1;
    let before = REPORTER.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed);
    match before {
        Ok(_) => hold(),
        Err(reporter) if reporter == own => power::restart(),
        Err(_) => {
            release();
            cpu::halt()
        }
    }
}

/// Halts this core if another one reports: the machine ends with that report.
fn give_way() {
    let reporter = REPORTER.load(Ordering::Relaxed);
    if reporter != 0 && reporter != u32::from(cores::own()) + 1 {
        cpu::halt();
    }
}

/// Writes to the console, which should be held.
pub struct Console;

impl Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if byte == b'\n' {
                put(b'\r');
            }
            // What a network has sent must not steer the operator's terminal.
            put(if byte == b'\n' || (b' '..0x7f).contains(&byte) {
                byte
            } else {
                b'?'
            });
        }
        Ok(())
    }
}

/// Says a line on the console.
macro_rules! say {
    ($($arg:tt)*) => {{
        use core::fmt::Write as _;
        let _hold = $crate::serial::hold();
        let _ = writeln!($crate::serial::Console, $($arg)*);
    }};
}
pub(crate) use say;
