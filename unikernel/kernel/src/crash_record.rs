//! The crash record: a page of memory at a fixed address, which survives a restart. Neither the boot loader nor the
//! heap uses it. Power loss, or a boot loader that clears memory, erases it.

use core::fmt::{self, Write as _};

use crate::cpu::DeviceRegisters;
use crate::serial::say;

/// The address of the page: between the image, which ends below 8 MiB, and the site at 16 MiB.
pub const PAGE: u64 = 0xf0_0000;

const MAGIC: u32 = 0x6c72_6364;
const TEXT_MAX: usize = 256;
const TEXT: usize = 12;

fn page() -> DeviceRegisters {
    // SAFETY: memory below 4 GiB that `main` excludes from the heap.
    unsafe { DeviceRegisters::new(PAGE) }
}

/// Counts a fault, and stores the beginning of its description.
pub fn record(text: fmt::Arguments<'_>) {
    struct CrashWriter(usize);
    impl fmt::Write for CrashWriter {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            for byte in text.bytes() {
                if self.0 < TEXT_MAX {
                    page().write(
                        TEXT + self.0,
                        if (b' '..0x7f).contains(&byte) {
                            byte
                        } else {
                            b' '
                        },
                    );
                    self.0 += 1;
                }
            }
            Ok(())
        }
    }
    let previous_count = count();
    let mut to = CrashWriter(0);
    let _ = to.write_fmt(text);
    page().write(4, previous_count + 1);
    page().write(8, to.0 as u32);
    page().write(0, MAGIC);
}

fn count() -> u32 {
    if page().read::<u32>(0) == MAGIC {
        page().read(4)
    } else {
        0
    }
}

/// Prints the crash record of the previous run on the console.
pub fn print_last() {
    let count = count();
    if count > 0 {
        let mut text = [0; TEXT_MAX];
        let len = page().read::<u32>(8).min(TEXT_MAX as u32) as usize;
        for (n, byte) in text[..len].iter_mut().enumerate() {
            *byte = page().read(TEXT + n);
        }
        say!(
            "lowroad: restarted after fault {count}: {}",
            core::str::from_utf8(&text[..len]).unwrap_or_default()
        );
    }
}
