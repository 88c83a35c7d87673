//! Writes an object: its body is appended while it arrives, and the commit makes the object visible.
//!
//! The head is written last, because it contains the length and the checksum of the body. Up to [`BUFFER_LEN`] bytes
//! are buffered, so that a short object needs only one write. For a longer object of known length, space is reserved
//! when the buffer is full. An object of unknown length then gets its own segment; if it turns out to be short, the
//! commit copies it into a shared segment.

use std::io;
use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

use crate::counters::count;
use crate::files::{DiskFolder, SegmentFiles};
use crate::index::IndexEntry;
use crate::record::{self, BODY_LEN_MAX, HEAD_LEN_MAX, PAGED_FROM, RecordHead};
use crate::segments::RecordLocation;
use crate::store::{DiskContext, DiskStore, StoredBody, lock, set_entry_location};

/// The length of the buffer. At least [`PAGED_FROM`], so that a body that exceeds the buffer is known to be
/// page-aligned.
const BUFFER_LEN: usize = 256 * 1024;
const _: () = assert!(BUFFER_LEN as u64 >= PAGED_FROM);

/// The reason why an object is not stored.
#[derive(Debug)]
pub enum WriteError {
    /// The key and metadata, or the body, are too long.
    TooLong,
    /// The body has another length than announced.
    Length,
    /// The disk fails, or there is no room.
    Disk(io::Error),
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> WriteError {
        WriteError::Disk(error)
    }
}

impl std::fmt::Display for WriteError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WriteError::TooLong => f.write_str("the object is too long for the store"),
            WriteError::Length => {
                f.write_str("the length of the body differs from the announced length")
            }
            WriteError::Disk(error) => write!(f, "the object can't be written: {error}"),
        }
    }
}

impl std::error::Error for WriteError {}

/// An object being written. Dropping it abandons the object.
pub struct ObjectWriter<F: SegmentFiles = DiskFolder> {
    store: Arc<DiskContext<F>>,
    key: Box<[u8]>,
    meta: Box<[u8]>,
    expires_ms: u64,
    /// The announced length of the body.
    len: Option<u64>,
    /// The received bytes of the body.
    received_len: u64,
    sum: Xxh3,
    /// The received bytes that are not written yet.
    buffer: Vec<u8>,
    location: Option<RecordLocation<F::File>>,
    is_failed: bool,
    is_committed: bool,
    /// See `ObjectWriter::retain_location`.
    is_location_retained: bool,
}

impl<F: SegmentFiles> DiskStore<F> {
    /// Begins to write an object with a body of `len` bytes, if known, which expires at `expires_ms` (since 1970). The
    /// object becomes visible at the commit, and then replaces the object of the same key. Does not block.
    ///
    /// # Errors
    /// The object is too long.
    pub fn begin(
        &self,
        key: &[u8],
        meta: &[u8],
        expires_ms: u64,
        len: Option<u64>,
    ) -> Result<ObjectWriter<F>, WriteError> {
        if key.len() + meta.len() > HEAD_LEN_MAX || len.is_some_and(|len| len > self.len_max()) {
            return Err(WriteError::TooLong);
        }
        Ok(ObjectWriter {
            store: Arc::clone(&self.0),
            key: key.into(),
            meta: meta.into(),
            expires_ms,
            len,
            received_len: 0,
            sum: Xxh3::new(),
            buffer: Vec::new(),
            location: None,
            is_failed: false,
            is_committed: false,
            is_location_retained: false,
        })
    }

    fn len_max(&self) -> u64 {
        self.0.options().body_len_max().min(BODY_LEN_MAX)
    }
}

