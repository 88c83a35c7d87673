//! Detects whether a recently changed file is still being written, so that no incomplete version is read.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use lowroad_engine::file::{OpenFile, digest};
use lowroad_file_stamp::FileStamp;
use lowroad_http::status::StatusCode;
use lowroad_store::clock;

/// A file that was changed within this time is observed before it is read, because it may be in the middle of a
/// rewrite. The time is long because the clock of file timestamps lags behind, on a busy virtual machine by more than a
/// tick.
const RECENT_NS: i64 = 1_000_000_000;
/// In a file that is written continuously, the first and the last bytes up to this length are compared.
const COMPARED_LEN: u64 = 1 << 20;
/// The interval of checks: a file without a change for this time is at rest.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// The maximum number of checks.
const CHECKS_MAX: usize = 10;
/// A file that only grows in this many consecutive checks is being appended to, since a rewrite in place would first
/// truncate it.
const GROWTHS_MIN: usize = 3;

/// Waits until a recently changed file is at rest; a file that is only appended to is returned with its current length.
/// Blocks, unless the file did not change recently.
///
/// # Errors
/// 503 if the file is rewritten continuously: reading it would mix versions.
pub fn wait_until_stable(file: Arc<OpenFile>) -> Result<Arc<OpenFile>, StatusCode> {
    // The common case needs neither waiting nor a system call.
    if file.stamp.is_settled() && !changed_lately(&file.stamp) {
        return Ok(file);
    }
    let Ok(meta) = file.file.metadata() else {
        return Err(StatusCode::INTERNAL_ERROR);
    };
    let mut last_digest = None;
    let is_unchanged = |now: &FileStamp, last: &FileStamp| {
        let before = last_digest.filter(|(len, _)| *len == last.len);
        let after = digest_ends(&file.file, last.len);
        last_digest = digest_ends(&file.file, now.len).map(|digest| (now.len, digest));
        // The first check has no earlier digest to compare with.
        after.is_some() && before.is_none_or(|(_, digest)| Some(digest) == after)
    };
    match wait_for_rest(&file.file, FileStamp::from(&meta), is_unchanged) {
        FileActivity::Settled(stamp) if stamp == file.stamp => Ok(file),
        FileActivity::Settled(stamp) => {
            Ok(Arc::new(OpenFile::with_stamp(file.file.clone(), stamp)))
        }
        FileActivity::Appended(stamp) => {
            Ok(Arc::new(OpenFile::unsettled(file.file.clone(), stamp)))
        }
        FileActivity::Rewritten => Err(StatusCode::SERVICE_UNAVAILABLE),
    }
}

fn digest_ends(file: &File, len: u64) -> Option<[u128; 2]> {
    let start = 0..len.min(COMPARED_LEN);
    let end = len.saturating_sub(COMPARED_LEN)..len;
    Some([digest(file, start).ok()?, digest(file, end).ok()?])
}

/// The same open file with its current stamp.
///
/// # Errors
/// 500 if the system call fails.
pub fn with_current_stamp(old: &OpenFile) -> Result<Arc<OpenFile>, StatusCode> {
    let meta = old
        .file
        .metadata()
        .map_err(|_| StatusCode::INTERNAL_ERROR)?;
    let file = OpenFile::with_stamp(old.file.clone(), FileStamp::from(&meta));
    Ok(Arc::new(file))
}

fn changed_lately(stamp: &FileStamp) -> bool {
    let age_ns = clock::unix_ns() - stamp.modified_ns.max(stamp.changed_ns);
    // A timestamp in the future does not indicate a recent change.
    (0..RECENT_NS).contains(&age_ns)
}

/// The observed activity of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileActivity {
    /// None: the file is at rest, and has this stamp.
    Settled(FileStamp),
    /// The file is written or touched continuously, but the bytes up to the length of this stamp do not change.
    Appended(FileStamp),
    /// The file is rewritten continuously.
    Rewritten,
}

/// Observes a file until it is at rest, or known to be only appended to or touched. `is_unchanged` gets the current and
/// an earlier stamp, and tells whether the bytes up to the earlier length are the same. Blocks.
fn wait_for_rest(
    file: &File,
    first: FileStamp,
    mut is_unchanged: impl FnMut(&FileStamp, &FileStamp) -> bool,
) -> FileActivity {
    let (mut last, mut growths, mut unchanged_count) = (first, 0, 0);
    for _ in 0..CHECKS_MAX {
        std::thread::sleep(CHECK_INTERVAL);
        let Ok(meta) = file.metadata() else {
            return FileActivity::Rewritten;
        };
        let now = FileStamp::from(&meta);
        if now == last {
            return FileActivity::Settled(now);
        }
        // A file that only grows, such as a log, can be sent up to its current length.
        let is_unchanged = last.len > 0 && now.len >= last.len && is_unchanged(&now, &last);
        unchanged_count = if is_unchanged { unchanged_count + 1 } else { 0 };
        growths = if is_unchanged && now.len > last.len {
            growths + 1
        } else {
            0
        };
        last = now;
        if growths == GROWTHS_MIN {
            break;
        }
    }
    match growths == GROWTHS_MIN || unchanged_count == CHECKS_MAX {
        true => FileActivity::Appended(last),
        false => FileActivity::Rewritten,
    }
}
