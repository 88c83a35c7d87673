//! A stored object: what there is under a key, or the news that there is nothing, whoever made it. It may still be
//! filling: its head is known, and its body comes.
//!
//! Knows neither how objects are found nor how they are sent.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use lowroad_cache::UNIT;
use lowroad_cache::vary::Selecting;
use lowroad_engine::arena::{self, Block};
use lowroad_engine::file::OpenFile;
use lowroad_file_stamp::FileStamp;
use lowroad_http::conditional::Validators;
use lowroad_http::encoded::Encoded;
use lowroad_http::encoding::{Encoding, EncodingSet};
use lowroad_http::h2::LazyBlock;
use lowroad_http::status::Status;
use once_cell::race::OnceBox;

use super::filling::Filling;
use super::parts::{Partial, Pieces};
use super::validity::{Lifetime, Validity};

/// An object, and who uses it. It has no weak references: there are millions, and those would take 8 bytes each.
pub type ObjectArc = triomphe::Arc<Object>;

/// What an object takes, besides its bytes and what few objects have: itself, and the count of who uses it.
const OVERHEAD: u64 = (size_of::<Object>() + size_of::<usize>()) as u64;

/// What is known under one key, for those requests that it answers.
pub struct Object {
    /// What there is.
    pub kind: Kind,
    /// Until when.
    pub validity: Validity,
}

/// What a key leads to. Nearly all are representations, and a box would be a detour on the way of every hit.
pub enum Kind {
    /// Bytes, all there. The key is beside them.
    Representation(Representation),
    /// Bytes that are still coming.
    Filling(Box<Filling>, Key),
    /// Some of the bytes.
    Parts(Box<Partial>),
    /// A folder named without its slash.
    Folder(Key),
    /// A folder without an index file, which is not listed either.
    NoIndex(Key),
    /// Nothing, or nothing for clients: the status says which.
    Refused(Status, Key),
    /// A folder whose index file, at this decoded path, a program answers for.
    Index(Box<[u8]>, Key),
}

/// The key of what has no bytes.
pub type Key = Box<[u8]>;

/// The bytes of one encoding of a file, of a page of ours or of a program's response, and their prebuilt head. There are
/// millions: what few have is apart.
pub struct Representation {
    /// Its head for HTTP/1, ending before the connection's own fields, and, if the body is inline, the empty line and the
    /// body directly behind it; then the key.
    stored: Bytes,
    /// The forms of its head, and its status.
    pub head: Encoded,
    /// What few have, or have only once they are asked for by HTTP/2.
    more: OnceBox<More>,
    /// Last-Modified.
    pub modified: Seconds,
    key_len: u16,
    /// How the body is encoded; identity for what programs make, who encode by themselves.
    pub encoding: Encoding,
    /// Other encodings to be had of it ([`EncodingSet`] as bits); of the identity only.
    encoding_bits: AtomicU8,
}

#[derive(Default)]
struct More {
    /// `None` where the body is inline, and all requests are answered.
    apart: Option<Apart>,
    /// Its head for HTTP/2, once such a client has asked.
    block: LazyBlock,
}

/// What few representations have.
struct Apart {
    content: Content,
    len: u64,
    /// What `content` takes.
    size: u64,
    selecting: Selecting,
}

static INLINE: Content = Content::Inline;
static ALL: Selecting = Selecting::ALL;

/// Seconds since 1970, or nothing. What is later than 2106 is nothing, too.
#[derive(Clone, Copy)]
pub struct Seconds(u32);

impl From<Option<u64>> for Seconds {
    fn from(seconds: Option<u64>) -> Seconds {
        let seconds = seconds.and_then(|seconds| u32::try_from(seconds).ok());
        Seconds(seconds.unwrap_or(u32::MAX))
    }
}

impl Seconds {
    /// They.
    pub fn get(self) -> Option<u64> {
        (self.0 != u32::MAX).then_some(self.0.into())
    }
}

/// What a representation was made from.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Sources {
    /// The original's stamp; `None` for what is made of no file.
    pub original: Option<FileStamp>,
    /// Precompressed siblings, in the order brotli, zstd, gzip.
    pub siblings: [Option<FileStamp>; 3],
    /// The name of the index file, where the path is a folder's.
    pub index: Option<Box<str>>,
}

