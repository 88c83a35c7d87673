//! Detects whether a recently changed file is at rest: a `write` may be incomplete, and the clock of file times lags
//! behind, on a busy virtual machine by more than a tick.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use lowroad_engine::file::{OpenFile, digest};
use lowroad_file_stamp::FileStamp;
use lowroad_http::status::StatusCode;
use lowroad_store::clock;

/// A file changed within this time is observed before it is read, because it may be in the middle of a rewrite. The
/// bound is long because the clock of file times lags behind, on a busy virtual machine by more than a tick.
const RECENT_NS: i64 = 1_000_000_000;
/// The length at the start and at the end that is compared in a file that is written continuously.
const COMPARED_LEN: u64 = 1 << 20;
/// The interval of checks: a file without a change for this time is at rest.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// The maximum number of checks until a file must be at rest.
const CHECKS_MAX: usize = 10;
/// A file that grows in this many consecutive checks is being appended to: a rewrite in place shortens it in between.
const GROWTHS_MIN: usize = 3;

/// The file once it is at rest, or up to its present length if it is only appended to. Blocks, unless the file did not
/// change recently.
///
/// # Errors
/// 503 if it is rewritten continuously: reading it would mix versions.
pub fn wait_until_stable(file: Arc<OpenFile>) -> Result<Arc<OpenFile>, StatusCode> {
    // The common case: no wait and no system call.
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

/// The same open file with its present stamp.
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
    // A time in the future is no evidence of a recent change.
    (0..RECENT_NS).contains(&age_ns)
}

/// The observed activity of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileActivity {
    /// None: the file has this stamp.
    Settled(FileStamp),
    /// Written or touched continuously, but the bytes up to the length of this stamp do not change.
    Appended(FileStamp),
    /// Rewritten continuously.
    Rewritten,
}

/// Observes a file until it is at rest, or only appended to or touched. `is_unchanged` compares the file, which has the
/// first stamp now, with its bytes at the second stamp. Blocks.
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
        // A file that only grows, such as a log, can be sent up to its present length.
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
