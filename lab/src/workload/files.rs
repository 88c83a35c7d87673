//! Creates the file set of a workload: the same bytes on every machine, in a folder that several runs can
//! fill. The content of a file depends only on its name and length, so a larger set extends a smaller one of the same
//! workload.
//!
//! `DIR/site` is served, the workload's CGI programs read and write `DIR/specweb99-data`, and `DIR/manifest.tsv` lists the files of the
//! site. The files do not depend on the traffic.

mod content;
mod disk;
mod manifest;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use content::FileFill;
use disk::FolderWriter;
pub(crate) use disk::human;
pub use manifest::{FileManifest, ManifestEntry};

use super::{bare, specset, specweb96, specweb99, unknown, webbench, webstone};

/// One file of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileSpec {
    /// Its path in the site, without a leading slash.
    pub(crate) path: String,
    /// Its length.
    pub(crate) len: u64,
    /// Its kind of content.
    pub(crate) fill: FileFill,
}

/// A file set.
#[derive(Clone, Debug, Default)]
pub struct FilePlan {
    /// The site.
    pub(crate) files: Vec<FileSpec>,
    /// The data of programs, by path in the folder. It is small.
    pub(crate) data: Vec<(&'static str, Vec<u8>)>,
}

impl FilePlan {
    /// Number of files of the site.
    pub fn files(&self) -> u64 {
        self.files.len() as u64
    }

    /// Total length of the site's files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.len).sum()
    }
}

/// The file set of a workload with these settings; settings that affect only its traffic are ignored.
///
/// # Errors
/// An unknown workload, setting or value; the text lists the allowed ones.
pub fn plan(workload: &str, settings: &BTreeMap<String, String>) -> Result<FilePlan, String> {
    match workload {
        "specweb99" => specweb99::plan(settings),
        "specweb96" => {
            let files = specset::plan(specweb96::dirs(settings)?);
            Ok(FilePlan {
                files,
                ..FilePlan::default()
            })
        }
        "webstone" => webstone::plan(settings),
        "webbench" => webbench::plan(settings),
        "bare" => bare::plan(settings),
        _ => Err(unknown(workload)),
    }
}

/// The content of one file of a workload with its default settings; `None` if there is no such file.
pub(crate) fn file_content(workload: &str, path: &str) -> Option<Vec<u8>> {
    let plan = plan(workload, &BTreeMap::new()).ok()?;
    let file = plan.files.iter().find(|file| file.path == path)?;
    let mut content = Vec::new();
    content::fill(&file.path, file.len, file.fill, &mut content);
    Some(content)
}

/// Creates the file set of a workload under a folder. `progress` receives the share of the bytes that exist already,
/// from 0 to 1.
///
/// # Errors
/// An unknown workload, setting or value; a full disk; another disk error.
pub fn make(
    workload: &str,
    settings: &BTreeMap<String, String>,
    dir: &Path,
    progress: &mut dyn FnMut(f64),
) -> Result<(), String> {
    let plan = plan(workload, settings)?;
    make_until(&plan, dir, &AtomicBool::new(false), progress).map(drop)
}

/// The result of the creation of a file set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileSetOutcome {
    /// Files that existed already.
    pub unchanged: u64,
    /// Files that were written.
    pub written: u64,
    /// Whether the creation was stopped before the set was complete.
    pub stopped: bool,
}

/// Like [`make`], but ends early if `stop` is set; the next run continues with the files created so far.
///
/// # Errors
/// A full disk, or another disk error.
pub fn make_until(
    plan: &FilePlan,
    dir: &Path,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(f64),
) -> Result<FileSetOutcome, String> {
    let folder = FolderWriter::open(dir)?;
    let mut listed = manifest::load_all(dir)?;
    let missing = missing(plan, &folder, &listed);
    // The free space is checked before any file is written; otherwise a set might fill the disk only after a long time.
    folder.check_room(missing.iter().map(|file| file.len))?;
    for (path, bytes) in &plan.data {
        folder.write(path, bytes)?;
    }
    let mut outcome = FileSetOutcome {
        unchanged: plan.files() - missing.len() as u64,
        ..FileSetOutcome::default()
    };
    let mut journal = manifest::ManifestJournal::open(dir)?;
    let total_bytes = plan.bytes().max(1) as f64;
    let mut present_bytes = plan.bytes() - missing.iter().map(|file| file.len).sum::<u64>();
    let mut buffer = Vec::new();
    for file in missing {
        if stop.load(Ordering::Relaxed) {
            outcome.stopped = true;
            return Ok(outcome);
        }
        progress(present_bytes as f64 / total_bytes);
        let entry = write_file(&folder, file, &mut buffer)?;
        // The entry is added only when the file is complete: otherwise the next run could pair the entry with an older file.
        journal.add(&file.path, entry)?;
        listed.insert(file.path.clone(), entry);
        present_bytes += file.len;
        outcome.written += 1;
    }
    // The journal is removed only after the manifest that replaces it was written.
    manifest::save(&folder, &listed)?;
    journal.remove()?;
    progress(1.0);
    Ok(outcome)
}

/// The files that do not exist or differ from the manifest.
fn missing<'a>(
    plan: &'a FilePlan,
    folder: &FolderWriter,
    listed: &BTreeMap<String, ManifestEntry>,
) -> Vec<&'a FileSpec> {
    let is_present = |file: &FileSpec| {
        listed
            .get(&file.path)
            .is_some_and(|entry| entry.len == file.len)
            && folder.has_file(&file.path, file.len)
    };
    plan.files.iter().filter(|file| !is_present(file)).collect()
}

fn write_file(
    folder: &FolderWriter,
    file: &FileSpec,
    buffer: &mut Vec<u8>,
) -> Result<ManifestEntry, String> {
    content::fill(&file.path, file.len, file.fill, buffer);
    folder.write_site(&file.path, buffer)?;
    Ok(ManifestEntry {
        len: file.len,
        crc32: crc32fast::hash(buffer),
    })
}

/// Reads all files of a plan and compares them with the manifest. Returns their number.
///
/// # Errors
/// The first file that differs.
pub fn check(plan: &FilePlan, dir: &Path, progress: &mut dyn FnMut(f64)) -> Result<u64, String> {
    let manifest = FileManifest::load(dir)?;
    let total_bytes = plan.bytes().max(1) as f64;
    let mut done = 0;
    for file in &plan.files {
        progress(done as f64 / total_bytes);
        let path = dir.join("site").join(&file.path);
        let due = manifest.checksum(&file.path, file.len)?;
        let entry = File::open(&path).and_then(disk::checksum);
        let entry = entry.map_err(|error| format!("{}: {error}", path.display()))?;
        if entry
            != (ManifestEntry {
                len: file.len,
                crc32: due,
            })
        {
            let path = path.display();
            return Err(format!("{path} has changed; delete it and run files again"));
        }
        done += file.len;
    }
    progress(1.0);
    Ok(plan.files())
}

#[cfg(test)]
mod tests;