impl<F: SegmentFiles> ObjectWriter<F> {
    /// Appends bytes to the body. Blocks on the disk when the buffer is full.
    ///
    /// # Errors
    /// The body is too long, or the disk fails. The object can then not be committed.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let received_len = self.received_len + bytes.len() as u64;
        if self.is_failed || self.len.is_some_and(|len| received_len > len) {
            return Err(self.fail(WriteError::Length));
        }
        // The length may not have been announced, or a resize has lowered the limit.
        if received_len > self.store.options().body_len_max().min(BODY_LEN_MAX) {
            return Err(self.fail(WriteError::TooLong));
        }
        self.received_len = received_len;
        self.sum.update(bytes);
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() < BUFFER_LEN {
            return Ok(());
        }
        self.flush().map_err(|error| self.fail(error.into()))
    }

    /// The written part of the body, if there is one. It is readable as long as the writer exists, and longer after
    /// [`ObjectWriter::retain_location`].
    pub fn written(&self) -> Option<StoredBody<F::File>> {
        let location = self.location.as_ref()?;
        Some(StoredBody {
            file: location.file.clone(),
            offset: self.body_at(location),
            len: self.received_len - self.buffer.len() as u64,
        })
    }

    /// Writes all received bytes, unless nothing was written yet: then the commit writes head and body together.
    ///
    /// # Errors
    /// The disk fails. The object can then not be committed.
    pub fn write_rest(&mut self) -> Result<(), WriteError> {
        if self.location.is_none() || self.buffer.is_empty() {
            return Ok(());
        }
        self.flush().map_err(|error| self.fail(error.into()))
    }

    /// Retains the written bytes for readers: they are not overwritten, even if the object is abandoned.
    pub fn retain_location(&mut self) {
        self.is_location_retained = true;
    }

    /// Makes the object visible. Blocks on the disk.
    ///
    /// # Errors
    /// The body is shorter than announced, an append failed, or the disk fails. The existing object of the key is then
    /// not replaced.
    pub fn commit(mut self) -> Result<(), WriteError> {
        if self.is_failed || self.len.is_some_and(|len| len != self.received_len) {
            return Err(WriteError::Length);
        }
        let entry = self.finish()?;
        self.store.commit_entry(entry, None)?;
        // Tells `drop` not to release the space as unused.
        self.is_committed = true;
        count(&self.store.tallies.stored);
        Ok(())
    }

    /// Prevents a commit.
    fn fail(&mut self, error: WriteError) -> WriteError {
        self.is_failed = true;
        error
    }

    fn head_len(&self) -> u64 {
        record::head_len(&self.key, &self.meta) as u64
    }

    /// Writes the buffer.
    fn flush(&mut self) -> io::Result<()> {
        let head_len = self.head_len();
        let location = match (self.location.take(), self.len) {
            (Some(location), _) => location,
            (None, Some(len)) => self.store.reserve(head_len, len)?,
            // The length is unknown, and only a sole segment can grow.
            (None, None) => self.store.reserve_sole(head_len, self.received_len)?,
        };
        let body_at = self.body_at(&location);
        let location = self.location.insert(location);
        if self.len.is_none() {
            location.end = self
                .store
                .extend_sole(location, head_len, self.received_len)?;
        }
        let written = self.received_len - self.buffer.len() as u64;
        self.store
            .write(location, &self.buffer, body_at + written)?;
        self.buffer.clear();
        Ok(())
    }

    /// The offset of a body that exceeded the buffer.
    fn body_at(&self, location: &RecordLocation<F::File>) -> u64 {
        // Even if the length is unknown, the body is longer than PAGED_FROM, so the offset is the same.
        let len = self.len.unwrap_or(self.received_len);
        record::body_offset(location.offset, self.head_len(), len)
    }

    /// Writes the rest of the body, and then the head.
    fn finish(&mut self) -> Result<IndexEntry, WriteError> {
        let head_len = u32::try_from(self.head_len()).map_err(|_| WriteError::TooLong)?;
        let hash = self.store.hash(&self.key);
        let mut entry =
            IndexEntry::new(hash, head_len, self.received_len).ok_or(WriteError::TooLong)?;
        entry.expires_s = u32::try_from(self.expires_ms.div_ceil(1000)).unwrap_or(u32::MAX);
        // If the whole body is in the buffer, head and body need only one write.
        if self.location.is_none() {
            let location = self.store.reserve(head_len.into(), self.received_len)?;
            set_entry_location(&mut entry, self.location.insert(location))?;
            return self.write_at_once(entry);
        }
        if !self.buffer.is_empty() {
            self.flush()?;
        }
        if self.len.is_none() && !self.store.is_sole(self.received_len) {
            self.move_to_shared(&mut entry)?;
        }
        let Some(location) = &self.location else {
            return Err(WriteError::Length); // unreachable: the location was set above
        };
        set_entry_location(&mut entry, location)?;
        let mut bytes = Vec::new();
        // The head is written last, since a record without a valid head is never read.
        self.encode_head(location, &mut bytes);
        self.store.write(location, &bytes, location.offset)?;
        Ok(entry)
    }

    fn write_at_once(&self, entry: IndexEntry) -> Result<IndexEntry, WriteError> {
        let Some(location) = &self.location else {
            return Err(WriteError::Length); // unreachable: the caller has set the location
        };
        let mut bytes = Vec::with_capacity(self.buffer.len() + 8192);
        self.encode_head(location, &mut bytes);
        let body_at = usize::try_from(entry.body_offset() - entry.offset()).unwrap_or(bytes.len());
        // Long bodies begin at a page boundary; the padding is zero.
        bytes.resize(body_at, 0);
        bytes.extend_from_slice(&self.buffer);
        self.store.write(location, &bytes, location.offset)?;
        Ok(entry)
    }

    fn encode_head(&self, location: &RecordLocation<F::File>, bytes: &mut Vec<u8>) {
        let head = RecordHead {
            key: &self.key,
            meta: &self.meta,
            body_len: self.received_len,
            expires_ms: self.expires_ms,
            body_check: self.sum.digest(),
        };
        head.encode(self.store.origin(location.segment, location.offset), bytes);
    }

    /// Copies a body of medium length from its sole segment into a shared one, to limit the number of files.
    fn move_to_shared(&mut self, entry: &mut IndexEntry) -> Result<(), WriteError> {
        let shared = self.store.reserve(self.head_len(), self.received_len)?;
        let Some(sole) = self.location.replace(shared) else {
            return Ok(());
        };
        let copied = self.copy_from(&sole, entry);
        // Now without objects and writers, the sole segment is removed.
        self.store.release(&sole, false);
        copied
    }

    fn copy_from(
        &self,
        sole: &RecordLocation<F::File>,
        entry: &mut IndexEntry,
    ) -> Result<(), WriteError> {
        let Some(shared) = &self.location else {
            return Ok(());
        };
        let mut source_entry = *entry;
        set_entry_location(&mut source_entry, sole)?;
        set_entry_location(entry, shared)?;
        let body_at = entry.body_offset();
        self.store
            .each_block(&source_entry, &sole.file, |at, bytes| {
                self.store.write(shared, bytes, body_at + at)
            })?;
        Ok(())
    }
}

impl<F: SegmentFiles> DiskContext<F> {
    /// Extends a sole segment for a longer body. Returns the end of the record.
    fn extend_sole(
        &self,
        location: &RecordLocation<F::File>,
        head_len: u64,
        len: u64,
    ) -> io::Result<u64> {
        let end = record::end(location.offset, head_len, len);
        let _maintenance_guard = lock(&self.maintenance);
        self.make_room(end.saturating_sub(location.end))?;
        lock(&self.state).grow(location.segment, end);
        Ok(end)
    }
}

impl<F: SegmentFiles> Drop for ObjectWriter<F> {
    fn drop(&mut self) {
        if let Some(location) = &self.location {
            self.store
                .release(location, self.is_committed || self.is_location_retained);
        }
        if !self.is_committed {
            count(&self.store.tallies.abandoned);
        }
    }
}
