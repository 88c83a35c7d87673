//! The folder of a file set: free space, atomic writes, and a lock against concurrent writers.

use std::fs::{self, File, FileTimes};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::super::wire::FILES_DATE_UNIX_S;
use super::ManifestEntry;

/// A folder under construction.
pub(super) struct FolderWriter {
    root: PathBuf,
    /// A lock held while files are created.
    _lock: File,
}

/// The name of the file that is being written. It is outside of the site, so that a crash leaves no incomplete file
/// there.
const UNFINISHED: &str = ".unfinished";

impl FolderWriter {
    /// Creates the folder if needed, and locks it for this process.
    pub(super) fn open(root: &Path) -> Result<FolderWriter, String> {
        fs::create_dir_all(root.join("site"))
            .map_err(|error| failed("make the folder", root, &error))?;
        let path = root.join(".lock");
        let lock = File::create(&path).map_err(|error| failed("write", &path, &error))?;
        // The kernel releases the lock when the process ends, so a crash leaves no stale lock.
        if lock.try_lock().is_err() {
            let root = root.display();
            return Err(format!(
                "{root}: another lowroad-lab makes files here; wait until it has finished"
            ));
        }
        Ok(FolderWriter {
            root: root.to_path_buf(),
            _lock: lock,
        })
    }

    /// Whether the site has a file of that path and length, with the date common to all files.
    pub(super) fn has_file(&self, path: &str, len: u64) -> bool {
        let metadata = fs::symlink_metadata(self.root.join("site").join(path));
        metadata.is_ok_and(|metadata| {
            // Length and date are compared instead of a checksum, since a set may have many gigabytes. `--check`
            // compares the contents.
            metadata.is_file()
                && metadata.len() == len
                && metadata.modified().is_ok_and(|modified| modified == date())
        })
    }

    /// Writes a file of the site.
    pub(super) fn write_site(&self, path: &str, bytes: &[u8]) -> Result<(), String> {
        self.write(&format!("site/{path}"), bytes)
    }

    /// Writes a file atomically.
    pub(super) fn write(&self, path: &str, bytes: &[u8]) -> Result<(), String> {
        let path = self.root.join(path);
        self.replace(&path, bytes)
            .map_err(|error| failed("write", &path, &error))
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
        let unfinished = self.root.join(UNFINISHED);
        let mut file = File::create(&unfinished)?;
        file.write_all(bytes)?;
        // The date is set before the rename, so that a complete file always has it.
        file.set_times(FileTimes::new().set_modified(date()))?;
        match fs::rename(&unfinished, path) {
            // Folders are created on demand, since nearly all files are in existing folders.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                fs::create_dir_all(path.parent().expect("joined to the root"))?;
                fs::rename(&unfinished, path)
            }
            result => result,
        }
    }

    /// Fails if files of these lengths would not fit on the disk.
    pub(super) fn check_room(&self, lens: impl Iterator<Item = u64>) -> Result<(), String> {
        let stat = rustix::fs::statvfs(&self.root)
            .map_err(|error| failed("look at the file system of", &self.root, &error.into()))?;
        let block = stat.f_frsize.max(1);
        // Files occupy whole blocks.
        let needed = lens.map(|len| len.div_ceil(block) * block).sum();
        // f_bavail excludes the blocks that are reserved for root, unlike f_bfree (statvfs(3)).
        let free = stat.f_bavail.saturating_mul(block);
        check_room(needed, free).map_err(|error| format!("{}: {error}", self.root.display()))
    }
}

fn check_room(needed: u64, free: u64) -> Result<(), String> {
    // Requires a margin, since a full disk would break other programs too.
    let spare = needed / 50;
    if needed > 0 && needed + spare > free {
        let (needed, free) = (human(needed + spare), human(free));
        return Err(format!(
            "the files need {needed}, but {free} are free; choose another folder or a smaller set"
        ));
    }
    Ok(())
}

/// Formats a number of bytes.
pub(crate) fn human(bytes: u64) -> String {
    let mut number = bytes as f64;
    let mut units = ["B", "KiB", "MiB", "GiB", "TiB"].iter().peekable();
    while number >= 1024.0 && units.len() > 1 {
        number /= 1024.0;
        units.next();
    }
    let digits = usize::from(number < 10.0 && bytes >= 1024);
    format!(
        "{number:.digits$} {}",
        units.peek().expect("the last is kept")
    )
}

/// The date of all files of a set, so that servers send equal `Last-Modified` fields.
fn date() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(FILES_DATE_UNIX_S)
}

/// The length and CRC-32 of a file.
pub(super) fn checksum(mut file: File) -> std::io::Result<ManifestEntry> {
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; 1 << 17];
    let mut len = 0;
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(ManifestEntry {
                len,
                crc32: hasher.finalize(),
            });
        }
        hasher.update(&buffer[..count]);
        len += count as u64;
    }
}

/// The text of a disk error.
pub(super) fn failed(action: &str, path: &Path, error: &std::io::Error) -> String {
    format!("can't {action} {}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_disk_space_is_reported() {
        assert!(check_room(0, 0).is_ok());
        assert!(check_room(100 << 20, 200 << 20).is_ok());
        let error = check_room(5 << 30, 3 << 20).expect_err("no room");
        assert!(
            error.contains("need 5.1 GiB") && error.contains("3.0 MiB are free"),
            "{error}"
        );
    }

    #[test]
    fn byte_counts_are_formatted() {
        assert_eq!(human(0), "0 B");
        assert_eq!(human(1023), "1023 B");
        assert_eq!(human(1536), "1.5 KiB");
        assert_eq!(human(762 << 20), "762 MiB");
    }
}
