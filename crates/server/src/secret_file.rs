//! Reads files with secrets: tokens, and values of fields.

use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use lowroad_config::SECRET_LEN_MAX;
use lowroad_privileges::helper;
use rustix::fs::Mode;

/// Maximum length of a secret's file; a longer one suggests a wrong file.
const LEN_MAX: u64 = SECRET_LEN_MAX as u64;

/// Reads a regular file of at most 4 KiB.
///
/// # Errors
/// The file can't be read, is of another kind, or is longer.
pub fn read(file: &Path) -> io::Result<Vec<u8>> {
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
    // A device may never end.
    let opened = helper::open(file)?;
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

/// Whether users other than the owner and the group can read or write a file.
pub fn is_open_to_others(file: &Path) -> bool {
    let others = Mode::ROTH | Mode::WOTH;
    file.metadata()
        .is_ok_and(|meta| Mode::from_raw_mode(meta.mode()).intersects(others))
}

/// Warnings of files that other users can read or replace.
pub fn warnings<'f>(files: impl Iterator<Item = &'f Path>) -> Vec<String> {
    let open = files.filter(|file| is_open_to_others(file));
    open.map(|file| {
        let file = file.display();
        format!("{file}: other users can read or replace this secret; chmod o-rwx {file}")
    })
    .collect()
}
