//! A representation of which only parts are stored, all of one version. Knows neither where they come from nor how they are
//! sent. Read RFC 9111 §3.4.

use std::ops::Range;

use bytes::Bytes;
use lowroad_cache::partial::Parts;
use lowroad_engine::arena::Block;
use lowroad_http::conditional::{self, Precondition};
use lowroad_http::range::ByteRange;
use lowroad_http::request::Request;

use super::object::{Content, Representation};

/// Parts of a representation.
pub struct Partial {
    /// As of the whole, whose length it has; its content is [`Content::Pieces`].
    pub representation: Representation,
    /// Which bytes there are: those of the pieces.
    pub parts: Parts,
    /// The whole could be stored.
    pub may_be_whole: bool,
}

/// All that there are, in their order. Behind one thin pointer: few objects have them.
pub struct Pieces(pub Box<[Piece]>);

/// Some bytes of a representation that follow one another.
#[derive(Clone)]
pub struct Piece {
    /// Where they stand in the whole.
    pub start: u64,
    /// They.
    pub block: Block,
}

impl Partial {
    /// Whether the answer to a request is known: what it asks for is all there, or what it has holds still.
    pub fn answers(&self, request: &Request<'_>, now_s: u64) -> bool {
        let validators = self.representation.validators();
        match conditional::evaluate(request, &validators, now_s) {
            Precondition::NotModified => true,
            Precondition::Failed => false,
            Precondition::Proceed => {
                let len = self.representation.len();
                let ranges = conditional::ranges(request, &validators, now_s, len);
                self.parts.answers(&ranges)
            }
        }
    }

    /// The only part that is missing to a whole that could be stored.
    pub fn gap(&self) -> Option<ByteRange> {
        match *self.parts.missing() {
            [gap] if self.may_be_whole => Some(gap),
            _ => None,
        }
    }

    /// The field lines by which an origin is asked for that part, of this version only; empty if there is none.
    pub fn conditions(&self) -> Vec<u8> {
        let tag = self.representation.head.etag(self.representation.bytes());
        let Some(gap) = self.gap() else {
            return Vec::new();
        };
        let mut lines = format!("Range: {}\r\nIf-Range: ", range_of(gap)).into_bytes();
        lines.extend_from_slice(tag);
        lines.extend_from_slice(b"\r\n");
        lines
    }

    /// The pieces, in their order.
    pub fn pieces(&self) -> &[Piece] {
        match self.representation.content() {
            Content::Pieces(pieces) => &pieces.0,
            _ => &[],
        }
    }
}

/// The value of Range that asks for these bytes.
pub fn range_of(range: ByteRange) -> String {
    format!("bytes={}-{}", range.start, range.end.saturating_sub(1))
}

impl Piece {
    /// Which bytes of the whole it has.
    pub fn range(&self) -> ByteRange {
        ByteRange {
            start: self.start,
            end: self.start + self.block.len() as u64,
        }
    }

    /// Where in its block bytes of the whole are, as far as it has them.
    pub fn within(&self, range: ByteRange) -> Option<Range<usize>> {
        let own = self.range();
        let (start, end) = (range.start.max(own.start), range.end.min(own.end));
        // They lie in a block in memory.
        let at = |place: u64| (place - self.start) as usize;
        (start < end).then(|| at(start)..at(end))
    }

    /// Its bytes, which stay where they are.
    pub fn bytes(&self) -> Bytes {
        Bytes::from_owner(Held(self.block.clone()))
    }
}

struct Held(Block);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
