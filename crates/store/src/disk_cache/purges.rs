//! Purges of what is on the disk, so that they outlive the process. A purge is a rule, which [`crate::purging`] compares
//! with what is found; here it is kept in a file until a scan has removed what it means. Knows neither objects nor keys.
//!
//! Each purge has a number, its generation, and each object that of the last one before its origin was asked. Numbers only
//! grow: each run has a block of them of its own, since nobody knows how many the one before it gave out and did not
//! write down.
//!
//! Writing waits for the disk, so a thread of its own does it for all who purge at a time. If the file can't be written it is
//! removed, which needs no room: without it all counts as purged after the next start.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{AcqRel, Acquire},
};

use lowroad_cache::pattern::Pattern;

use super::meta::Now;
use crate::lock::lock;
use crate::purging::{Kind, Purge};

const FILE_NAME: &str = "purges";
const FILE_NAME_NEW: &str = "purges.new";
/// What the file begins with; then number of the run, and up to which generation all was removed.
const TITLE: &str = "lowroad-purges-1";
/// Bits of a generation that count the purges of a run. Who purges more often goes on in the next block, and so does the next
/// run.
const RUN_BITS: u32 = 22;
/// Runs are counted from the time at which the first began, in units so short that there were no more of them, ms: nothing
/// starts, stores and ends within two.
const RUN_MS: u64 = 1;

/// The purges of one folder.
pub struct PurgeLog {
    folder: PathBuf,
    rules: Mutex<Rules>,
    /// Where more is written; none: it has to be written anew.
    file: Mutex<Option<File>>,
    /// All that was purged up to this generation is gone.
    scanned: AtomicU64,
    /// What is gone is not written down: all counts as purged after the next start.
    is_lost: AtomicBool,
}

#[derive(Debug, PartialEq, Eq)]
struct Rules {
    /// The block of which this run gives out numbers.
    run: u64,
    /// Those that are not over, as they come.
    kept: Vec<Rule>,
    /// So many of them are in the file.
    written: usize,
}

/// A purge that may not be over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its number.
    pub generation: u64,
    what: What,
    /// When a soft one came, ms since 1970.
    soft_at_unix_ms: Option<u64>,
}

/// What it takes, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Urls(Pattern),
    Tag(Vec<u8>),
    Group(Vec<u8>, Vec<u8>),
}

