//! The purge log: a file with the purge rules, so that they survive a restart, until a scan has removed the purged
//! objects. `purge_rules` compares the rules with objects.
//!
//! Each purge has a number, its generation; each object has the generation of the last purge before its fetch.
//! Generations only increase. Each run of the server takes them from a new block, because the previous run may have
//! used some without writing them.
//!
//! Writes wait for the disk, so one thread does them, each for all pending purges. If the file can't be written, it is
//! removed, which needs no space: without the file, everything counts as purged after the next start.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{AcqRel, Acquire},
};

use lowroad_cache::pattern::RequestPattern;
use lowroad_disk::FolderLease;

use super::meta::ClockReading;
use crate::lock::lock;
use crate::purge_rules::{PurgeMode, PurgeRequest};

const FILE_NAME: &str = "purges";
const FILE_NAME_NEW: &str = "purges.new";
/// The first word of the file. The number of the run and the scanned generation follow in the first line.
const TITLE: &str = "lowroad-purges-1";
/// The low bits of a generation, which count the purges of a run; the others are the block. A run with more purges
/// continues in the next block, and the next run starts after that block.
const RUN_BITS: u32 = 22;
/// The number of the first run is its start time in units of this many ms. The unit is shorter than any run, so that
/// run numbers never get ahead of the clock.
const RUN_MS: u64 = 1;

/// The purge log of one folder.
pub struct PurgeLog {
    folder: PathBuf,
    /// The right to change the file.
    lease: FolderLease,
    rules: Mutex<PendingPurges>,
    /// The open file; `None` if it must be rewritten.
    file: Mutex<Option<File>>,
    /// All objects of purges up to this generation are removed.
    scanned: AtomicU64,
    /// A deletion could not be written: everything counts as purged after the next start.
    has_lost_deletion: AtomicBool,
}

#[derive(Debug, PartialEq, Eq)]
struct PendingPurges {
    /// The block from which this run takes its generations.
    run: u64,
    /// The purges with objects that are perhaps not all removed yet, in order.
    unfinished: Vec<PurgeRule>,
    /// How many of `unfinished` are in the file.
    written_count: usize,
}

/// A purge with objects that are perhaps not all removed yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeRule {
    /// The generation of the purge.
    pub generation: u64,
    scope: PurgeScope,
    /// The time of a soft purge, ms since 1970.
    soft_at_unix_ms: Option<u64>,
}

/// The target of a purge, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PurgeScope {
    Urls(RequestPattern),
    Tag(Vec<u8>),
    Group(Vec<u8>, Vec<u8>),
}

