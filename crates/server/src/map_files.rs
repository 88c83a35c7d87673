//! Follows the files of maps: a changed file is in force within a second, without a reload.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lowroad_config::{ConfigFiles, MAP_FILE_LEN_MAX, map_content_hash, map_file_entries};
use lowroad_file_stamp::FileStamp;
use lowroad_log::ErrorLogger;
use lowroad_variables::{FileEntries, MapFile};

use crate::config_files::ServerFiles;
use crate::running_server::{RunningServer, lock};

/// The changes of map files since the start.
#[derive(Debug, Default)]
pub struct MapCounts {
    /// Changed files that were read.
    pub applied: AtomicU64,
    /// Changed files that can't be used; the previous entries stay in force.
    pub rejected: AtomicU64,
}

/// Follows the files of the current maps.
#[derive(Default)]
pub struct MapFollower {
    /// The stamps of the files when they were read last.
    stamps: Vec<(PathBuf, Option<FileStamp>)>,
}

impl MapFollower {
    /// Reads the files that have changed since the last call. Blocks on the disk.
    pub fn follow(&mut self, running: &Mutex<RunningServer>) {
        // The lock is released here, because reading files may block on the disk.
        let (maps, counts, logger) = {
            let running = lock(running);
            // Most configurations have no map files.
            if running.config.maps.iter().all(|map| map.file.is_none()) {
                return;
            }
            let maps = running.config.maps.clone();
            (maps, running.map_counts.clone(), running.logger.clone())
        };
        let files = maps.iter().filter_map(|map| map.file.as_ref());
        // Stamps of maps that are gone are forgotten.
        let mut stamps = Vec::new();
        for file in files {
            let stamp = FileStamp::from_path(&file.path).ok();
            let known = self.stamps.iter().find(|(path, _)| *path == file.path);
            // On the first call the file may have changed since the configuration was read.
            if known.is_none_or(|(_, known)| *known != stamp) {
                refresh(file, &counts, &logger);
            }
            stamps.push((file.path.clone(), stamp));
        }
        self.stamps = stamps;
    }
}

/// Reads a file again. A file with a mistake leaves the entries before in force.
fn refresh(file: &MapFile, counts: &MapCounts, logger: &ErrorLogger) {
    let path = file.path.display();
    match read(file) {
        // A touched file is no news for the log.
        Ok(None) => {}
        Ok(Some(entries)) => {
            let count = entries.entries.len();
            file.replace(entries);
            counts.applied.fetch_add(1, Relaxed);
            logger.info(format_args!(
                "map file {path}: {count} entries are in force"
            ));
        }
        Err(problem) => {
            counts.rejected.fetch_add(1, Relaxed);
            logger.error(format_args!(
                "map file {path}: the entries before stay in force: {problem}"
            ));
        }
    }
}

/// The entries of a file; `None` if its content is the one that was read last. After the start, most files are unchanged,
/// and parsing is much slower than hashing.
fn read(file: &MapFile) -> Result<Option<FileEntries>, String> {
    // As at the start: by the helper, if only root may read the file.
    let bytes = ServerFiles.read(&file.path, MAP_FILE_LEN_MAX);
    let bytes = bytes.map_err(|error| format!("cannot be read: {error}"))?;
    // At the start the configuration has read the same bytes a moment ago.
    if map_content_hash(&bytes) == file.entries().content_hash {
        return Ok(None);
    }
    map_file_entries(bytes, file.ignores_case).map(Some)
}