impl PurgeLog {
    /// Those of a folder; blocks on the disk.
    ///
    /// # Errors
    /// When the folder can't be read or written.
    pub fn open(folder: &Path, now: Now) -> io::Result<PurgeLog> {
        let known = match fs::read(folder.join(FILE_NAME)) {
            Ok(bytes) => parse(&bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        // Without it nobody knows what was purged: so all was.
        let (run, scanned, mut kept) = known.unwrap_or_else(|| {
            let run = now.unix_ms / RUN_MS;
            (run, 0, vec![Rule::of_all(run << RUN_BITS)])
        });
        kept.sort_by_key(|rule| rule.generation);
        let last = kept.last().map_or(0, |rule| rule.generation).max(scanned);
        let run = run.max(last >> RUN_BITS);
        let log = PurgeLog {
            folder: folder.into(),
            rules: Mutex::new(Rules {
                run: run + 1,
                kept,
                written: 0,
            }),
            file: Mutex::new(None),
            scanned: AtomicU64::new(scanned),
            is_lost: AtomicBool::new(false),
        };
        log.rewrite(&mut lock(&log.file))?;
        Ok(log)
    }

    /// Those that are not over, in their order.
    pub fn rules(&self) -> Vec<Rule> {
        lock(&self.rules).kept.clone()
    }

    /// No purge of an earlier run had this generation or a greater one.
    pub fn first_generation(&self) -> u64 {
        lock(&self.rules).run << RUN_BITS
    }

    /// Up to which generation all was removed that was purged.
    pub fn scanned(&self) -> u64 {
        self.scanned.load(Acquire)
    }

    /// A purge has begun, and is to be written. Does not block on the disk.
    pub fn note(&self, generation: u64, purge: &Purge<'_>, kind: Kind) {
        let rule = Rule::of(generation, purge, kind, Now::read());
        lock(&self.rules).kept.push(rule);
    }

    /// Writes down all purges that have begun. Blocks on the disk.
    ///
    /// # Errors
    /// After the next start what was purged may be there again.
    pub fn save(&self) -> io::Result<()> {
        let mut file = lock(&self.file);
        if self.is_lost.load(Acquire) {
            return self.give_up();
        }
        let Some(open) = file.as_mut() else {
            return self.rewrite(&mut file).or_else(|_| self.give_up());
        };
        let text = lock(&self.rules).new_text();
        if text.is_empty() {
            return Ok(());
        }
        let written = open.write_all(text.as_bytes());
        written.and_then(|()| open.sync_data()).or_else(|_| {
            *file = None;
            self.give_up()
        })
    }

    /// All that was purged up to this generation is removed for good. Blocks on the disk.
    ///
    /// # Errors
    /// When it can't be written down: that is done again after a restart.
    pub fn end(&self, scanned: u64) -> io::Result<()> {
        self.scanned.fetch_max(scanned, AcqRel);
        let mut file = lock(&self.file);
        lock(&self.rules).end(scanned);
        match self.is_lost.load(Acquire) {
            true => Ok(()),
            false => self.rewrite(&mut file),
        }
    }

    /// Something else than by a purge is gone that could not be written down: has all count as purged after the next start,
    /// whatever this process writes later. Blocks on the disk.
    ///
    /// # Errors
    /// After the next start it may be there again.
    pub fn lose(&self) -> io::Result<()> {
        let _file = lock(&self.file);
        match self.is_lost.swap(true, AcqRel) {
            true => Ok(()),
            false => self.give_up(),
        }
    }

    /// Writes all anew. The new file counts once its name is on the disk: until then nothing is written to it.
    fn rewrite(&self, open: &mut Option<File>) -> io::Result<()> {
        *open = None;
        let new = self.folder.join(FILE_NAME_NEW);
        let mut file = File::create(&new)?;
        let text = {
            let mut rules = lock(&self.rules);
            rules.written = 0;
            let (text, scanned) = (rules.new_text(), self.scanned());
            format!("{TITLE} {} {scanned}\n{text}", rules.run)
        };
        file.write_all(text.as_bytes())?;
        file.sync_data()?;
        fs::rename(new, self.folder.join(FILE_NAME))?;
        self.sync_folder()?;
        *open = Some(file);
        Ok(())
    }

    fn give_up(&self) -> io::Result<()> {
        give_up(&self.folder)
    }

    fn sync_folder(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }
}

/// Has all in a folder count as purged after the next start, since purges can't be written there.
///
/// # Errors
/// After the next start what was purged may be there again.
pub fn give_up(folder: &Path) -> io::Result<()> {
    match fs::remove_file(folder.join(FILE_NAME)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => File::open(folder)?.sync_all(),
    }
}

impl Rules {
    /// What is not in the file, which is going to be there.
    fn new_text(&mut self) -> String {
        let mut text = String::new();
        for rule in &self.kept[self.written..] {
            let _ = writeln!(text, "{}", rule.line()); // into memory
        }
        self.written = self.kept.len();
        text
    }

    fn end(&mut self, scanned: u64) {
        self.kept.retain(|rule| rule.generation > scanned);
        self.written = 0;
        self.run = self.run.max(scanned >> RUN_BITS);
    }
}

fn parse(bytes: &[u8]) -> Option<(u64, u64, Vec<Rule>)> {
    let text = str::from_utf8(bytes).ok()?;
    // A last line that was cut was confirmed to nobody.
    let mut lines = text
        .split_inclusive('\n')
        .filter_map(|line| line.strip_suffix('\n'));
    let mut title = lines.next()?.split(' ');
    if title.next()? != TITLE {
        return None;
    }
    let run = title.next()?.parse().ok()?;
    let scanned = title.next()?.parse().ok()?;
    let rules: Option<Vec<Rule>> = lines.map(Rule::parse).collect();
    Some((run, scanned, rules?))
}

impl Rule {
    fn of(generation: u64, purge: &Purge<'_>, kind: Kind, now: Now) -> Rule {
        Rule {
            generation,
            what: match purge {
                Purge::Urls(pattern) => What::Urls((*pattern).clone()),
                Purge::Tag(name) => What::Tag(name.to_vec()),
                Purge::Group(authority, name) => What::Group(authority.to_vec(), name.to_vec()),
            },
            soft_at_unix_ms: match kind {
                Kind::Hard => None,
                Kind::Soft { at_ms } => Some(now.unix_of(at_ms)),
            },
        }
    }

    fn of_all(generation: u64) -> Rule {
        Rule {
            generation,
            what: What::Urls(Pattern::All),
            soft_at_unix_ms: None,
        }
    }

    /// What is purged.
    pub fn purge(&self) -> Purge<'_> {
        match &self.what {
            What::Urls(pattern) => Purge::Urls(pattern),
            What::Tag(name) => Purge::Tag(name),
            What::Group(authority, name) => Purge::Group(authority, name),
        }
    }

    /// How.
    pub fn kind(&self, now: Now) -> Kind {
        match self.soft_at_unix_ms {
            None => Kind::Hard,
            Some(unix_ms) => Kind::Soft {
                at_ms: now.monotonic_of(unix_ms),
            },
        }
    }

    fn line(&self) -> String {
        let how = match self.soft_at_unix_ms {
            None => "hard".into(),
            Some(unix_ms) => format!("soft:{unix_ms}"),
        };
        let what = match &self.what {
            What::Urls(pattern) => format!("urls {pattern}"),
            What::Tag(name) => format!("tag {}", escaped(name)),
            What::Group(authority, name) => {
                format!("group {} {}", escaped(authority), escaped(name))
            }
        };
        format!("{} {how} {what}", self.generation)
    }

    fn parse(line: &str) -> Option<Rule> {
        let mut words = line.splitn(4, ' ');
        let generation = words.next()?.parse().ok()?;
        let soft_at_unix_ms = match words.next()? {
            "hard" => None,
            soft => Some(soft.strip_prefix("soft:")?.parse().ok()?),
        };
        let (kind, text) = (words.next()?, words.next()?);
        let what = match kind {
            "urls" => What::Urls(Pattern::parse(text).ok()?),
            "tag" => What::Tag(plain(text)?),
            "group" => {
                let (authority, name) = text.split_once(' ')?;
                What::Group(plain(authority)?, plain(name)?)
            }
            _ => return None,
        };
        Some(Rule {
            generation,
            what,
            soft_at_unix_ms,
        })
    }
}

/// Without spaces and line ends.
fn escaped(bytes: &[u8]) -> String {
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

fn plain(text: &str) -> Option<Vec<u8>> {
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
