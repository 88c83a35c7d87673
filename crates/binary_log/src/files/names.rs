//! The names of rotated files: the log's name, a dot, and the time of rotation in UTC, as in
//! `access.lrlog.20261129T051846123Z`. A name never changes again, and the order of names is that of time.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use lowroad_log::civil_date;

/// The length of the time in a name.
const STAMP_LEN: usize = 19;

/// A rotated file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RotatedFile {
    /// The path.
    pub path: PathBuf,
    /// The length.
    pub len: u64,
}

/// An unused name for the file at `path`, for a rotation at this time.
pub fn unused(path: &Path, now_ms: u64) -> PathBuf {
    // Two rotations within a millisecond get different names: rename(2) would replace the file of the first.
    let mut names = (now_ms..).map(|ms| with_stamp(path, &stamp(ms)));
    names.find(|name| !name.exists()).expect("a name is unused")
}

/// The rotated files of a log, the oldest first. Other files of similar names do not count.
pub fn rotated(path: &Path) -> Vec<RotatedFile> {
    let folder = match path.parent() {
        // A path without a folder has the parent "", which read_dir(3) does not accept.
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let (Some(name), Ok(entries)) = (path.file_name(), std::fs::read_dir(folder)) else {
        return Vec::new();
    };
    let mut files: Vec<_> = entries
        .flatten()
        .filter(|entry| {
            is_rotated(
                name.as_encoded_bytes(),
                entry.file_name().as_encoded_bytes(),
            )
        })
        .filter_map(|entry| {
            // A file may be deleted between the listing and this call, by another process or an operator.
            let meta = entry.metadata().ok().filter(std::fs::Metadata::is_file)?;
            let (path, len) = (folder.join(entry.file_name()), meta.len());
            Some(RotatedFile { path, len })
        })
        .collect();
    // All stamps have the same length, so the order of bytes is that of time.
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files
}

fn is_rotated(name: &[u8], other: &[u8]) -> bool {
    let stamp = other
        .strip_prefix(name)
        .and_then(|rest| rest.strip_prefix(b"."));
    stamp.is_some_and(|stamp| {
        stamp.len() == STAMP_LEN
            && stamp.iter().enumerate().all(|(place, byte)| match place {
                8 => *byte == b'T',
                18 => *byte == b'Z',
                _ => byte.is_ascii_digit(),
            })
    })
}

fn with_stamp(path: &Path, stamp: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".");
    name.push(stamp);
    name.into()
}

/// `20261129T051846123Z`.
fn stamp(unix_ms: u64) -> String {
    let text = civil_date::rfc3339(unix_ms);
    text.chars()
        .filter(|c| !matches!(c, '-' | ':' | '.'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotated_name_ends_with_the_time_of_rotation() {
        let name = unused(Path::new("/nowhere/access.lrlog"), 1_795_207_512_123);
        assert_eq!(name, Path::new("/nowhere/access.lrlog.20261120T204512123Z"));
        assert!(is_rotated(
            b"access.lrlog",
            b"access.lrlog.20261120T204512123Z"
        ));
        for other in [
            &b"access.lrlog"[..],
            b"access.lrlog.1",
            b"access.lrlog.20261120T204512123Z.gz",
            b"access.lrlog.20261120T20451212aZ",
            b"other.lrlog.20261120T204512123Z",
        ] {
            assert!(!is_rotated(b"access.lrlog", other));
        }
    }
}
