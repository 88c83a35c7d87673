//! The served content: file sets, PHP programs and the dynamic set in C, created once in a folder of the lab.
//! Independent of servers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use super::phases;
use super::schema::ExperimentConfig;
use crate::icount::disk;
use crate::peers::{PeerFailure, fronts};
use crate::workload::files;

/// Settings of workloads that affect only the traffic, not the files.
const TRAFFIC_ONLY: &[&str] = &[
    "dynamic", "mix", "size", "set", "style", "calls", "protocol",
];

/// The programs of servers with PHP, by file name.
const PROGRAMS: &[(&str, &str)] = &[
    phases::PAGE,
    ("page.php", include_str!("../../peers/php/page.php")),
    (
        "specweb99.php",
        include_str!("../../peers/php/specweb99.php"),
    ),
    ("page.lrp", include_str!("../../peers/page.lrp")),
    ("schema.sql", include_str!("../../peers/php/schema.sql")),
];

/// All sites of a lab. Clones share the lock, for concurrent threads.
#[derive(Clone, Debug)]
pub struct LabSites {
    data: PathBuf,
    /// Held while files are created: concurrent experiments may need the same files.
    build_lock: Arc<Mutex<()>>,
}

impl LabSites {
    /// The sites in a folder.
    #[must_use]
    pub fn new(data: PathBuf) -> Self {
        Self {
            data,
            build_lock: Arc::default(),
        }
    }

    /// Creates the content of an experiment's servers, until complete or `stop` is set.
    ///
    /// # Errors
    /// A file can't be written; the text names it.
    pub fn prepare(
        &self,
        experiment: &ExperimentConfig,
        progress: &mut dyn FnMut(f64),
        stop: &AtomicBool,
    ) -> Result<(), String> {
        let _build_lock = self
            .build_lock
            .lock()
            .expect("no thread panics with this lock");
        let traffic = &experiment.workload;
        let folder = self.folder(&traffic.name, &traffic.settings);
        std::fs::create_dir_all(&folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        write_programs(&self.programs())?;
        let plan = files::plan(&traffic.name, &traffic.settings)?;
        files::make_until(&plan, &folder, stop, progress).map(drop)
    }

    /// The folder of the programs for servers with PHP.
    #[must_use]
    pub fn programs(&self) -> PathBuf {
        self.data.join("php")
    }

    /// The folder of the dynamic set in C, compiled.
    ///
    /// # Errors
    /// A compiler or a library is missing.
    pub fn fronts(&self) -> Result<PathBuf, PeerFailure> {
        let folder = self.data.join("fronts");
        let folder = std::path::absolute(&folder).unwrap_or(folder);
        let _build_lock = self
            .build_lock
            .lock()
            .expect("no thread panics with this lock");
        fronts::build(&folder).map_err(PeerFailure::NotInstalled)?;
        Ok(folder)
    }

    /// A file set as a disk image.
    ///
    /// # Errors
    /// A program is missing, or the disk is full.
    pub fn disk(
        &self,
        workload: &str,
        settings: &BTreeMap<String, String>,
    ) -> Result<PathBuf, String> {
        let folder = self.folder(workload, settings);
        let _build_lock = self
            .build_lock
            .lock()
            .expect("no thread panics with this lock");
        disk::build_image(&folder.join("site"), &folder.join("site.ext4"))
    }

    /// The folder of a file set; experiments with equal sets share it.
    #[must_use]
    pub fn folder(&self, workload: &str, settings: &BTreeMap<String, String>) -> PathBuf {
        let is_file_setting = |key: &&String| !TRAFFIC_ONLY.contains(&key.as_str());
        let file_settings: Vec<_> = settings
            .iter()
            .filter(|(key, _)| is_file_setting(key))
            .collect();
        let text = serde_json::to_string(&file_settings).expect("plain data");
        self.data.join(format!(
            "{workload}-{:08x}",
            crc32fast::hash(text.as_bytes())
        ))
    }
}

fn write_programs(folder: &Path) -> Result<(), String> {
    let write = || {
        std::fs::create_dir_all(folder)?;
        PROGRAMS.iter().try_for_each(|(name, text)| {
            // Unchanged files are not written: other threads may be reading them.
            let path = folder.join(name);
            match std::fs::read(&path).is_ok_and(|present| present == text.as_bytes()) {
                true => Ok(()),
                false => std::fs::write(path, text),
            }
        })
    };
    write().map_err(|error: std::io::Error| format!("{}: {error}", folder.display()))
}
