//! The manifest of a site: path, length and CRC-32 of each file, separated by tabs, one file per line, sorted by path.
//! While files are created, their entries are appended to a journal of the same format; the manifest is written when
//! all files exist.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::disk::{FolderWriter, failed};

/// Name of the manifest in the folder.
const NAME: &str = "manifest.tsv";

/// Name of the journal.
const JOURNAL: &str = "manifest.part";

/// The first line. Its number is the version of the content generator; files of another version are created again.
const FIRST_LINE: &str = "# lowroad-lab files 1: path, bytes, CRC-32";

/// The manifest's entry of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManifestEntry {
    /// Its length.
    pub len: u64,
    /// CRC-32 (IEEE) of its bytes.
    pub crc32: u32,
}

/// The manifest of a complete folder.
#[derive(Clone, Debug)]
pub struct FileManifest {
    file: PathBuf,
    entries: BTreeMap<String, ManifestEntry>,
}

impl FileManifest {
    /// Reads the manifest of a folder.
    ///
    /// # Errors
    /// The manifest is missing or malformed.
    pub fn load(folder: &Path) -> Result<FileManifest, String> {
        let file = folder.join(NAME);
        let text = fs::read_to_string(&file).map_err(|error| {
            format!(
                "{}: {error}; lowroad-lab files makes the files and this list",
                file.display()
            )
        })?;
        let mut listed = BTreeMap::new();
        match read(&text, &mut listed) {
            Ok(true) => Ok(FileManifest {
                file,
                entries: listed,
            }),
            Ok(false) => Err(format!(
                "{}: made by another version; run files again",
                file.display()
            )),
            Err(error) => Err(format!("{}: {error}", file.display())),
        }
    }

    /// The entry of the file with this path in the site.
    pub fn get(&self, path: &str) -> Option<ManifestEntry> {
        self.entries.get(path.trim_start_matches('/')).copied()
    }

    /// The CRC-32 of a file; the length must match.
    pub(crate) fn checksum(&self, path: &str, len: u64) -> Result<u32, String> {
        let file = self.file.display();
        match self.get(path) {
            Some(listed) if listed.len == len => Ok(listed.crc32),
            Some(listed) => Err(format!(
                "{file}: {path} has {} bytes instead of {len}; make the files with the same settings",
                listed.len
            )),
            None => Err(format!(
                "{file}: {path} is missing; make the files of this workload with the same settings"
            )),
        }
    }
}

/// All known entries of a folder: the manifest, and the journal of an interrupted run.
pub(super) fn load_all(folder: &Path) -> Result<BTreeMap<String, ManifestEntry>, String> {
    let mut listed = BTreeMap::new();
    // The journal is read last, since its entries are newer.
    for name in [NAME, JOURNAL] {
        let file = folder.join(name);
        match fs::read_to_string(&file) {
            // Unreadable lines or another version have only the effect that the files are created again.
            Ok(text) => drop(read(&text, &mut listed)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed("read", &file, &error)),
        }
    }
    Ok(listed)
}

/// Reads lines; returns false if they are of another version. An incomplete last line was being written during a crash,
/// and is skipped.
fn read(text: &str, listed: &mut BTreeMap<String, ManifestEntry>) -> Result<bool, String> {
    let mut lines = text.split_inclusive('\n');
    if lines.next().map(str::trim_end) != Some(FIRST_LINE) {
        return Ok(false);
    }
    for (number, line) in lines.enumerate() {
        // A line without a newline was being written during a crash.
        let Some(line) = line.strip_suffix('\n') else {
            break;
        };
        let Some((path, entry)) = parse(line) else {
            return Err(format!(
                "line {}: {line:?} does not consist of path, bytes, CRC-32",
                number + 2
            ));
        };
        listed.insert(path.to_string(), entry);
    }
    Ok(true)
}

fn parse(line: &str) -> Option<(&str, ManifestEntry)> {
    let mut columns = line.split('\t');
    let path = columns.next()?;
    let len = columns.next()?.parse().ok()?;
    let crc32 = u32::from_str_radix(columns.next()?, 16).ok()?;
    columns
        .next()
        .is_none()
        .then_some((path, ManifestEntry { len, crc32 }))
}

fn line(path: &str, entry: ManifestEntry) -> String {
    format!("{path}\t{}\t{:08x}\n", entry.len, entry.crc32)
}

/// Writes the manifest atomically.
pub(super) fn save(
    folder: &FolderWriter,
    listed: &BTreeMap<String, ManifestEntry>,
) -> Result<(), String> {
    let mut text = format!("{FIRST_LINE}\n");
    for (path, entry) in listed {
        text += &line(path, *entry);
    }
    folder.write(NAME, text.as_bytes())
}

/// A journal of the files created since the manifest was written.
pub(super) struct ManifestJournal {
    path: PathBuf,
    file: File,
}

impl ManifestJournal {
    /// Creates the journal, or continues that of an interrupted run.
    pub(super) fn open(folder: &Path) -> Result<ManifestJournal, String> {
        let path = folder.join(JOURNAL);
        let create = || {
            let is_complete = fs::read_to_string(&path).is_ok_and(|text| {
                text.ends_with('\n') && read(&text, &mut BTreeMap::new()) == Ok(true)
            });
            // If the last line of a journal is incomplete, a new journal is started; otherwise the next entry would
            // continue that line.
            if is_complete {
                return OpenOptions::new().append(true).open(&path);
            }
            let mut file = File::create(&path)?;
            writeln!(file, "{FIRST_LINE}")?;
            Ok(file)
        };
        let file = create().map_err(|error| failed("write", &path, &error))?;
        Ok(ManifestJournal { path, file })
    }

    pub(super) fn add(&mut self, path: &str, entry: ManifestEntry) -> Result<(), String> {
        let text = line(path, entry);
        self.file
            .write_all(text.as_bytes())
            .map_err(|error| failed("write", &self.path, &error))
    }

    pub(super) fn remove(self) -> Result<(), String> {
        fs::remove_file(&self.path).map_err(|error| failed("delete", &self.path, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_line_round_trip() {
        let entry = ManifestEntry {
            len: 102,
            crc32: 0x00ab_cdef,
        };
        let text = format!("{FIRST_LINE}\n{}{}", line("a/b", entry), "half\t1");
        let mut listed = BTreeMap::new();
        assert_eq!(read(&text, &mut listed), Ok(true));
        assert_eq!(
            listed.into_iter().collect::<Vec<_>>(),
            [("a/b".to_string(), entry)]
        );
        assert_eq!(read("# something else\n", &mut BTreeMap::new()), Ok(false));
        let error = read(&format!("{FIRST_LINE}\na b c\n"), &mut BTreeMap::new());
        assert!(error.expect_err("no line").contains("line 2"));
    }
}
