//! Partial content: stored parts of one version of a representation (RFC 9111 §3.4).

use std::ops::Range;

use bytes::Bytes;
use lowroad_cache::partial_content::PartSet;
use lowroad_engine::arena::ArenaBlock;
use lowroad_http::preconditions::{self, PreconditionOutcome};
use lowroad_http::range::ByteRange;
use lowroad_http::request::Request;

use super::object::{BodyLocation, Representation};

/// Parts of a representation.
pub struct PartialContent {
    /// The head and length of the whole; its content is `BodyLocation::PieceList`.
    pub representation: Representation,
    /// The ranges of the stored pieces.
    pub parts: PartSet,
    /// The whole may be stored.
    pub may_be_whole: bool,
}

/// The pieces, sorted. Boxed, because few objects have them.
pub struct PieceList(pub Box<[ContentPiece]>);

/// A contiguous part of a representation.
#[derive(Clone)]
pub struct ContentPiece {
    /// Its offset in the whole.
    pub start: u64,
    /// Its bytes.
    pub block: ArenaBlock,
}

impl PartialContent {
    /// Whether the parts answer a request: they contain the requested ranges, or its condition yields 304.
    pub fn answers(&self, request: &Request<'_>, now_s: u64) -> bool {
        let validators = self.representation.validators();
        match preconditions::evaluate(request, &validators, now_s) {
            PreconditionOutcome::NotModified => true,
            // The origin decides about 412: it may have a newer version.
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
            // One gap only: a request for several ranges could be answered with multipart content.
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
        // If-Range: for another version, the origin sends the whole instead of a foreign part (RFC 9110 §13.1.5).
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

/// The value of Range for these bytes.
pub fn range_of(range: ByteRange) -> String {
    format!("bytes={}-{}", range.start, range.end.saturating_sub(1))
}

impl ContentPiece {
    /// Its range in the whole.
    pub fn range(&self) -> ByteRange {
        ByteRange {
            start: self.start,
            end: self.start + self.block.len() as u64,
        }
    }

    /// The intersection with a range of the whole, as offsets in the block.
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

    /// Its bytes, without a copy.
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
