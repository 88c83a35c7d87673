//! Partial content: stored parts of one version of a representation (RFC 9111 §3.4).

use std::ops::Range;

use bytes::Bytes;
use lowroad_cache::partial_content::PartSet;
use lowroad_engine::arena::ArenaBlock;
use lowroad_http::preconditions::{self, PreconditionOutcome};
use lowroad_http::range::ByteRange;
use lowroad_http::request::Request;

use super::object::{BodyLocation, Representation};

/// Stored parts of a representation.
pub struct PartialContent {
    /// The head and length of the whole representation; its content is `BodyLocation::Pieces`.
    pub representation: Representation,
    /// The ranges of the stored pieces.
    pub parts: PartSet,
    /// The whole representation may be stored, too.
    pub may_be_whole: bool,
}

/// The pieces, sorted. Boxed, because few objects have them.
pub struct PieceList(pub Box<[ContentPiece]>);

/// A contiguous part of a representation.
#[derive(Clone)]
pub struct ContentPiece {
    /// The offset in the whole representation.
    pub start: u64,
    /// The bytes.
    pub block: ArenaBlock,
}

impl PartialContent {
    /// Whether a request can be answered from the parts: they contain the requested ranges, or its preconditions give
    /// 304.
    pub fn answers(&self, request: &Request<'_>, now_s: u64) -> bool {
        let validators = self.representation.validators();
        match preconditions::evaluate(request, &validators, now_s) {
            PreconditionOutcome::NotModified => true,
            // Only the origin may answer with 412, since it may have a newer version.
            PreconditionOutcome::Failed => false,
            PreconditionOutcome::Proceed => {
                let len = self.representation.len();
                let ranges = preconditions::ranges(request, &validators, now_s, len);
                self.parts.can_answer(&ranges)
            }
        }
    }

    /// The only missing part, if the whole may be stored.
    pub fn gap(&self) -> Option<ByteRange> {
        match *self.parts.missing() {
            // Only a single gap is requested: the response to several ranges could be multipart content.
            [gap] if self.may_be_whole => Some(gap),
            _ => None,
        }
    }

    /// The field lines that request the missing part of this version; empty if there is none.
    pub fn conditions(&self) -> Vec<u8> {
        let tag = self.representation.head.etag(self.representation.bytes());
        let Some(gap) = self.gap() else {
            return Vec::new();
        };
        let mut lines = format!("Range: {}\r\nIf-Range: ", range_of(gap)).into_bytes();
        // With If-Range, an origin with another version sends all of it instead of a part (RFC 9110 §13.1.5).
        lines.extend_from_slice(tag);
        lines.extend_from_slice(b"\r\n");
        lines
    }

    /// The pieces, sorted.
    pub fn pieces(&self) -> &[ContentPiece] {
        match self.representation.content() {
            BodyLocation::Pieces(pieces) => &pieces.0,
            _ => &[],
        }
    }
}

/// The value of the Range field for these bytes.
pub fn range_of(range: ByteRange) -> String {
    format!("bytes={}-{}", range.start, range.end.saturating_sub(1))
}

impl ContentPiece {
    /// The range in the whole representation.
    pub fn range(&self) -> ByteRange {
        ByteRange {
            start: self.start,
            end: self.start + self.block.len() as u64,
        }
    }

    /// The intersection with a range of the whole representation, as offsets in the block.
    pub fn intersect(&self, range: ByteRange) -> Option<Range<usize>> {
        let piece_range = self.range();
        let (start, end) = (
            range.start.max(piece_range.start),
            range.end.min(piece_range.end),
        );
        // The cast is exact: the offset is within a block in memory.
        let block_offset = |position: u64| (position - self.start) as usize;
        (start < end).then(|| block_offset(start)..block_offset(end))
    }

    /// The bytes, without copying them.
    pub fn bytes(&self) -> Bytes {
        Bytes::from_owner(PieceMemory(self.block.clone()))
    }
}

struct PieceMemory(ArenaBlock);

impl AsRef<[u8]> for PieceMemory {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
