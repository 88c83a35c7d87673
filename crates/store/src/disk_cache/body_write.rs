//! Writes bodies to disk while they arrive, on helper threads (`work_queue`). If the disk is slow, backpressure slows
//! down the sender of the body.

use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Relaxed, SeqCst},
};
use std::task::{Context, Poll};

use lowroad_disk::ObjectWriter;
use lowroad_engine::stream::{BodyReceiver, BodySender, StreamItem, stream};

use super::key::PrimaryKey;
use super::meta::{ClockReading, StoredMeta};
use super::reader::{DiskReader, ban};
use super::tier::DiskCache;
use super::unfinished_body::UnfinishedBody;
use super::work_queue::{HelperPump, PumpWork, StepProgress};
use crate::object::ObjectArc;
use crate::purge_epoch::PurgeEpoch;
use crate::purge_rules::BanVerdict;
use crate::shared_store::SharedStore;

/// The maximum length of unwritten bytes of one body.
const WAITING_LEN_MAX: usize = 256 << 10;
/// After this many bytes, a helper switches to other jobs.
const QUANTUM_LEN: usize = 4 << 20;

/// An object with a body that is not on disk yet. When the last reference is dropped, the object is removed from
/// memory.
pub struct PendingWrite {
    /// The store in memory that contains the object.
    pub store: Arc<SharedStore>,
    /// The hash of the object's key.
    pub hash: u64,
    /// The primary key of the object.
    pub key: Arc<[u8]>,
    /// The object to write.
    pub object: ObjectArc,
}

impl Drop for PendingWrite {
    fn drop(&mut self) {
        self.store.remove(self.hash, &self.key, &self.object);
    }
}

/// Where a response to be written comes from, and where it goes.
pub struct WriteSource<'s> {
    /// The store in memory.
    pub store: &'s Arc<SharedStore>,
    /// The hash of the response's key in memory.
    pub hash: u64,
    /// The response's primary key on disk.
    pub primary: PrimaryKey,
    /// The purge epoch before the fetch.
    pub purges: PurgeEpoch,
}

/// A body being written.
struct BodyWrite {
    tier: Arc<DiskCache>,
    store: Arc<SharedStore>,
    primary: PrimaryKey,
    response: StoredMeta,
    len: Option<u64>,
    receiver: BodyReceiver,
    cancelled: Arc<AtomicBool>,
    /// Serves readers during the write.
    unfinished: Arc<UnfinishedBody>,
    /// The body is complete and readable.
    is_complete: bool,
    _pending_write: Option<Arc<PendingWrite>>,
    /// `None` until the write begins.
    writer: Option<ObjectWriter>,
}

impl DiskCache {
    /// Begins to write a response, of `len` bytes if known. Returns the sender for its body, and the source for readers
    /// during the write. When the body is complete, the response becomes visible, unless it was purged or deleted in
    /// the meantime, and `pending_write` is released. An ongoing write of an earlier response that is purged or stale
    /// is cancelled. `None` if the response is too long or is already being written, or if there are too many writes.
    pub fn write(
        self: &Arc<Self>,
        source: &WriteSource<'_>,
        response: StoredMeta,
        len: Option<u64>,
        pending_write: Option<Arc<PendingWrite>>,
    ) -> Option<(BodySender, Arc<UnfinishedBody>)> {
        let WriteSource { store, primary, .. } = source;
        // Checked before any part of the body is buffered.
        let is_too_long = len.is_some_and(|len| len > self.body_len_max());
        let cancellation = (!is_too_long).then(|| self.active_writes.begin(primary, &response));
        let Some(cancelled) = cancellation.flatten() else {
            self.refused.fetch_add(1, Relaxed);
            return None;
        };
        // No race: a deletion first increments the count, and then cancels the writes that have begun.
        if store.may_be_deleted(source.hash, source.purges.deletion_count) {
            return None;
        }
        let (sender, receiver) = stream(WAITING_LEN_MAX);
        let unfinished = UnfinishedBody::new(self.late.clone());
        let writing = BodyWrite {
            tier: self.clone(),
            store: (*store).clone(),
            primary: primary.clone(),
            response,
            len,
            receiver,
            cancelled,
            unfinished: unfinished.clone(),
            is_complete: false,
            _pending_write: pending_write,
            writer: None,
        };
        // The body is written on separate threads, so that a slow disk does not delay readers.
        HelperPump::start(writing, self.writers.clone());
        Some((sender, unfinished))
    }
}

