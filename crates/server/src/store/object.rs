//! A stored object: what there is under a key, or the news that there is nothing, whoever made it. It may still be
//! filling: its head is known, and its body comes.
//!
//! Knows neither how objects are found nor how they are sent.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use lowroad_cache::vary::Selecting;
use lowroad_engine::arena::{self, Block};
use lowroad_engine::file::{OpenFile, Stamp};
use lowroad_http::conditional::Validators;
use lowroad_http::encoded::Encoded;
use lowroad_http::encoding::{Encoding, EncodingSet};
use lowroad_http::status::Status;

use super::filling::Filling;
use super::parts::{Partial, Pieces};
use super::validity::Validity;

/// What is known under one key, for those requests that it answers.
pub struct Object {
    /// What there is.
    pub kind: Kind,
    /// Bytes it occupies, for the store's account.
    pub size: u64,
    /// Until when.
    pub validity: Validity,
}

/// What a key leads to. Nearly all are representations, and a box would be a detour on the way of every hit.
pub enum Kind {
    /// Bytes, all there.
    Representation(Representation),
    /// Bytes that are still coming.
    Filling(Box<Filling>),
    /// Some of the bytes.
    Parts(Box<Partial>),
    /// A folder named without its slash.
    Folder,
    /// Nothing, or nothing for clients: the status says which.
    Refused(Status),
    /// A folder whose index file, at this decoded path, a program answers for.
    Index(Box<[u8]>),
}

/// The bytes of one encoding of a file, of a page of ours or of a program's response, and their prebuilt head.
pub struct Representation {
    /// Its head for HTTP/1, ending before the connection's own fields, and, if `content` is inline, the empty line and
    /// the body directly behind it.
    pub bytes: Bytes,
    /// The forms of its head, and its status.
    pub head: Encoded,
    /// Where the body is.
    pub content: Content,
    /// Length of the body in bytes.
    pub len: u64,
    /// Last-Modified.
    pub modified: Seconds,
    /// How the body is encoded; identity for what programs make, who encode by themselves.
    pub encoding: Encoding,
    /// Other encodings to be had of it ([`EncodingSet`] as bits); of the identity only.
    pub encoding_bits: AtomicU8,
    /// Which requests it answers, of those with its key.
    pub selecting: Selecting,
    /// The files that it was made from, to see whether they changed; `None` for what programs make.
    pub sources: Option<Arc<Sources>>,
}

/// Seconds since 1970, or nothing.
#[derive(Clone, Copy)]
pub struct Seconds(u64);

impl From<Option<u64>> for Seconds {
    fn from(seconds: Option<u64>) -> Seconds {
        Seconds(seconds.unwrap_or(u64::MAX))
    }
}

impl Seconds {
    /// They.
    pub fn get(self) -> Option<u64> {
        (self.0 != u64::MAX).then_some(self.0)
    }
}

/// What a representation was made from.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Sources {
    /// The original's stamp; `None` for what is made of no file.
    pub original: Option<Stamp>,
    /// Precompressed siblings, in the order brotli, zstd, gzip.
    pub siblings: [Option<Stamp>; 3],
    /// The name of the index file, where the path is a folder's.
    pub index: Option<Box<str>>,
}

/// Where bytes are kept.
pub enum Bytes {
    /// In the arena.
    Piece(arena::Piece),
    /// On the heap, when the arena had no room for them.
    Heap(Box<[u8]>),
}

impl std::ops::Deref for Bytes {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Piece(piece) => piece,
            Bytes::Heap(bytes) => bytes,
        }
    }
}

/// Where a body is.
pub enum Content {
    /// Behind the head: one copy makes the whole response.
    Inline,
    /// In a block of its own.
    Block(Block),
    /// On the heap.
    Heap(Box<bytes::Bytes>),
    /// Only some of it, in blocks, in their order; none overlap.
    Pieces(Box<Pieces>),
    /// Only in its file.
    File(Arc<OpenFile>),
    /// In a segment of the store on the disk, whose bytes never change.
    Segment(Arc<Segment>),
}

/// A response whose body is on the disk: where what is known anew of it goes.
pub struct Renewable {
    /// Its key there.
    pub key: Box<[u8]>,
    /// Names its body.
    pub id: u64,
}

/// Where a body lies on the disk.
pub struct Segment {
    /// The segment.
    pub file: Arc<OpenFile>,
    /// Where the body begins there.
    pub offset: u64,
    /// Where news of it go.
    pub renewable: Arc<Renewable>,
}

impl Content {
    /// The same once more, where it lies apart from the head.
    pub fn elsewhere(&self) -> Option<Content> {
        match self {
            Content::Block(block) => Some(Content::Block(block.clone())),
            Content::Segment(segment) => Some(Content::Segment(segment.clone())),
            Content::Inline | Content::Heap(_) | Content::Pieces(_) | Content::File(_) => None,
        }
    }
}

impl Object {
    /// The representation, if there is one and it is complete.
    #[inline]
    pub fn representation(&self) -> Option<&Representation> {
        match &self.kind {
            Kind::Representation(representation) => Some(representation),
            _ => None,
        }
    }

    /// Which requests it answers, of those with its key; `None`: all.
    #[inline]
    pub fn selecting(&self) -> Option<&Selecting> {
        match &self.kind {
            Kind::Representation(representation) => Some(&representation.selecting),
            Kind::Filling(filling) => Some(&filling.selecting),
            Kind::Parts(partial) => Some(&partial.representation.selecting),
            Kind::Folder | Kind::Refused(_) | Kind::Index(_) => None,
        }
    }
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
        Validators {
            etag: self.head.etag(&self.bytes),
            last_modified: self.modified.get(),
        }
    }

    /// The value of Content-Type.
    pub fn content_type(&self) -> &[u8] {
        self.head.content_type(&self.bytes)
    }

    /// A range of the body, if it is in memory.
    pub fn body(&self, range: Range<usize>) -> Option<&[u8]> {
        let start = self.head.h1_len() + 2;
        match &self.content {
            Content::Inline => self.bytes.get(start + range.start..start + range.end),
            Content::Block(block) => block.get(range),
            Content::Heap(bytes) => bytes.get(range),
            Content::File(_) | Content::Pieces(_) | Content::Segment(_) => None,
        }
    }
}