impl PurgeLog {
    /// Opens the log of a folder. Blocks on the disk.
    ///
    /// # Errors
    /// The folder can't be read or written.
    pub fn open(folder: &Path, lease: FolderLease, now: ClockReading) -> io::Result<PurgeLog> {
        let loaded = match fs::read(folder.join(FILE_NAME)) {
            Ok(bytes) => parse(&bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        // Without the file, earlier purges are unknown, so everything counts as purged.
        let (run, scanned, mut unfinished) = loaded.unwrap_or_else(|| {
            let run = now.unix_ms / RUN_MS;
            (run, 0, vec![PurgeRule::purge_all(run << RUN_BITS)])
        });
        unfinished.sort_by_key(|rule| rule.generation);
        // If the wall clock was set back, this run still gets a block after the known generations.
        let last = unfinished
            .last()
            .map_or(0, |rule| rule.generation)
            .max(scanned);
        let run = run.max(last >> RUN_BITS);
        let log = PurgeLog {
            folder: folder.into(),
            lease,
            rules: Mutex::new(PendingPurges {
                run: run + 1,
                unfinished,
                written_count: 0,
            }),
            file: Mutex::new(None),
            scanned: AtomicU64::new(scanned),
            has_lost_deletion: AtomicBool::new(false),
        };
        log.rewrite(&mut lock(&log.file))?;
        Ok(log)
    }

    /// The unfinished purges, in order.
    pub fn rules(&self) -> Vec<PurgeRule> {
        lock(&self.rules).unfinished.clone()
    }

    /// The first generation of this run, which is greater than all of earlier runs.
    pub fn first_generation(&self) -> u64 {
        lock(&self.rules).run << RUN_BITS
    }

    /// The generation up to which all objects of purges are removed.
    pub fn scanned(&self) -> u64 {
        self.scanned.load(Acquire)
    }

    /// Adds a purge, to be written by [`PurgeLog::save`]. Does not block on the disk.
    pub fn record_purge(&self, generation: u64, purge: &PurgeRequest<'_>, kind: PurgeMode) {
        let rule = PurgeRule::new(generation, purge, kind, ClockReading::read());
        lock(&self.rules).unfinished.push(rule);
    }

    /// Writes all added purges. Blocks on the disk.
    ///
    /// # Errors
    /// The purges are not durable: after the next start, purged objects may be used again.
    pub fn save(&self) -> io::Result<()> {
        // The file is locked before the lease, as in the other calls, because `release` waits for the lease.
        let mut file = lock(&self.file);
        self.lease.change(|| self.save_with_lease(&mut file))
    }

    fn save_with_lease(&self, file: &mut Option<File>) -> io::Result<()> {
        // After a lost deletion, the file stays removed: after the next start, everything counts as purged, including
        // the objects of these purges.
        if self.has_lost_deletion.load(Acquire) {
            return self.invalidate_all();
        }
        let Some(open) = file.as_mut() else {
            return self.rewrite(file).or_else(|_| self.invalidate_all());
        };
        let text = lock(&self.rules).new_text();
        if text.is_empty() {
            return Ok(());
        }
        // New rules are appended; the whole file is rewritten only when purges are finished.
        let written = open.write_all(text.as_bytes());
        written.and_then(|()| open.sync_data()).or_else(|_| {
            // The file may end in a partial line, so the next save rewrites it.
            *file = None;
            self.invalidate_all()
        })
    }

    /// Drops the purges up to this generation, since their objects are durably removed. Blocks on the disk.
    ///
    /// # Errors
    /// The log can't be written: the scan will be repeated after a restart.
    pub fn drop_finished(&self, scanned: u64) -> io::Result<()> {
        self.scanned.fetch_max(scanned, AcqRel);
        let mut file = lock(&self.file);
        lock(&self.rules).end(scanned);
        match self.has_lost_deletion.load(Acquire) {
            true => Ok(()),
            false => self.lease.change(|| self.rewrite(&mut file)),
        }
    }

    /// Records that a deletion other than a purge could not be written: everything counts as purged after the next
    /// start, whatever this process writes later. Blocks on the disk.
    ///
    /// # Errors
    /// After the next start, the deleted object may be used again.
    pub fn record_lost_deletion(&self) -> io::Result<()> {
        let _file = lock(&self.file);
        match self.has_lost_deletion.swap(true, AcqRel) {
            true => Ok(()),
            false => self.lease.change(|| self.invalidate_all()),
        }
    }

    /// Rewrites the file. `open` is set only once the new file's name is durable, so that no purge is appended before.
    fn rewrite(&self, open: &mut Option<File>) -> io::Result<()> {
        *open = None;
        let new_path = self.folder.join(FILE_NAME_NEW);
        let mut file = File::create(&new_path)?;
        let text = {
            let mut rules = lock(&self.rules);
            rules.written_count = 0;
            let (text, scanned) = (rules.new_text(), self.scanned());
            format!("{TITLE} {} {scanned}\n{text}", rules.run)
        };
        file.write_all(text.as_bytes())?;
        // Synced before the rename, so that a crash can't leave a truncated file under the final name.
        file.sync_data()?;
        fs::rename(new_path, self.folder.join(FILE_NAME))?;
        // The rename is durable only when the folder is synced.
        self.sync_folder()?;
        *open = Some(file);
        Ok(())
    }

    fn invalidate_all(&self) -> io::Result<()> {
        invalidate_folder(&self.folder)
    }

    fn sync_folder(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }
}

/// Makes everything in a folder count as purged after the next start, because purges can't be written there.
///
/// # Errors
/// After the next start, purged objects may be used again.
pub fn invalidate_folder(folder: &Path) -> io::Result<()> {
    match fs::remove_file(folder.join(FILE_NAME)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => File::open(folder)?.sync_all(),
    }
}

impl PendingPurges {
    /// The lines of the purges that are not in the file yet; marks them as written.
    fn new_text(&mut self) -> String {
        let mut text = String::new();
        for rule in &self.unfinished[self.written_count..] {
            let _ = writeln!(text, "{}", rule.line()); // into memory
        }
        self.written_count = self.unfinished.len();
        text
    }

    fn end(&mut self, scanned: u64) {
        // The scan has removed all objects of the purges up to `scanned`.
        self.unfinished.retain(|rule| rule.generation > scanned);
        self.written_count = 0;
        self.run = self.run.max(scanned >> RUN_BITS);
    }
}

fn parse(bytes: &[u8]) -> Option<(u64, u64, Vec<PurgeRule>)> {
    let text = str::from_utf8(bytes).ok()?;
    // The purge in a truncated last line was never confirmed.
    let mut lines = text
        .split_inclusive('\n')
        .filter_map(|line| line.strip_suffix('\n'));
    let mut title = lines.next()?.split(' ');
    if title.next()? != TITLE {
        return None;
    }
    let run = title.next()?.parse().ok()?;
    let scanned = title.next()?.parse().ok()?;
    let rules: Option<Vec<PurgeRule>> = lines.map(PurgeRule::parse).collect();
    Some((run, scanned, rules?))
}

impl PurgeRule {
    fn new(
        generation: u64,
        purge: &PurgeRequest<'_>,
        kind: PurgeMode,
        now: ClockReading,
    ) -> PurgeRule {
        PurgeRule {
            generation,
            scope: match purge {
                PurgeRequest::Urls(pattern) => PurgeScope::Urls((*pattern).clone()),
                PurgeRequest::Tag(name) => PurgeScope::Tag(name.to_vec()),
                PurgeRequest::Group(authority, name) => {
                    PurgeScope::Group(authority.to_vec(), name.to_vec())
                }
            },
            soft_at_unix_ms: match kind {
                PurgeMode::Hard => None,
                PurgeMode::Soft { at_ms } => Some(now.unix_of(at_ms)),
            },
        }
    }

    fn purge_all(generation: u64) -> PurgeRule {
        PurgeRule {
            generation,
            scope: PurgeScope::Urls(RequestPattern::All),
            soft_at_unix_ms: None,
        }
    }

    /// The target of the purge.
    pub fn purge(&self) -> PurgeRequest<'_> {
        match &self.scope {
            PurgeScope::Urls(pattern) => PurgeRequest::Urls(pattern),
            PurgeScope::Tag(name) => PurgeRequest::Tag(name),
            PurgeScope::Group(authority, name) => PurgeRequest::Group(authority, name),
        }
    }

    /// The kind of the purge.
    pub fn kind(&self, now: ClockReading) -> PurgeMode {
        match self.soft_at_unix_ms {
            None => PurgeMode::Hard,
            Some(unix_ms) => PurgeMode::Soft {
                at_ms: now.monotonic_of(unix_ms),
            },
        }
    }

    fn line(&self) -> String {
        let how = match self.soft_at_unix_ms {
            None => "hard".into(),
            Some(unix_ms) => format!("soft:{unix_ms}"),
        };
        let what = match &self.scope {
            PurgeScope::Urls(pattern) => format!("urls {pattern}"),
            PurgeScope::Tag(name) => format!("tag {}", escape(name)),
            PurgeScope::Group(authority, name) => {
                format!("group {} {}", escape(authority), escape(name))
            }
        };
        format!("{} {how} {what}", self.generation)
    }

    fn parse(line: &str) -> Option<PurgeRule> {
        let mut words = line.splitn(4, ' ');
        let generation = words.next()?.parse().ok()?;
        let soft_at_unix_ms = match words.next()? {
            "hard" => None,
            soft => Some(soft.strip_prefix("soft:")?.parse().ok()?),
        };
        let (kind, text) = (words.next()?, words.next()?);
        let scope = match kind {
            "urls" => PurgeScope::Urls(RequestPattern::parse(text).ok()?),
            "tag" => PurgeScope::Tag(unescape(text)?),
            "group" => {
                let (authority, name) = text.split_once(' ')?;
                PurgeScope::Group(unescape(authority)?, unescape(name)?)
            }
            _ => return None,
        };
        Some(PurgeRule {
            generation,
            scope,
            soft_at_unix_ms,
        })
    }
}

/// Escapes spaces and line feeds.
fn escape(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        let _ = match byte {
            b'%' => write!(text, "%25"), // into memory
            _ if byte.is_ascii_graphic() => write!(text, "{}", char::from(*byte)),
            _ => write!(text, "%{byte:02X}"),
        };
    }
    text
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (hex, after) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(str::from_utf8(hex).ok()?, 16).ok()?);
        rest = after;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
