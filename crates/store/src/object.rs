//! A stored object: the representation under a key, or the fact that there is none (negative caching). The body of a
//! streaming object may still be arriving.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use lowroad_cache::UNIT;
use lowroad_cache::vary::SelectingFields;
use lowroad_engine::arena::{self, ArenaBlock};
use lowroad_engine::file::OpenFile;
use lowroad_file_stamp::FileStamp;
use lowroad_http::content_coding::{CodingSet, ContentCoding};
use lowroad_http::encoded_heads::EncodedHeads;
use lowroad_http::preconditions::Validators;
use lowroad_http::status::StatusCode;
use lowroad_http::stored_head::HeadMap;
use once_cell::race::OnceBox;

use super::partial_content::{PartialContent, PieceList};
use super::streaming_object::StreamingObject;
use super::validity::{ObjectValidity, StoredExpiry};

/// A shared object. This `Arc` has no weak count, which saves 8 bytes for each of millions of objects.
pub type ObjectArc = triomphe::Arc<StoredObject>;

/// The fixed size of an object: the struct and its reference count, without its bytes and its optional parts.
const OVERHEAD: u64 = (size_of::<StoredObject>() + size_of::<usize>()) as u64;

/// One variant of the result stored under a key.
pub struct StoredObject {
    /// The result.
    pub kind: ObjectKind,
    /// How long the result may be used.
    pub validity: ObjectValidity,
}

/// The kinds of objects. Nearly all are representations, which are not boxed: a box would cost each hit an indirection.
pub enum ObjectKind {
    /// A complete representation; its bytes include the key.
    Representation(Representation),
    /// A representation with a body that is still arriving.
    Streaming(Box<StreamingObject>, DetachedKey),
    /// Stored parts of a representation.
    Parts(Box<PartialContent>),
    /// The path is a folder's but lacks the final slash.
    Folder(DetachedKey),
    /// A folder without an index file and without a listing.
    NoIndex(DetachedKey),
    /// There is no file that may be sent. Contains the status of the error response.
    Refused(StatusCode, DetachedKey),
    /// A folder with an index file that a handler serves. Contains the decoded path of that file.
    Index(Box<[u8]>, DetachedKey),
}

/// The key of an object that has no [`StoredBytes`] to hold it.
pub type DetachedKey = Box<[u8]>;

/// A representation in one content coding, with its prebuilt head: of a file, an error page or folder listing of this
/// server, or a handler's response. There are millions, so rarely used parts are allocated separately.
pub struct Representation {
    /// The HTTP/1 head without hop-by-hop fields; the empty line and the body, if the body is inline; and the key.
    stored: StoredBytes,
    /// The positions of the fields in the head, and the status.
    pub head: HeadMap,
    /// Optional parts, and those that only HTTP/2 and HTTP/3 need.
    extras: OnceBox<ObjectExtras>,
    /// Last-Modified.
    pub modified: UnixSeconds,
    key_len: u16,
    /// The content coding; identity for responses of handlers, which choose their coding themselves.
    pub encoding: ContentCoding,
    /// The other codings in which the representation is available ([`CodingSet`] as bits); only used with identity.
    encoding_bits: AtomicU8,
}

#[derive(Default)]
struct ObjectExtras {
    /// `None` if the body is inline and the object answers all requests for its key.
    separate: Option<RepresentationExtras>,
    /// The heads for HTTP/2 and HTTP/3, built for the first request.
    encoded: EncodedHeads,
}

/// Parts that few representations have.
struct RepresentationExtras {
    content: BodyLocation,
    len: u64,
    /// The size of `content` in bytes.
    size: u64,
    selecting: SelectingFields,
}

static INLINE: BodyLocation = BodyLocation::Inline;
static NO_SELECTING_FIELDS: SelectingFields = SelectingFields::NONE;

/// An optional time in seconds since 1970. Times after 2106 are stored as none.
#[derive(Clone, Copy)]
pub struct UnixSeconds(u32);

impl From<Option<u64>> for UnixSeconds {
    fn from(seconds: Option<u64>) -> UnixSeconds {
        let seconds = seconds.and_then(|seconds| u32::try_from(seconds).ok());
        // 32 bits keep `Representation` small, and suffice until 2106.
        UnixSeconds(seconds.unwrap_or(u32::MAX))
    }
}

impl UnixSeconds {
    /// The seconds.
    pub fn get(self) -> Option<u64> {
        (self.0 != u32::MAX).then_some(self.0.into())
    }
}