/// Where bytes are kept.
pub enum Bytes {
    /// In the arena.
    Piece(arena::Piece),
    /// On the heap, when the arena had no room for them. The inner box keeps this as small as a piece.
    Heap(Box<Box<[u8]>>),
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

/// A head, a body and their key where they stay.
pub struct Placed {
    /// The head, the body if it is inline, and the key.
    pub bytes: Bytes,
    /// See [`Encoded`].
    pub head: Encoded,
    /// Bytes of the key.
    pub key_len: u16,
    /// Where the body is.
    pub content: Content,
    /// What the body takes if it is not inline.
    pub size: u64,
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
            Kind::Representation(representation) => Some(representation.selecting()),
            Kind::Filling(filling, _) => Some(&filling.selecting),
            Kind::Parts(partial) => Some(partial.representation.selecting()),
            Kind::Folder(_) | Kind::NoIndex(_) | Kind::Refused(..) | Kind::Index(..) => None,
        }
    }

    /// Its key, if it was made to be stored.
    #[inline]
    pub fn key(&self) -> &[u8] {
        match &self.kind {
            Kind::Representation(representation) => representation.key(),
            Kind::Parts(partial) => partial.representation.key(),
            Kind::Filling(_, key)
            | Kind::Folder(key)
            | Kind::NoIndex(key)
            | Kind::Refused(_, key)
            | Kind::Index(_, key) => key,
        }
    }

    /// Bytes that it takes, for the store's account.
    pub fn size(&self) -> u64 {
        let lifetime = self.validity.lifetime();
        let apart = match &self.kind {
            Kind::Representation(representation) => representation.size(),
            Kind::Parts(partial) => partial.representation.size(),
            Kind::Filling(..)
            | Kind::Folder(_)
            | Kind::NoIndex(_)
            | Kind::Refused(..)
            | Kind::Index(..) => self.key().len() as u64,
        };
        OVERHEAD + apart + lifetime.map_or(0, Lifetime::size) as u64
    }
}

#[expect(
    clippy::len_without_is_empty,
    reason = "no caller treats an empty body apart"
)]
impl Representation {
    /// One as it is, with a body of `len` bytes, last modified then, for requests with these fields.
    pub fn new(
        placed: Placed,
        len: u64,
        modified_s: Option<u64>,
        selecting: Selecting,
    ) -> Representation {
        let Placed {
            bytes,
            head,
            key_len,
            content,
            size,
        } = placed;
        let is_plain = matches!(content, Content::Inline) && selecting.is_empty();
        let apart = Apart {
            content,
            len,
            size,
            selecting,
        };
        let more = match is_plain {
            true => OnceBox::new(),
            false => OnceBox::with_value(Box::new(More {
                apart: Some(apart),
                block: LazyBlock::default(),
            })),
        };
        Representation {
            stored: bytes,
            head,
            more,
            modified: modified_s.into(),
            key_len,
            encoding: Encoding::Identity,
            encoding_bits: EncodingSet::EMPTY.bits().into(),
        }
    }

    /// The same in an encoding, with others to be had.
    pub fn in_encoding(self, encoding: Encoding, others: EncodingSet) -> Representation {
        Representation {
            encoding,
            encoding_bits: others.bits().into(),
            ..self
        }
    }

    /// Where its key begins.
    #[inline]
    fn end(&self) -> usize {
        self.stored.len().saturating_sub(self.key_len.into())
    }

    /// Its head, and what lies behind it.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let stored: &[u8] = &self.stored;
        stored.get(..self.end()).unwrap_or_default()
    }

    /// Under what it is stored.
    #[inline]
    pub fn key(&self) -> &[u8] {
        let stored: &[u8] = &self.stored;
        stored.get(self.end()..).unwrap_or_default()
    }

    #[inline]
    fn apart(&self) -> Option<&Apart> {
        self.more.get()?.apart.as_ref()
    }

    /// Its head for HTTP/2.
    pub fn block(&self) -> &LazyBlock {
        &self.more.get_or_init(Box::default).block
    }

    /// Where the body is.
    #[inline]
    pub fn content(&self) -> &Content {
        self.apart().map_or(&INLINE, |apart| &apart.content)
    }

    /// Length of the body in bytes.
    #[inline]
    pub fn len(&self) -> u64 {
        match self.apart() {
            Some(apart) => apart.len,
            None => self.end().saturating_sub(self.head.h1_len() + 2) as u64,
        }
    }

    /// Which requests it answers, of those with its key.
    #[inline]
    pub fn selecting(&self) -> &Selecting {
        self.apart().map_or(&ALL, |apart| &apart.selecting)
    }

    fn size(&self) -> u64 {
        let size =
            |apart: &Apart| (size_of::<Apart>() + apart.selecting.size()) as u64 + apart.size;
        let stored = (self.stored.len() as u64).next_multiple_of(UNIT);
        stored + self.apart().map_or(0, size)
    }

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
            etag: self.head.etag(self.bytes()),
            last_modified: self.modified.get(),
        }
    }

    /// The value of Content-Type.
    pub fn content_type(&self) -> &[u8] {
        self.head.content_type(self.bytes())
    }

    /// A range of the body, if it is in memory.
    pub fn body(&self, range: Range<usize>) -> Option<&[u8]> {
        let start = self.head.h1_len() + 2;
        match self.content() {
            Content::Inline => self.bytes().get(start + range.start..start + range.end),
            Content::Block(block) => block.get(range),
            Content::Heap(bytes) => bytes.get(range),
            Content::File(_) | Content::Pieces(_) | Content::Segment(_) => None,
        }
    }
}
