//! An object on its way to the disk: its body is appended as it comes, and it is there for others once it is committed.
//!
//! The head is written last, when length and checksum of the body are known. Up to [`BUFFER_LEN`] bytes are gathered, so that
//! a short object is one write. A longer one whose length is known has its place from the start. If it is not known, the
//! object gets a segment of its own, and, if that turns out to be short, is copied into a shared one when it is committed.

use std::io;
use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

use crate::counters::count;
use crate::files::{Files, Folder};
use crate::index::Entry;
use crate::record::{self, BODY_LEN_MAX, HEAD_LEN_MAX, Head, PAGED_FROM};
use crate::segments::Place;
use crate::store::{Body, Shared, Store, lock, place_entry};

/// Bytes that are gathered before they are written. At least [`PAGED_FROM`]: where a body begins depends on whether it
/// is longer than that.
const BUFFER_LEN: usize = 256 * 1024;
const _: () = assert!(BUFFER_LEN as u64 >= PAGED_FROM);

/// Why an object is not stored.
#[derive(Debug)]
pub enum WriteError {
    /// Key and metadata are too long, or the body is.
    TooLong,
    /// The body is longer or shorter than was said.
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
            WriteError::Length => f.write_str("the body has another length than was said"),
            WriteError::Disk(error) => write!(f, "the object can't be written: {error}"),
        }
    }
}

impl std::error::Error for WriteError {}

/// An object that is being written. Dropped, it is abandoned.
pub struct Writer<F: Files = Folder> {
    store: Arc<Shared<F>>,
    key: Box<[u8]>,
    meta: Box<[u8]>,
    expires_ms: u64,
    /// How long the body will be, if that is known.
    len: Option<u64>,
    /// Bytes of the body that came.
    taken: u64,
    sum: Xxh3,
    /// Of these, the last ones, which are not written.
    buffer: Vec<u8>,
    place: Option<Place<F::File>>,
    is_failed: bool,
    is_committed: bool,
    /// See [`Writer::keep_place`].
    is_place_kept: bool,
}

impl<F: Files> Store<F> {
    /// Begins an object: `len` is the length of its body if that is known; after `expires_ms` (since 1970) it is of no use.
    /// Nothing is to be seen of it before it is committed; then it takes the place of what is under its key. Does not
    /// block.
    ///
    /// # Errors
    /// When it is too long.
    pub fn begin(
        &self,
        key: &[u8],
        meta: &[u8],
        expires_ms: u64,
        len: Option<u64>,
    ) -> Result<Writer<F>, WriteError> {
        if key.len() + meta.len() > HEAD_LEN_MAX || len.is_some_and(|len| len > self.len_max()) {
            return Err(WriteError::TooLong);
        }
        Ok(Writer {
            store: Arc::clone(&self.0),
            key: key.into(),
            meta: meta.into(),
            expires_ms,
            len,
            taken: 0,
            sum: Xxh3::new(),
            buffer: Vec::new(),
            place: None,
            is_failed: false,
            is_committed: false,
            is_place_kept: false,
        })
    }

    fn len_max(&self) -> u64 {
        self.0.options().body_len_max().min(BODY_LEN_MAX)
    }
}

