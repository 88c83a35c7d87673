//! Parts of bodies: ranges, and the framing of `multipart/byteranges`.

use lowroad_engine::{BodyPart, Exchange, ResponseWriter};
use lowroad_http::head_writer::HeadWriter;
use lowroad_http::range::ByteRange;
use lowroad_store::object::{BodyLocation, Representation};

/// Appends a range of a body: short bodies are copied, long ones are referenced.
pub fn append(
    representation: &Representation,
    range: ByteRange,
    response: &mut ResponseWriter<'_>,
) {
    // The casts are exact: ranges are limited to the length of the representation, a usize for bodies in memory.
    let body_range = range.start as usize..range.end as usize;
    match representation.content() {
        BodyLocation::File(file) => response.write_part(BodyPart::File {
            file: file.clone(),
            range: range.start..range.end,
        }),
        BodyLocation::Segment(segment) => response.write_part(BodyPart::File {
            file: segment.file.clone(),
            range: segment.offset + range.start..segment.offset + range.end,
        }),
        BodyLocation::Block(block) => response.write_part(BodyPart::Block {
            block: block.clone(),
            range: body_range,
        }),
        // The pieces are in ascending order; those outside the range are skipped.
        BodyLocation::Pieces(pieces) => {
            for piece in &pieces.0 {
                if let Some(block_range) = piece.intersect(range) {
                    response.write_part(BodyPart::Block {
                        block: piece.block.clone(),
                        range: block_range,
                    });
                }
            }
        }
        // Only listings are on the heap, with `--cache 0`; no ranges of them are requested.
        BodyLocation::Heap(data) if body_range == (0..data.len()) => {
            response.write_part(BodyPart::Bytes((**data).clone()))
        }
        BodyLocation::Inline | BodyLocation::Heap(_) => {
            if let Some(bytes) = representation.body(body_range) {
                response.write_copied(bytes);
            }
        }
    }
}

/// The head of a part of a multipart body.
pub(super) fn part_head(
    boundary: &str,
    content_type: &[u8],
    len: u64,
    range: &ByteRange,
) -> Vec<u8> {
    let mut out = format!("\r\n--{boundary}\r\n").into_bytes();
    let mut head = HeadWriter::resume(&mut out);
    head.field("Content-Type", content_type);
    head.content_range(range.start, range.end, len);
    head.finish();
    out
}

/// A boundary that occurs in no body by chance: it depends on a random seed, the time and the exchange.
pub(super) fn boundary(exchange: &Exchange, representation: &Representation) -> String {
    use std::hash::BuildHasher;
    let seed = foldhash::fast::RandomState::default();
    let (id, now_ms) = (exchange.id, exchange.now_ms);
    let one = seed.hash_one((id, now_ms));
    let two = seed.hash_one((now_ms, representation.len(), id));
    format!("{one:016x}{two:016x}")
}