/// The files from which a representation was made.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SourceFiles {
    /// The stamp of the original file; `None` if there is no such file.
    pub original: Option<FileStamp>,
    /// The precompressed files beside the original, in the order brotli, zstd, gzip.
    pub siblings: [Option<FileStamp>; 3],
    /// The name of the index file, if the path is a folder's.
    pub index: Option<Box<str>>,
}

/// Bytes of a stored object.
pub enum StoredBytes {
    /// In the arena.
    Arena(arena::OwnedBlock),
    /// On the heap, if the arena had no room. The double box keeps this variant as small as the other.
    Heap(Box<Box<[u8]>>),
}

impl std::ops::Deref for StoredBytes {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            StoredBytes::Arena(piece) => piece,
            StoredBytes::Heap(bytes) => bytes,
        }
    }
}

/// The location of a body.
pub enum BodyLocation {
    /// After the head: one copy produces the whole response.
    Inline,
    /// In its own block.
    Block(ArenaBlock),
    /// On the heap.
    Heap(Box<bytes::Bytes>),
    /// Parts in arena blocks, sorted and without overlap.
    Pieces(Box<PieceList>),
    /// Only in its file.
    File(Arc<OpenFile>),
    /// In a segment of the disk cache; the bytes never change.
    Segment(Arc<DiskSegment>),
}

/// Identifies where updates of a response after validation are written, if the response's body is on disk.
pub struct RenewalHandle {
    /// The response's key on disk.
    pub key: Box<[u8]>,
    /// The number of the response's body, which an update must repeat.
    pub id: u64,
}

/// The location of a body on disk.
pub struct DiskSegment {
    /// The segment file.
    pub file: Arc<OpenFile>,
    /// The offset of the body.
    pub offset: u64,
    /// Where updates of the response are written.
    pub renewable: Arc<RenewalHandle>,
}

/// A head, body and key that were copied to their final location.
pub struct PlacedResponse {
    /// The head, the body if it is inline, and the key.
    pub bytes: StoredBytes,
    /// See [`HeadMap`].
    pub head: HeadMap,
    /// The length of the key in bytes.
    pub key_len: u16,
    /// The location of the body.
    pub content: BodyLocation,
    /// The size of the body in bytes, if it is not inline.
    pub size: u64,
}

impl BodyLocation {
    /// A second reference to a body that is separate from its head.
    pub fn clone_separate(&self) -> Option<BodyLocation> {
        match self {
            BodyLocation::Block(block) => Some(BodyLocation::Block(block.clone())),
            BodyLocation::Segment(segment) => Some(BodyLocation::Segment(segment.clone())),
            BodyLocation::Inline
            | BodyLocation::Heap(_)
            | BodyLocation::Pieces(_)
            | BodyLocation::File(_) => None,
        }
    }
}

impl StoredObject {
    /// The complete representation, if there is one.
    #[inline]
    pub fn representation(&self) -> Option<&Representation> {
        match &self.kind {
            ObjectKind::Representation(representation) => Some(representation),
            _ => None,
        }
    }

    /// The selecting fields (Vary). `None` if the object answers all requests for its key.
    #[inline]
    pub fn selecting(&self) -> Option<&SelectingFields> {
        match &self.kind {
            ObjectKind::Representation(representation) => Some(representation.selecting()),
            ObjectKind::Streaming(streaming, _) => Some(&streaming.selecting),
            ObjectKind::Parts(partial) => Some(partial.representation.selecting()),
            ObjectKind::Folder(_)
            | ObjectKind::NoIndex(_)
            | ObjectKind::Refused(..)
            | ObjectKind::Index(..) => None,
        }
    }

    /// The key; empty if the object was created without one, not to be stored.
    #[inline]
    pub fn key(&self) -> &[u8] {
        match &self.kind {
            ObjectKind::Representation(representation) => representation.key(),
            ObjectKind::Parts(partial) => partial.representation.key(),
            ObjectKind::Streaming(_, key)
            | ObjectKind::Folder(key)
            | ObjectKind::NoIndex(key)
            | ObjectKind::Refused(_, key)
            | ObjectKind::Index(_, key) => key,
        }
    }

