//! Results on disk: one line of JSON for each measurement, appended as it is made.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::bench::MeasurementResult;
use super::machine::MachineInfo;
use super::schema::AxisValue;
use crate::peers::PeerFailure;

/// What a measurement is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeasurementRole {
    /// A point of the figure.
    #[default]
    Point,
    /// The capacity that a sweep is relative to.
    Reference,
}

/// Why there is no figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MissingReason {
    /// A level of Lowroad that does not exist yet.
    Absent,
    /// Not installed here.
    NotInstalled,
    /// No such peer.
    Unknown,
    /// It did not start, or could not be measured.
    Broken,
}

/// Figures, or why there are none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PointResult {
    /// Figures.
    Measured(Box<MeasurementResult>),
    /// None.
    Failed {
        /// The kind of reason.
        why: MissingReason,
        /// The reason.
        text: String,
    },
}

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultRecord {
    /// The experiment's name.
    pub experiment: String,
    /// What it was measured with; see `Experiment::fingerprint`.
    pub fingerprint: String,
    /// What for.
    #[serde(default)]
    pub role: MeasurementRole,
    /// The server's name in the experiment.
    pub server: String,
    /// The point.
    pub x: AxisValue,
    /// Counted from 0.
    pub repeat: u32,
    /// What was found.
    pub found: PointResult,
    /// The server's version.
    #[serde(default)]
    pub version: String,
    /// The server's configuration.
    #[serde(default)]
    pub configuration: String,
    /// When, in seconds since 1970.
    pub unix_s: u64,
    /// Where.
    pub machine: MachineInfo,
    /// The figures are computed, not measured: a rehearsal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pretended: bool,
}

/// What makes a measurement the same as another.
pub type ResultKey = (MeasurementRole, String, String, u32);

impl ResultRecord {
    /// Its key.
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
        let (why, text) = match failure {
            PeerFailure::Absent(text) => (MissingReason::Absent, text),
            PeerFailure::NotInstalled(text) => (MissingReason::NotInstalled, text),
            PeerFailure::Unknown(text) => (MissingReason::Unknown, text),
            PeerFailure::Broken(text) => (MissingReason::Broken, text),
        };
        PointResult::Failed { why, text }
    }
}

/// What a file holds.
#[derive(Debug, Default)]
pub struct StoredResults {
    /// The newest record of each key, in order of key.
    pub records: BTreeMap<ResultKey, ResultRecord>,
    /// Bytes up to the end of the last whole line.
    pub whole_len: u64,
    /// What was odd, for the user.
    pub notes: Vec<String>,
}

/// The file of an experiment.
#[must_use]
pub fn path(folder: &Path, experiment: &str) -> PathBuf {
    folder.join(format!("{experiment}.jsonl"))
}

/// Reads a file of results; one that is not there is empty. A last line without its end was being
/// written when the lab was stopped: it is left out, with a note.
///
/// # Errors
/// When it can't be read, or a line within it is no record.
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

/// Reads the text of a file of results.
///
/// # Errors
/// When a whole line is no record.
pub fn parse(text: &[u8]) -> Result<StoredResults, String> {
    let mut stored = StoredResults::default();
    for (index, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        if line.last() != Some(&b'\n') {
            let note = format!("line {} is only half there and is left out", index + 1);
            stored.notes.push(note);
            break;
        }
        let record: ResultRecord = serde_json::from_slice(line).map_err(|error| {
            format!(
                "line {}: no result of this version ({error}); move the file away or use --fresh",
                index + 1
            )
        })?;
        stored.whole_len += line.len() as u64;
        stored.records.insert(record.key(), record);
    }
    Ok(stored)
}

/// Appends results.
pub struct ResultWriter {
    file: File,
    path: PathBuf,
    whole_len: u64,
}

impl ResultWriter {
    /// Opens a file after its `whole_len` bytes; what stands behind them is cut off.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn open(path: &Path, whole_len: u64) -> Result<Self, String> {
        Self::try_open(path, whole_len).map_err(|error| {
            format!(
                "{}: {error}; choose another folder with --results",
                path.display()
            )
        })
    }

    fn try_open(path: &Path, whole_len: u64) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)?;
        // Two runs of an experiment would write over each other's lines.
        let lock = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        rustix::fs::flock(&file, lock)
            .map_err(|_| io::Error::other("another run is writing there"))?;
        let mut writer = Self {
            file,
            path: path.to_owned(),
            whole_len,
        };
        writer.cut()?;
        Ok(writer)
    }

    /// Appends a record: whole, or not at all.
    ///
    /// # Errors
    /// When the disk is full, say.
    pub fn append(&mut self, record: &ResultRecord) -> Result<(), String> {
        let mut line = serde_json::to_vec(record).expect("plain data");
        line.push(b'\n');
        let appended = self.file.write_all(&line);
        match appended {
            Ok(()) => self.whole_len += line.len() as u64,
            // A part of the line may be there; what is appended next must not follow it.
            Err(_) => drop(self.cut()),
        }
        appended.map_err(|error| format!("{}: {error}", self.path.display()))
    }

    fn cut(&mut self) -> io::Result<u64> {
        self.file.set_len(self.whole_len)?;
        self.file.seek(SeekFrom::End(0))
    }
}

/// Puts an old file aside, so that an experiment begins anew.
///
/// # Errors
/// When it can't be renamed.
pub fn put_aside(path: &Path) -> Result<Option<PathBuf>, String> {
    // Never over one that was put aside before.
    let names = std::iter::once("jsonl.old".to_owned());
    let mut names = names.chain((2..).map(|number| format!("jsonl.old.{number}")));
    let aside = names.find_map(|name| {
        let aside = path.with_extension(name);
        (!aside.exists()).then_some(aside)
    });
    let aside = aside.expect("there is no end of names");
    match std::fs::rename(path, &aside) {
        Ok(()) => Ok(Some(aside)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}
