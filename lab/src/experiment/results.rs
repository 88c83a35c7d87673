//! Results on disk: one line of JSON for each measurement, appended as it completes.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::bench::MeasurementResult;
use super::machine::MachineInfo;
use super::schema::AxisValue;
use crate::peers::PeerFailure;

/// The purpose of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeasurementRole {
    /// A point of the figure.
    #[default]
    Point,
    /// The capacity of the reference server, for a sweep relative to it.
    Reference,
}

/// The kind of reason for a missing figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MissingReason {
    /// A level of Lowroad that is not implemented yet.
    Absent,
    /// Not installed on this machine.
    NotInstalled,
    /// No such peer.
    Unknown,
    /// The server did not start, or could not be measured.
    Broken,
}

/// Figures, or the reason why they are missing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PointResult {
    /// Figures.
    Measured(Box<MeasurementResult>),
    /// No figures.
    Failed {
        /// The kind of reason.
        why: MissingReason,
        /// The reason.
        text: String,
    },
}

/// One line of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultRecord {
    /// The experiment's name.
    pub experiment: String,
    /// Identifies the conditions of the measurement; see `ExperimentConfig::fingerprint`.
    pub fingerprint: String,
    /// The purpose.
    #[serde(default)]
    pub role: MeasurementRole,
    /// The server's name in the experiment.
    pub server: String,
    /// The point.
    pub x: AxisValue,
    /// The number of the repeat, from 0.
    pub repeat: u32,
    /// The result.
    pub found: PointResult,
    /// The server's version.
    #[serde(default)]
    pub version: String,
    /// The server's configuration.
    #[serde(default)]
    pub configuration: String,
    /// Time of the measurement, in seconds since 1970.
    pub unix_s: u64,
    /// The machine.
    pub machine: MachineInfo,
    /// Whether the figures were computed, not measured: a rehearsal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pretended: bool,
}

/// The identity of a measurement.
pub type ResultKey = (MeasurementRole, String, String, u32);

impl ResultRecord {
    /// The record's key.
    #[must_use]
    pub fn key(&self) -> ResultKey {
        key(self.role, &self.server, &self.x, self.repeat)
    }

    /// The figures, if there are any.
    #[must_use]
    pub fn measured(&self) -> Option<&MeasurementResult> {
        match &self.found {
            PointResult::Measured(measured) => Some(measured),
            PointResult::Failed { .. } => None,
        }
    }
}

/// The key of a measurement.
#[must_use]
pub fn key(role: MeasurementRole, server: &str, x: &AxisValue, repeat: u32) -> ResultKey {
    (role, server.to_owned(), x.to_string(), repeat)
}

impl From<PeerFailure> for PointResult {
    fn from(failure: PeerFailure) -> Self {
        let (reason, text) = match failure {
            PeerFailure::Absent(text) => (MissingReason::Absent, text),
            PeerFailure::NotInstalled(text) => (MissingReason::NotInstalled, text),
            PeerFailure::Unknown(text) => (MissingReason::Unknown, text),
            PeerFailure::Broken(text) => (MissingReason::Broken, text),
        };
        PointResult::Failed { why: reason, text }
    }
}

/// The content of a results file.
#[derive(Debug, Default)]
pub struct StoredResults {
    /// The newest record of each key, in order of key.
    pub records: BTreeMap<ResultKey, ResultRecord>,
    /// Length up to the end of the last complete line.
    pub complete_len: u64,
    /// Anomalies, such as an incomplete line, as text for the user.
    pub notes: Vec<String>,
}

/// The path of an experiment's results file.
#[must_use]
pub fn path(folder: &Path, experiment: &str) -> PathBuf {
    folder.join(format!("{experiment}.jsonl"))
}

/// Reads a results file; a missing file counts as empty. If the lab was stopped while it wrote a line, that last line
/// is incomplete: it is skipped, with a note.
///
/// # Errors
/// The file can't be read, or a complete line is not a record.
pub fn read(path: &Path) -> Result<StoredResults, String> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(StoredResults::default());
        }
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    parse(&text).map_err(|problem| format!("{}: {problem}", path.display()))
}

/// Parses the text of a file of results.
///
/// # Errors
/// A complete line is not a record.
pub fn parse(text: &[u8]) -> Result<StoredResults, String> {
    let mut stored = StoredResults::default();
    for (index, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        if line.last() != Some(&b'\n') {
            let note = format!("line {} is incomplete and is skipped", index + 1);
            stored.notes.push(note);
            break;
        }
        let record: ResultRecord = serde_json::from_slice(line).map_err(|error| {
            format!(
                "line {}: not a result of this version ({error}); move the file away or use --fresh",
                index + 1
            )
        })?;
        stored.complete_len += line.len() as u64;
        // A later record of the same key replaces a failed one.
        stored.records.insert(record.key(), record);
    }
    Ok(stored)
}

/// Appends results.
pub struct ResultWriter {
    file: File,
    path: PathBuf,
    complete_len: u64,
}

impl ResultWriter {
    /// Opens a file, truncated to its first `complete_len` bytes.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn open(path: &Path, complete_len: u64) -> Result<Self, String> {
        Self::try_open(path, complete_len).map_err(|error| {
            format!(
                "{}: {error}; choose another folder with --results",
                path.display()
            )
        })
    }

    fn try_open(path: &Path, complete_len: u64) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)?;
        // The lock prevents a second run of the experiment from overwriting lines.
        let lock = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        rustix::fs::flock(&file, lock)
            .map_err(|_| io::Error::other("another run is writing there"))?;
        let mut writer = Self {
            file,
            path: path.to_owned(),
            complete_len,
        };
        // Removes an incomplete last line, which the next record would otherwise continue.
        writer.truncate()?;
        Ok(writer)
    }

    /// Appends a record atomically.
    ///
    /// # Errors
    /// The file can't be written, as on a full disk.
    pub fn append(&mut self, record: &ResultRecord) -> Result<(), String> {
        let mut line = serde_json::to_vec(record).expect("plain data");
        line.push(b'\n');
        let appended = self.file.write_all(&line);
        match appended {
            Ok(()) => self.complete_len += line.len() as u64,
            // A part of the line may have been written; the next record must not follow it.
            Err(_) => drop(self.truncate()),
        }
        appended.map_err(|error| format!("{}: {error}", self.path.display()))
    }

    fn truncate(&mut self) -> io::Result<u64> {
        self.file.set_len(self.complete_len)?;
        self.file.seek(SeekFrom::End(0))
    }
}

/// Renames a results file, so that the experiment starts anew.
///
/// # Errors
/// When it can't be renamed.
pub fn rename_old(path: &Path) -> Result<Option<PathBuf>, String> {
    // Never overwrite an earlier renamed file.
    let names = std::iter::once("jsonl.old".to_owned());
    let mut names = names.chain((2..).map(|number| format!("jsonl.old.{number}")));
    let free_path = names.find_map(|name| {
        let candidate = path.with_extension(name);
        (!candidate.exists()).then_some(candidate)
    });
    let free_path = free_path.expect("there is no end of names");
    match std::fs::rename(path, &free_path) {
        Ok(()) => Ok(Some(free_path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}
