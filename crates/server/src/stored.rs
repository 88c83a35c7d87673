//! A stored answer: the bytes of a representation with its head prebuilt, or the news that there
//! is none; and whether it may still be trusted.
//!
//! Knows neither how answers are found nor how they are sent.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use lowroad_engine::arena::Block;
use lowroad_engine::file::{OpenFile, Stamp};
use lowroad_http::conditional::Validators;
use lowroad_http::encoding::{Encoding, EncodingSet};
use lowroad_http::status::Status;

use crate::dynamic::kept::Kept;
use crate::watch::Folder;

/// For how long an answer is trusted without a watch, ms. A change is noticed within a second.
pub const TRUST_MS: u64 = 500;

/// What is known of one path, or of one encoding of it.
pub struct Stored {
    /// What there is.
    pub kind: Kind,
    /// Bytes it occupies, for the cache's account.
    pub size: u64,
    trust: Trust,
}

/// What a path leads to.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are representations, and a box is a detour on the way of every hit"
)]
pub enum Kind {
    /// Bytes.
    Representation(Representation),
    /// A folder named without its slash.
    Folder,
    /// Nothing, or nothing for clients: the status says which.
    Refused(Status),
    /// A folder whose index file, at this decoded path, a program answers for.
    Index(Box<[u8]>),
    /// What a program answered.
    Kept(Box<Kept>),
}

/// Until when a stored answer is taken for true.
struct Trust {
    folder: Option<Arc<Folder>>,
    generation: AtomicU64,
    checked_ms: AtomicU64,
}

impl Stored {
    /// An answer found at `checked_ms`. With a folder that is watched, and the folder's generation
    /// from before the finding, it holds until something changes there; else for [`TRUST_MS`].
    pub fn new(
        kind: Kind,
        size: u64,
        folder: Option<(Arc<Folder>, u64)>,
        checked_ms: u64,
    ) -> Stored {
        let (folder, generation) = folder.unzip();
        let trust = Trust {
            folder,
            generation: AtomicU64::new(generation.unwrap_or(0)),
            checked_ms: AtomicU64::new(checked_ms),
        };
        Stored { kind, size, trust }
    }

    /// Whether changes of what it was made from are told.
    pub fn is_watched(&self) -> bool {
        self.trust.folder.is_some()
    }

    /// Whether it may be used without another look at the file system.
    #[inline]
    pub fn fresh(&self, now_ms: u64) -> bool {
        let trust = &self.trust;
        let watched = trust.folder.as_ref();
        watched.is_some_and(|folder| folder.generation() == trust.generation.load(Relaxed))
            || now_ms.saturating_sub(trust.checked_ms.load(Relaxed)) < TRUST_MS
    }

    /// It was found to be true again: looked at `checked_ms`, the folder's generation taken before.
    pub fn renew(&self, generation: u64, checked_ms: u64) {
        self.trust.generation.store(generation, Relaxed);
        self.trust.checked_ms.store(checked_ms, Relaxed);
    }

    /// Whether this very folder's changes are heeded.
    pub fn watched_by(&self, folder: Option<&Arc<Folder>>) -> bool {
        match (&self.trust.folder, folder) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (None, None) => true,
            _ => false,
        }
    }

    /// It was found to be untrue: the next use looks at the file system.
    pub fn distrust(&self) {
        self.renew(0, 0);
    }

    /// What a program answered, if that is what it is.
    pub fn kept(&self) -> Option<&Kept> {
        match &self.kind {
            Kind::Kept(kept) => Some(kept),
            _ => None,
        }
    }

    /// The representation, if there is one.
    pub fn representation(&self) -> Option<&Representation> {
        match &self.kind {
            Kind::Representation(representation) => Some(representation),
            _ => None,
        }
    }
}

/// The bytes of one encoding of a file, or of a page of ours, and their prebuilt head.
pub struct Representation {
    /// The head, ending before the connection's own fields, and, if `content` is inline, the
    /// empty line and the body directly behind it.
    pub bytes: Bytes,
    /// Where things are in the head.
    pub head: HeadMap,
    /// Where the body is.
    pub content: Content,
    /// Length of the body in bytes.
    pub len: u64,
    /// Last-Modified, seconds since 1970.
    pub modified_s: Option<u64>,
    /// How the body is encoded.
    pub encoding: Encoding,
    /// Other encodings to be had of it ([`EncodingSet`] as bits); of the identity only.
    pub encoding_bits: AtomicU8,
    /// The files that it was made from, to see whether they changed: the original, then siblings.
    pub sources: Sources,
}

/// What a representation was made from.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Sources {
    /// The original's stamp; `None` for pages of ours.
    pub original: Option<Stamp>,
    /// Precompressed siblings, in the order brotli, zstd, gzip.
    pub siblings: [Option<Stamp>; 3],
    /// The name of the index file, where the path is a folder's.
    pub index: Option<Box<str>>,
}

/// Places in a prebuilt head, as offsets into it.
#[derive(Clone, Copy, Debug)]
pub struct HeadMap {
    /// After the status line and the date; fields that 304 has too follow.
    pub shared_at: usize,
    /// After those; fields about the bytes follow.
    pub content_at: usize,
    /// After those, before Content-Length.
    pub length_at: usize,
    /// After Content-Length: the end of the head but for the empty line.
    pub end: usize,
    /// The value of ETag; empty if there is none.
    pub etag: (usize, usize),
    /// The value of Content-Type.
    pub content_type: (usize, usize),
}

/// Where bytes are kept.
pub enum Bytes {
    /// In the arena.
    Block(Block),
    /// On the heap, when the arena had no room for them.
    Heap(Box<[u8]>),
}

impl std::ops::Deref for Bytes {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Block(block) => block,
            Bytes::Heap(bytes) => bytes,
        }
    }
}

/// Where a body is.
pub enum Content {
    /// Behind the head: one copy makes the whole answer.
    Inline,
    /// In a block of its own.
    Block(Block),
    /// On the heap.
    Heap(bytes::Bytes),
    /// Only in its file.
    File(Arc<OpenFile>),
}

impl Representation {
    /// The encodings to choose from.
    #[inline]
    pub fn encodings(&self) -> EncodingSet {
        EncodingSet::from_bits(self.encoding_bits.load(Relaxed))
    }

    /// Gives up an encoding that turned out not to be worth it.
    pub fn without(&self, encoding: Encoding) {
        let mut left = self.encodings();
        left.remove(encoding);
        self.encoding_bits.store(left.bits(), Relaxed);
    }

    /// What conditional requests compare with.
    pub fn validators(&self) -> Validators<'_> {
        let (start, end) = self.head.etag;
        Validators {
            etag: &self.bytes[start..end],
            last_modified: self.modified_s,
        }
    }

    /// The value of Content-Type.
    pub fn content_type(&self) -> &[u8] {
        let (start, end) = self.head.content_type;
        &self.bytes[start..end]
    }

    /// A range of the body, if it is in memory.
    pub fn body(&self, range: Range<usize>) -> Option<&[u8]> {
        let start = self.head.end + 2;
        match &self.content {
            Content::Inline => self.bytes.get(start + range.start..start + range.end),
            Content::Block(block) => block.get(range),
            Content::Heap(bytes) => bytes.get(range),
            Content::File(_) => None,
        }
    }
}
