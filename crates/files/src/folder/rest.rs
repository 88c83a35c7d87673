//! Whether a file that changed lately is at rest: a `write` may be half done, and file times are kept by a clock that
//! lags behind, on a busy virtual machine by more than a tick.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use lowroad_engine::file::{OpenFile, digest};
use lowroad_file_stamp::FileStamp;
use lowroad_http::status::Status;
use lowroad_store::clock;

/// A file that changed within this time is watched for a moment before it is taken: it may be in
/// the middle of being rewritten. File times are kept by a clock that lags behind, on a busy virtual
/// machine by more than a tick; therefore so long.
const RECENT_NS: i64 = 1_000_000_000;
/// Of a file that is written all the time, so much of the start and of the end is compared.
const COMPARED_LEN: u64 = 1 << 20;
/// The time between two looks: unchanged for so long, a file is at rest.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// How many looks a file is given to come to rest.
const LOOKS_MAX: usize = 10;
/// A file that is longer at so many looks in a row is being appended to: rewriting in place shortens it between.
const GROWTHS_MIN: usize = 3;

/// The file as it is when it is at rest, or up to its present length if it is only appended to. Blocks; at once if it did
/// not change lately.
///
/// # Errors
/// 503 if it is rewritten all the time: it can't be had without mixing versions.
pub fn at_rest(file: Arc<OpenFile>) -> Result<Arc<OpenFile>, Status> {
    if file.stamp.is_settled() && !changed_lately(&file.stamp) {
        return Ok(file);
    }
    let Ok(meta) = file.file.metadata() else {
        return Err(Status::INTERNAL_ERROR);
    };
    let mut known = None;
    let is_kept = |now: &FileStamp, last: &FileStamp| {
        let before = known.filter(|(len, _)| *len == last.len);
        let after = compared(&file.file, last.len);
        known = compared(&file.file, now.len).map(|digest| (now.len, digest));
        // At the first look there is nothing to compare with.
        after.is_some() && before.is_none_or(|(_, digest)| Some(digest) == after)
    };
    match wait_for_rest(&file.file, FileStamp::from(&meta), is_kept) {
        Rest::Settled(stamp) if stamp == file.stamp => Ok(file),
        Rest::Settled(stamp) => Ok(Arc::new(OpenFile::with_stamp(file.file.clone(), stamp))),
        Rest::Appended(stamp) => Ok(Arc::new(OpenFile::unsettled(file.file.clone(), stamp))),
        Rest::Rewritten => Err(Status::SERVICE_UNAVAILABLE),
    }
}

fn compared(file: &File, len: u64) -> Option<[u128; 2]> {
    let start = 0..len.min(COMPARED_LEN);
    let end = len.saturating_sub(COMPARED_LEN)..len;
    Some([digest(file, start).ok()?, digest(file, end).ok()?])
}

/// The same open file with the stamp that it has now.
///
/// # Errors
/// 500 if the system does not tell.
pub fn as_it_is(old: &OpenFile) -> Result<Arc<OpenFile>, Status> {
    let meta = old.file.metadata().map_err(|_| Status::INTERNAL_ERROR)?;
    let file = OpenFile::with_stamp(old.file.clone(), FileStamp::from(&meta));
    Ok(Arc::new(file))
}

fn changed_lately(stamp: &FileStamp) -> bool {
    let age_ns = clock::unix_ns() - stamp.modified_ns.max(stamp.changed_ns);
    // A time in the future proves nothing.
    (0..RECENT_NS).contains(&age_ns)
}

/// What a file was seen doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// Nothing: this is its stamp.
    Settled(FileStamp),
    /// It is written or touched all the time, but none of the bytes up to the length of this stamp change.
    Appended(FileStamp),
    /// It is rewritten all the time.
    Rewritten,
}

/// Looks at a file until it is at rest, or seen to be only appended to or touched. `is_kept` says whether the file,
/// which is now as the first stamp says, kept the bytes that it had at the second. Blocks.
fn wait_for_rest(
    file: &File,
    first: FileStamp,
    mut is_kept: impl FnMut(&FileStamp, &FileStamp) -> bool,
) -> Rest {
    let (mut last, mut growths, mut kept) = (first, 0, 0);
    for _ in 0..LOOKS_MAX {
        std::thread::sleep(LOOK_INTERVAL);
        let Ok(meta) = file.metadata() else {
            return Rest::Rewritten;
        };
        let now = FileStamp::from(&meta);
        if now == last {
            return Rest::Settled(now);
        }
        let is_kept = last.len > 0 && now.len >= last.len && is_kept(&now, &last);
        kept = if is_kept { kept + 1 } else { 0 };
        growths = if is_kept && now.len > last.len {
            growths + 1
        } else {
            0
        };
        last = now;
        if growths == GROWTHS_MIN {
            break;
        }
    }
    match growths == GROWTHS_MIN || kept == LOOKS_MAX {
        true => Rest::Appended(last),
        false => Rest::Rewritten,
    }
}
