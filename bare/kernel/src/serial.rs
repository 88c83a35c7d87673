//! The console: the first serial port (16550). Never waits long: what the port does not take is dropped.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::cpu::{in8, out8};

const PORT: u16 = 0x3f8;
/// A byte at 115,200 baud takes 87 us; reading a port takes about one at least.
const POLLS_MAX: u32 = 1000;

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

/// Writes to the console.
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
        let _ = writeln!($crate::serial::Console, $($arg)*);
    }};
}
pub(crate) use say;
