//! The bytes of HTTP/3 streams: encodes requests, and reads responses and the control stream. Does no I/O.

use bytes::Bytes;
use lowroad_http::h3::frames::{H3FrameHead, kind, put_frame, stream_type};
use lowroad_http::h3::qpack::{put_field, put_prefix};
use lowroad_http::h3::varint;
use lowroad_http::method::Method;

use super::response::{ResponseFault, append_text};
use super::two::TranslatedRequest;

/// Maximum length of a response head, or of a frame of the control stream.
const HEAD_LEN_MAX: usize = 64 * 1024;

/// The progress of a response.
#[derive(Default)]
pub(super) struct ResponseFrames {
    /// The received part of a frame header or field section.
    partial: Vec<u8>,
    /// The rest of a frame that is read as it arrives: whether it is DATA, and its length.
    payload: Option<(bool, u64)>,
    pub status: u16,
    pub len: u64,
}

/// A part of a response.
pub(super) enum ResponsePart<'b> {
    Head(&'b [u8]),
    Data(&'b [u8]),
}

/// Takes complete frames of a control stream from `input`, which keeps the stream's type. Returns the value of GOAWAY.
pub(super) fn read_control(input: &mut Vec<u8>) -> Result<Option<u64>, ResponseFault> {
    let mut goaway = None;
    // Bytes of other streams are discarded behind the type, which is one byte for all known types.
    if input.first() != Some(&(stream_type::CONTROL as u8)) {
        input.truncate(1);
        return Ok(None);
    }
    let mut used = 1;
    while let Some((head, head_len)) = H3FrameHead::decode(&input[used..]) {
        if head.len > HEAD_LEN_MAX as u64 {
            return Err(ResponseFault::Endless);
        }
        let begin = used + head_len;
        let Some(payload) = input.get(begin..begin + head.len as usize) else {
            break;
        };
        if head.kind == kind::GOAWAY {
            let (first, _) = varint::decode(payload).ok_or(ResponseFault::Malformed)?;
            goaway = Some(first);
        }
        used = begin + head.len as usize;
    }
    input.drain(1..used);
    Ok(goaway)
}

impl ResponseFrames {
    /// Reads bytes of the stream. `on_part` receives the status so far; for a head it returns the new one.
    pub fn read(
        &mut self,
        mut bytes: &[u8],
        mut on_part: impl FnMut(u16, ResponsePart<'_>) -> Result<u16, ResponseFault>,
    ) -> Result<(), ResponseFault> {
        while !bytes.is_empty() {
            if let Some((is_data, rest)) = self.payload {
                let len = bytes.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
                let (part, behind) = bytes.split_at(len);
                if is_data {
                    self.len += len as u64;
                    on_part(self.status, ResponsePart::Data(part))?;
                }
                bytes = behind;
                let rest = rest - len as u64;
                self.payload = (rest > 0).then_some((is_data, rest));
                continue;
            }
            let mut buffered = std::mem::take(&mut self.partial);
            let kept_len = buffered.len();
            // Only an incomplete frame needs a copy.
            let input = match kept_len {
                0 => bytes,
                _ => {
                    buffered.extend_from_slice(bytes);
                    &buffered
                }
            };
            let Some(used) = self.read_frame(input, &mut on_part)? else {
                if input.len() > HEAD_LEN_MAX + 16 {
                    return Err(ResponseFault::Endless);
                }
                self.partial = input.to_vec();
                return Ok(());
            };
            bytes = &bytes[used - kept_len..];
        }
        Ok(())
    }

    /// Reads a frame header, and the whole frame if it is a field section. Returns the used length, or `None` if more
    /// input is needed.
    fn read_frame(
        &mut self,
        input: &[u8],
        on_part: &mut impl FnMut(u16, ResponsePart<'_>) -> Result<u16, ResponseFault>,
    ) -> Result<Option<usize>, ResponseFault> {
        let Some((head, head_len)) = H3FrameHead::decode(input) else {
            return Ok(None);
        };
        if head.kind != kind::HEADERS {
            // DATA follows a final response (RFC 9114 section 4.1).
            let is_data = head.kind == kind::DATA;
            if is_data && self.status < 200 {
                return Err(ResponseFault::Malformed);
            }
            self.payload = (head.len > 0).then_some((is_data, head.len));
            return Ok(Some(head_len));
        }
        if head.len > HEAD_LEN_MAX as u64 {
            return Err(ResponseFault::Endless);
        }
        let end = head_len + head.len as usize;
        let Some(section) = input.get(head_len..end) else {
            return Ok(None);
        };
        self.status = on_part(self.status, ResponsePart::Head(section))?;
        Ok(Some(end))
    }

    /// Whether the stream may end here.
    pub fn is_complete(&self) -> bool {
        self.status >= 200 && self.partial.is_empty() && self.payload.is_none()
    }
}

/// Formats a response head like that of HTTP/1, for patterns that search in it.
pub(super) fn header_text(head: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut text = b"HTTP/3".to_vec();
    for (name, value) in head {
        match name.as_slice() {
            b":status" => {
                for part in [b" ", value.as_slice(), b"\r\n"] {
                    append_text(&mut text, part);
                }
            }
            name => {
                for part in [name, b": ", value, b"\r\n"] {
                    append_text(&mut text, part);
                }
            }
        }
    }
    append_text(&mut text, b"\r\n");
    text
}

/// Encodes the frames of a request in HTTP/1.1 form.
pub(super) fn encode(request: &[u8]) -> Option<Bytes> {
    let parts = TranslatedRequest::parse(request)?;
    let (mut section, mut frames) = (Vec::new(), Vec::new());
    put_prefix(&mut section);
    put_method(parts.method, &mut section);
    // Entry 23 of the static table (RFC 9204 appendix A) is :scheme https, 0 is :authority, and 1 is :path.
    section.push(0xc0 | 23);
    put_named(0, parts.authority, &mut section);
    put_named(1, parts.path, &mut section);
    for (name, value) in parts.fields() {
        put_field(name, value, &mut section);
    }
    put_frame(kind::HEADERS, &section, &mut frames);
    let body = &request[parts.body_at..];
    if !body.is_empty() {
        put_frame(kind::DATA, body, &mut frames);
    }
    Some(Bytes::from(frames))
}

fn put_method(method: Method, section: &mut Vec<u8>) {
    let index = match method.as_str() {
        "DELETE" => 16,
        "GET" => 17,
        "HEAD" => 18,
        "OPTIONS" => 19,
        "POST" => 20,
        "PUT" => 21,
        other => {
            // Entry 15 has the name; 15 does not fit into the prefix of 4 bits.
            section.extend_from_slice(&[0x5f, 0]);
            return put_text(other.as_bytes(), section);
        }
    };
    section.push(0xc0 | index);
}

/// Appends a literal with the name of one of the first entries of the static table (RFC 9204 section 4.5.4).
fn put_named(index: u8, value: &[u8], section: &mut Vec<u8>) {
    section.push(0x50 | index);
    put_text(value, section);
}

/// Appends a string without Huffman coding: a length with a prefix of 7 bits (RFC 7541 section 5.1), and the bytes.
fn put_text(text: &[u8], section: &mut Vec<u8>) {
    match text.len().checked_sub(0x7f) {
        None => section.push(text.len() as u8),
        Some(mut rest) => {
            section.push(0x7f);
            while rest >= 0x80 {
                section.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            section.push(rest as u8);
        }
    }
    section.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use lowroad_http::h3::qpack::probe::SectionProbe;

    use super::*;

    fn status_of(section: &[u8]) -> u16 {
        let head = SectionProbe::new(0).decode(section).expect("a section");
        let head = head.expect("no dynamic table");
        String::from_utf8_lossy(&head[0].1)
            .parse()
            .expect("a status")
    }

    fn read_in_pieces(bytes: &[u8], len: usize) -> (ResponseFrames, Vec<u8>) {
        let (mut response, mut body) = (ResponseFrames::default(), Vec::new());
        for piece in bytes.chunks(len) {
            let result = response.read(piece, |_, part| {
                Ok(match part {
                    ResponsePart::Head(section) => status_of(section),
                    ResponsePart::Data(data) => {
                        body.extend_from_slice(data);
                        0
                    }
                })
            });
            result.expect("a response");
        }
        (response, body)
    }

    #[test]
    fn response_is_read_in_pieces_of_any_length() {
        // HEADERS with :status 103 and 200 (entries 24 and 25), DATA, a reserved frame, DATA.
        let bytes = b"\x01\x03\0\0\xd8\x01\x03\0\0\xd9\0\x02he\x21\x03abc\0\x03llo";
        for len in 1..=bytes.len() {
            let (response, body) = read_in_pieces(bytes, len);
            assert!(response.is_complete(), "{len}");
            assert_eq!((response.status, response.len), (200, 5), "{len}");
            assert_eq!(body, b"hello");
        }
        for len in 1..bytes.len() {
            let (response, _) = read_in_pieces(&bytes[..len], len);
            // It is complete behind a frame of a final response.
            let is_boundary = [10, 14, 19].contains(&len);
            assert_eq!(response.is_complete(), is_boundary, "{len}");
        }
    }

    #[test]
    fn data_before_the_head_is_malformed() {
        let mut response = ResponseFrames::default();
        let result = response.read(b"\0\x01a", |status, _| Ok(status));
        assert_eq!(result, Err(ResponseFault::Malformed));
    }

    #[test]
    fn request_has_pseudo_fields_and_no_connection_fields() {
        let path = format!("/{}", "a".repeat(300));
        let request = format!(
            "PATCH {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nX-Own: 1\r\n\r\nbody"
        );
        let frames = encode(request.as_bytes()).expect("a request");
        let (head, head_len) = H3FrameHead::decode(&frames).expect("a frame");
        let (section, body) = frames[head_len..].split_at(head.len as usize);
        let fields = SectionProbe::new(0).decode(section).expect("a section");
        let fields = fields.expect("no dynamic table");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let fields: Vec<(String, String)> = fields
            .iter()
            .map(|(name, value)| (text(name), text(value)))
            .collect();
        let expected = [
            (":method", "PATCH"),
            (":scheme", "https"),
            (":authority", "test"),
            (":path", &path),
            ("x-own", "1"),
        ];
        assert_eq!(
            fields,
            expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
        assert_eq!(body, b"\0\x04body");
        let get = encode(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").expect("a request");
        assert_eq!(&get[..6], b"\x01\x0d\0\0\xd1\xd7");
        assert_eq!(encode(b"GET / HTTP/1.1\r\n\r\n"), None);
    }

    #[test]
    fn goaway_is_read_in_pieces() {
        // SETTINGS, and GOAWAY with stream 8.
        let (mut input, mut goaway) = (Vec::new(), None);
        for byte in b"\0\x04\0\x07\x01\x08" {
            input.push(*byte);
            goaway = goaway.or(read_control(&mut input).expect("frames"));
        }
        assert_eq!(goaway, Some(8));
        assert_eq!(input, [0]);
    }
}
