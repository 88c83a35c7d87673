//! Reads the head of a response back from the output of [`H2Server`](super::H2Server), for logs. The encoder uses no
//! dynamic table, so a block can be decoded without the state of the connection.

use alloc::vec::Vec;

use super::frame::{FrameHead, HEAD_LEN, flag, kind};
use super::hpack::HpackDecoder;
use crate::field_coding::WrittenLines;

/// Appends the field lines of the head at the start of `output` to `lines`. Returns the length of the head's frames; 0
/// if there is no head.
pub fn decode_written_head(output: &[u8], lines: &mut Vec<u8>) -> usize {
    let (mut block, mut rest) = (Vec::new(), output);
    while let Some((head, after)) = rest.split_first_chunk::<HEAD_LEN>() {
        let head = FrameHead::parse(head);
        let is_head = matches!(head.kind, kind::HEADERS | kind::CONTINUATION);
        let Some(payload) = after.get(..head.len).filter(|_| is_head) else {
            return 0;
        };
        block.extend_from_slice(payload);
        rest = &after[head.len..];
        if head.has(flag::END_HEADERS) {
            let mut sink = WrittenLines(lines);
            return match HpackDecoder::new(0).decode(&block, &mut sink) {
                Ok(()) => output.len() - rest.len(),
                Err(_) => 0,
            };
        }
    }
    0
}