    /// The size in bytes, for the store's accounting.
    pub fn size(&self) -> u64 {
        let lifetime = self.validity.lifetime();
        let kind_size = match &self.kind {
            ObjectKind::Representation(representation) => representation.size(),
            ObjectKind::Parts(partial) => partial.representation.size(),
            ObjectKind::Streaming(..)
            | ObjectKind::Folder(_)
            | ObjectKind::NoIndex(_)
            | ObjectKind::Refused(..)
            | ObjectKind::Index(..) => self.key().len() as u64,
        };
        OVERHEAD + kind_size + lifetime.map_or(0, StoredExpiry::size) as u64
    }
}

#[expect(
    clippy::len_without_is_empty,
    reason = "no caller treats an empty body apart"
)]
impl Representation {
    /// Creates a representation in identity coding with a body of `len` bytes.
    pub fn new(
        placed: PlacedResponse,
        len: u64,
        modified_s: Option<u64>,
        selecting: SelectingFields,
    ) -> Representation {
        let PlacedResponse {
            bytes,
            head,
            key_len,
            content,
            size,
        } = placed;
        // Most small objects need no extras and save the allocation.
        let is_plain = matches!(content, BodyLocation::Inline) && selecting.is_empty();
        let separate = RepresentationExtras {
            content,
            len,
            size,
            selecting,
        };
        let extras = match is_plain {
            true => OnceBox::new(),
            false => OnceBox::with_value(Box::new(ObjectExtras {
                separate: Some(separate),
                encoded: EncodedHeads::default(),
            })),
        };
        Representation {
            stored: bytes,
            head,
            extras,
            modified: modified_s.into(),
            key_len,
            encoding: ContentCoding::Identity,
            encoding_bits: CodingSet::EMPTY.bits().into(),
        }
    }

    /// Sets the content coding, and the other codings available.
    pub fn with_encoding(self, encoding: ContentCoding, others: CodingSet) -> Representation {
        Representation {
            encoding,
            encoding_bits: others.bits().into(),
            ..self
        }
    }

    /// The length of the bytes before the key.
    #[inline]
    fn end(&self) -> usize {
        self.stored.len().saturating_sub(self.key_len.into())
    }

    /// The head, and the body if it is inline.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let stored: &[u8] = &self.stored;
        stored.get(..self.end()).unwrap_or_default()
    }

    /// The key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        let stored: &[u8] = &self.stored;
        stored.get(self.end()..).unwrap_or_default()
    }

    #[inline]
    fn separate(&self) -> Option<&RepresentationExtras> {
        self.extras.get()?.separate.as_ref()
    }

    /// The heads for HTTP/2 and HTTP/3.
    pub fn encoded_heads(&self) -> &EncodedHeads {
        &self.extras.get_or_init(Box::default).encoded
    }

    /// The location of the body.
    #[inline]
    pub fn content(&self) -> &BodyLocation {
        self.separate()
            .map_or(&INLINE, |separate| &separate.content)
    }

    /// Length of the body in bytes.
    #[inline]
    pub fn len(&self) -> u64 {
        match self.separate() {
            Some(separate) => separate.len,
            // Inline: the body follows the head and the empty line.
            None => self.end().saturating_sub(self.head.h1_len() + 2) as u64,
        }
    }

    /// The selecting fields (Vary).
    #[inline]
    pub fn selecting(&self) -> &SelectingFields {
        self.separate()
            .map_or(&NO_SELECTING_FIELDS, |separate| &separate.selecting)
    }

    fn size(&self) -> u64 {
        let size = |separate: &RepresentationExtras| {
            (size_of::<RepresentationExtras>() + separate.selecting.size()) as u64 + separate.size
        };
        // The arena allocates whole units.
        let stored = (self.stored.len() as u64).next_multiple_of(UNIT);
        stored + self.separate().map_or(0, size)
    }

    /// The available content codings.
    #[inline]
    pub fn encodings(&self) -> CodingSet {
        CodingSet::from_bits(self.encoding_bits.load(Relaxed))
    }

    /// Removes a coding from the available ones because it saves too little.
    pub fn remove_encoding(&self, encoding: ContentCoding) {
        let mut remaining = self.encodings();
        remaining.remove(encoding);
        self.encoding_bits.store(remaining.bits(), Relaxed);
    }

    /// The validators for conditional requests.
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
            BodyLocation::Inline => self.bytes().get(start + range.start..start + range.end),
            BodyLocation::Block(block) => block.get(range),
            BodyLocation::Heap(bytes) => bytes.get(range),
            BodyLocation::File(_) | BodyLocation::Pieces(_) | BodyLocation::Segment(_) => None,
        }
    }
}
