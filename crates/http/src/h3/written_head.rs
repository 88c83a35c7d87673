//! Reads the head of a response back from the output of [`H3Server`](super::H3Server), for logs. The encoder uses no
//! dynamic table, so a section can be decoded without the state of the connection.

use alloc::vec::Vec;

use super::frames::{H3FrameHead, kind};
use super::qpack::QpackDecoder;
use crate::field_coding::WrittenLines;

/// Appends the field lines of the head at the start of `output` to `lines`. Returns the length of the head's frame; 0 if
/// there is no head.
pub fn decode_written_head(output: &[u8], lines: &mut Vec<u8>) -> usize {
    let Some((head, head_len)) = H3FrameHead::decode(output) else {
        return 0;
    };
    let end = usize::try_from(head.len).map_or(usize::MAX, |len| head_len.saturating_add(len));
    let Some(section) = output.get(head_len..end) else {
        return 0;
    };
    let decoder = QpackDecoder::new(0);
    match decoder.prefix(section) {
        Ok(prefix) if head.kind == kind::HEADERS => {
            let decoded = decoder.decode(&prefix, &mut WrittenLines(lines));
            decoded.map_or(0, |()| end)
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::h3::{frames, qpack};
    use crate::status::StatusCode;

    #[test]
    fn written_head_has_the_fields_without_the_status() {
        let mut output = Vec::new();
        let start = frames::open_section(&mut output);
        qpack::put_prefix(&mut output);
        qpack::put_status(StatusCode::OK, &mut output);
        qpack::put_date(b"Sun, 06 Nov 1994 08:49:37 GMT", &mut output);
        frames::close_section(start, &mut output);
        let len = output.len();
        output.extend_from_slice(b"\x00\x02ab");
        let mut lines = Vec::new();
        assert_eq!(decode_written_head(&output, &mut lines), len);
        let text = alloc::string::String::from_utf8_lossy(&lines);
        assert_eq!(
            text.to_ascii_lowercase(),
            "date: sun, 06 nov 1994 08:49:37 gmt\r\n"
        );
        assert_eq!(decode_written_head(b"\x00\x02ab", &mut lines), 0);
        assert_eq!(decode_written_head(b"\x01\x02", &mut lines), 0);
    }
}