impl<F: Files> Writer<F> {
    /// Appends to the body. Blocks on the disk, now and then.
    ///
    /// # Errors
    /// When the body becomes too long, or the disk fails. The object can't be committed then.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let taken = self.taken + bytes.len() as u64;
        if self.is_failed || self.len.is_some_and(|len| taken > len) {
            return Err(self.fail(WriteError::Length));
        }
        if taken > self.store.options().body_len_max().min(BODY_LEN_MAX) {
            return Err(self.fail(WriteError::TooLong));
        }
        self.taken = taken;
        self.sum.update(bytes);
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() < BUFFER_LEN {
            return Ok(());
        }
        self.flush().map_err(|error| self.fail(error.into()))
    }

    /// What is written of the body so far, if anything is. It can be read there as long as this is; longer if its place is
    /// kept.
    pub fn written(&self) -> Option<Body<F::File>> {
        let place = self.place.as_ref()?;
        Some(Body {
            file: place.file.clone(),
            offset: self.body_at(place),
            len: self.taken - self.buffer.len() as u64,
        })
    }

    /// Writes all that came, unless that is so little that it is one write with the head.
    ///
    /// # Errors
    /// The disk fails. The object can't be committed then.
    pub fn write_rest(&mut self) -> Result<(), WriteError> {
        if self.place.is_none() || self.buffer.is_empty() {
            return Ok(());
        }
        self.flush().map_err(|error| self.fail(error.into()))
    }

    /// What is written stays where it is and becomes no other object's, even if this one is abandoned: somebody reads it.
    pub fn keep_place(&mut self) {
        self.is_place_kept = true;
    }

    /// Makes the object visible. Blocks on the disk.
    ///
    /// # Errors
    /// When the body is shorter than was said, an append failed, or the disk fails: then what was under the key stays.
    pub fn commit(mut self) -> Result<(), WriteError> {
        if self.is_failed || self.len.is_some_and(|len| len != self.taken) {
            return Err(WriteError::Length);
        }
        let entry = self.finish()?;
        self.store.put(entry, None)?;
        self.is_committed = true;
        count(&self.store.counting.stored);
        Ok(())
    }

    /// Makes sure that it can't be committed.
    fn fail(&mut self, error: WriteError) -> WriteError {
        self.is_failed = true;
        error
    }

    fn head_len(&self) -> u64 {
        record::head_len(&self.key, &self.meta) as u64
    }

    /// Writes what was gathered behind what was written.
    fn flush(&mut self) -> io::Result<()> {
        let head_len = self.head_len();
        let place = match (self.place.take(), self.len) {
            (Some(place), _) => place,
            (None, Some(len)) => self.store.reserve(head_len, len)?,
            (None, None) => self.store.reserve_sole(head_len, self.taken)?,
        };
        let body_at = self.body_at(&place);
        let place = self.place.insert(place);
        if self.len.is_none() {
            place.end = self.store.extend_sole(place, head_len, self.taken)?;
        }
        let written = self.taken - self.buffer.len() as u64;
        self.store.write(place, &self.buffer, body_at + written)?;
        self.buffer.clear();
        Ok(())
    }

    /// Where a body begins that did not fit the buffer.
    fn body_at(&self, place: &Place<F::File>) -> u64 {
        // As long as a body is not known to be shorter than that, it is longer.
        let len = self.len.unwrap_or(self.taken);
        record::body_at(place.offset, self.head_len(), len)
    }

    /// Writes all that is not written, the head last.
    fn finish(&mut self) -> Result<Entry, WriteError> {
        let head_len = u32::try_from(self.head_len()).map_err(|_| WriteError::TooLong)?;
        let hash = self.store.hash(&self.key);
        let mut entry = Entry::new(hash, head_len, self.taken).ok_or(WriteError::TooLong)?;
        entry.expires_s = u32::try_from(self.expires_ms.div_ceil(1000)).unwrap_or(u32::MAX);
        if self.place.is_none() {
            let place = self.store.reserve(head_len.into(), self.taken)?;
            place_entry(&mut entry, self.place.insert(place))?;
            return self.write_at_once(entry);
        }
        if !self.buffer.is_empty() {
            self.flush()?;
        }
        if self.len.is_none() && !self.store.is_sole(self.taken) {
            self.move_to_shared(&mut entry)?;
        }
        let Some(place) = &self.place else {
            return Err(WriteError::Length); // not to be reached: it was made above
        };
        place_entry(&mut entry, place)?;
        let mut bytes = Vec::new();
        self.encode_head(place, &mut bytes);
        self.store.write(place, &bytes, place.offset)?;
        Ok(entry)
    }

    fn write_at_once(&self, entry: Entry) -> Result<Entry, WriteError> {
        let Some(place) = &self.place else {
            return Err(WriteError::Length); // not to be reached: who calls has just made it
        };
        let mut bytes = Vec::with_capacity(self.buffer.len() + 8192);
        self.encode_head(place, &mut bytes);
        let body_at = usize::try_from(entry.body_at() - entry.offset()).unwrap_or(bytes.len());
        bytes.resize(body_at, 0);
        bytes.extend_from_slice(&self.buffer);
        self.store.write(place, &bytes, place.offset)?;
        Ok(entry)
    }

    fn encode_head(&self, place: &Place<F::File>, bytes: &mut Vec<u8>) {
        let head = Head {
            key: &self.key,
            meta: &self.meta,
            body_len: self.taken,
            expires_ms: self.expires_ms,
            body_check: self.sum.digest(),
        };
        head.encode(self.store.origin(place.segment, place.offset), bytes);
    }

    /// Copies a body of middling length out of its own segment, since each of these is a file.
    fn move_to_shared(&mut self, entry: &mut Entry) -> Result<(), WriteError> {
        let shared = self.store.reserve(self.head_len(), self.taken)?;
        let Some(sole) = self.place.replace(shared) else {
            return Ok(());
        };
        let copied = self.copy_from(&sole, entry);
        self.store.release(&sole, false);
        copied
    }

    fn copy_from(&self, sole: &Place<F::File>, entry: &mut Entry) -> Result<(), WriteError> {
        let Some(shared) = &self.place else {
            return Ok(());
        };
        let mut from = *entry;
        place_entry(&mut from, sole)?;
        place_entry(entry, shared)?;
        let body_at = entry.body_at();
        self.store.each_block(&from, &sole.file, |at, bytes| {
            self.store.write(shared, bytes, body_at + at)
        })?;
        Ok(())
    }
}

impl<F: Files> Shared<F> {
    /// Makes room for a body that has grown in its own segment. Where the record would end now.
    fn extend_sole(&self, place: &Place<F::File>, head_len: u64, len: u64) -> io::Result<u64> {
        let end = record::end(place.offset, head_len, len);
        let _upkeep = lock(&self.upkeep);
        self.make_room(end.saturating_sub(place.end))?;
        lock(&self.state).grow(place.segment, end);
        Ok(end)
    }
}

impl<F: Files> Drop for Writer<F> {
    fn drop(&mut self) {
        if let Some(place) = &self.place {
            self.store
                .release(place, self.is_committed || self.is_place_kept);
        }
        if !self.is_committed {
            count(&self.store.counting.abandoned);
        }
    }
}