impl PumpWork for BodyWrite {
    /// Writes the bytes received so far.
    fn step(&mut self, context: &mut Context<'_>) -> StepProgress {
        let mut written_len = 0;
        // A step is bounded, so that several bodies share the writers.
        while written_len < QUANTUM_LEN {
            match self.receiver.poll_next(context) {
                Poll::Pending => return StepProgress::Pending,
                Poll::Ready(StreamItem::Bytes(bytes)) => {
                    // The disk store counts the failure.
                    let appended = self.writer().map(|writer| writer.append(&bytes));
                    let Some(Ok(())) = appended else {
                        self.tier.delete_older_copy(&self.primary);
                        return StepProgress::Done;
                    };
                    self.expose_written();
                    written_len += bytes.len();
                }
                Poll::Ready(StreamItem::End) => {
                    if !self.commit() {
                        self.tier.delete_older_copy(&self.primary);
                    }
                    return StepProgress::Done;
                }
                Poll::Ready(StreamItem::Cut) => return StepProgress::Done,
            }
        }
        StepProgress::More
    }
}

impl BodyWrite {
    fn writer(&mut self) -> Option<&mut ObjectWriter> {
        if self.writer.is_none() {
            let (tier, now) = (&self.tier, ClockReading::read());
            let StoredMeta {
                generation,
                selecting,
                ..
            } = &self.response;
            let key = DiskReader::new(tier, &self.store).variant_key(
                &self.primary,
                selecting,
                *generation,
            )?;
            let (meta, expires_ms) = (self.response.encode(now), self.response.expires_ms(now));
            let opened = tier.store.begin(&key, &meta, expires_ms, self.len);
            self.writer = opened.ok();
        }
        self.writer.as_mut()
    }

    /// Makes the written bytes readable.
    fn expose_written(&self) {
        if let Some(body) = self.writer.as_ref().and_then(ObjectWriter::written) {
            self.unfinished.set_written(body);
        }
    }

    /// Writes the rest of a complete body. From now on the body is readable, even if the response does not become
    /// visible.
    fn finish(&mut self) -> bool {
        let Some(writer) = self.writer() else {
            return false;
        };
        writer.retain_location();
        // Written before the commit, so that late readers find all bytes on disk.
        if writer.write_rest().is_err() {
            return false;
        }
        self.expose_written();
        self.is_complete = true;
        true
    }

    /// Makes the response visible, unless it was purged or deleted since the fetch began. False if the disk fails: any
    /// copy on disk is then older than the response that clients received.
    fn commit(&mut self) -> bool {
        if !self.finish() {
            return false;
        }
        // Locked until the commit: a deletion waits for the commit and then finds the object.
        let _commit_guard = self.tier.lock_commits();
        let (since, lifetime) = (self.response.generation, &self.response.lifetime);
        let store_purges = self.store.store_purges();
        // Checked again at the end, since the body may have taken a long time.
        let is_wanted = !self.cancelled.load(SeqCst)
            && ban(store_purges, since, &self.primary, Some(lifetime)) == BanVerdict::None;
        match self.writer.take() {
            Some(writer) if is_wanted => writer.commit().is_ok(), // counted there
            // Purged, deleted or cancelled, which is not a failure.
            _ => true,
        }
    }
}

impl Drop for BodyWrite {
    fn drop(&mut self) {
        let is_read = !self.is_complete && self.unfinished.abandon();
        if let Some(writer) = self.writer.as_mut().filter(|_| is_read) {
            writer.retain_location();
        }
    }
}
