//! Reads files with secrets: tokens, and values of fields.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Maximum length of a secret's file; a longer one suggests a wrong file.
const LEN_MAX: u64 = 4096;

/// Reads a regular file of at most 4 KiB.
///
/// # Errors
/// The file can't be read, is of another kind, or is longer.
pub fn read(file: &Path) -> io::Result<Vec<u8>> {
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
    // Opening a FIFO would wait for a writer without O_NONBLOCK, and a device may never end.
    let opened = File::options()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(file)?;
    if !opened.metadata()?.is_file() {
        return Err(invalid("not a regular file".into()));
    }
    let mut bytes = Vec::new();
    // One byte more than the maximum, so that a longer file is noticed and not cut.
    opened.take(LEN_MAX + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > LEN_MAX {
        true => Err(invalid(format!(
            "longer than {LEN_MAX} bytes, so it is not the file of a secret"
        ))),
        false => Ok(bytes),
    }
}
