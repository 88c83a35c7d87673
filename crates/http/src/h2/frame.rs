//! Frames: their headers, the rules for a single frame, and their encoding. Read RFC 9113 §4 and §6, RFC 9218 §7.

use alloc::vec::Vec;

use super::error::{ConnectionError, ErrorCode};

/// The length of a frame header in bytes.
pub const HEAD_LEN: usize = 9;
/// The payload length in bytes that every peer must accept; longer payloads are refused here.
pub const PAYLOAD_LEN_MAX: usize = 16_384;

/// Types of frames.
#[expect(missing_docs, reason = "each is the frame of that name")]
pub mod kind {
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PUSH_PROMISE: u8 = 5;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
    pub const PRIORITY_UPDATE: u8 = 16;
}

/// Flags of frames.
#[expect(missing_docs, reason = "each is the flag of that name")]
pub mod flag {
    pub const END_STREAM: u8 = 1;
    pub const ACK: u8 = 1;
    pub const END_HEADERS: u8 = 4;
    pub const PADDED: u8 = 8;
    pub const PRIORITY: u8 = 32;
}

/// A frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// The length of the payload in bytes.
    pub len: usize,
    /// The type, see [`kind`].
    pub kind: u8,
    /// The flags, see [`flag`].
    pub flags: u8,
    /// The stream; 0 for the connection.
    pub stream: u32,
}

impl FrameHead {
    /// Decodes a frame header.
    #[must_use]
    #[inline]
    pub fn parse(bytes: &[u8; HEAD_LEN]) -> FrameHead {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = *bytes;
        FrameHead {
            len: u32::from_be_bytes([0, l0, l1, l2]) as usize,
            kind,
            flags,
            // The upper bit is reserved (RFC 9113 §4.1).
            stream: u32::from_be_bytes([s0, s1, s2, s3]) & 0x7fff_ffff,
        }
    }

    /// Encodes the frame header.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> [u8; HEAD_LEN] {
        let [_, l0, l1, l2] = (self.len as u32).to_be_bytes();
        let [s0, s1, s2, s3] = self.stream.to_be_bytes();
        [l0, l1, l2, self.kind, self.flags, s0, s1, s2, s3]
    }

    /// Whether a flag is set.
    #[must_use]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Checks a frame by its header alone.
    ///
    /// # Errors
    /// The size or the stream is not allowed for this type. The connection ends even where the RFC requires only a
    /// stream error, as §5.4.1 permits: such a peer is broken.
    #[inline]
    pub fn check(&self) -> Result<(), ConnectionError> {
        // SETTINGS_MAX_FRAME_SIZE is left at its initial value (RFC 9113 §4.2).
        if self.len > PAYLOAD_LEN_MAX {
            return Err(ConnectionError::size("a frame is larger than allowed"));
        }
        // The frequent cases are checked inline, the others out of line.
        match self.kind {
            kind::DATA | kind::HEADERS | kind::CONTINUATION if self.stream != 0 => Ok(()),
            kind::WINDOW_UPDATE if self.len == 4 => Ok(()),
            kind::DATA..=kind::CONTINUATION | kind::PRIORITY_UPDATE => self.check_stream_and_len(),
            _ => Ok(()),
        }
    }

    #[inline(never)]
    fn check_stream_and_len(&self) -> Result<(), ConnectionError> {
        let is_stream_frame = matches!(
            self.kind,
            kind::DATA
                | kind::HEADERS
                | kind::CONTINUATION
                | kind::PRIORITY
                | kind::RST_STREAM
                | kind::PUSH_PROMISE
        );
        if is_stream_frame && self.stream == 0 {
            return Err(ConnectionError::protocol(
                "a frame for a stream with stream 0",
            ));
        }
        // WINDOW_UPDATE is valid for streams and for the connection (RFC 9113 §6.9).
        if !is_stream_frame && self.kind != kind::WINDOW_UPDATE && self.stream != 0 {
            return Err(ConnectionError::protocol(
                "a frame for the connection with a stream",
            ));
        }
        let is_valid_len = match self.kind {
            kind::PRIORITY => self.len == 5,
            kind::RST_STREAM | kind::WINDOW_UPDATE => self.len == 4,
            kind::SETTINGS if self.has(flag::ACK) => self.len == 0,
            kind::SETTINGS => self.len.is_multiple_of(6),
            kind::PING => self.len == 8,
            kind::GOAWAY => self.len >= 8,
            kind::PRIORITY_UPDATE => self.len >= 4,
            _ => true,
        };
        match is_valid_len {
            true => Ok(()),
            false => Err(ConnectionError::size("a frame of an invalid size")),
        }
    }
}

/// The payload without its padding.
///
/// # Errors
/// The padding is longer than the payload.
pub fn unpadded(head: FrameHead, payload: &[u8]) -> Result<&[u8], ConnectionError> {
    if !head.has(flag::PADDED) {
        return Ok(payload);
    }
    let (pad_len, rest) = payload.split_first().ok_or(NO_PAD_LEN)?;
    let len = rest.len().checked_sub(usize::from(*pad_len));
    len.and_then(|len| rest.get(..len)).ok_or(PADDING)
}

pub(super) const NO_PAD_LEN: ConnectionError =
    ConnectionError::size("a padded frame without a padding length");
pub(super) const PADDING: ConnectionError = ConnectionError::protocol("more padding than payload");

/// The field block fragment in the payload of a HEADERS frame. A priority in it is deprecated and ignored (RFC 9113
/// §5.3.2).
///
/// # Errors
/// The payload is too short for its flags.
pub fn fragment(head: FrameHead, payload: &[u8]) -> Result<&[u8], ConnectionError> {
    let rest = unpadded(head, payload)?;
    match head.has(flag::PRIORITY) {
        true => rest
            .get(5..)
            .ok_or(ConnectionError::size("a frame is too short")),
        false => Ok(rest),
    }
}

/// The first four bytes of a payload as a number.
#[must_use]
pub fn word(payload: &[u8]) -> u32 {
    payload
        .first_chunk()
        .map_or(0, |four| u32::from_be_bytes(*four))
}

/// Appends a frame header.
#[inline]
pub fn put_head(kind: u8, flags: u8, stream: u32, len: usize, out: &mut Vec<u8>) {
    let head = FrameHead {
        len,
        kind,
        flags,
        stream,
    };
    out.extend_from_slice(&head.bytes());
}

fn put_frame(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    put_head(kind, flags, stream, payload.len(), out);
    out.extend_from_slice(payload);
}

/// Appends SETTINGS.
pub fn put_settings(settings: &[(u16, u32)], out: &mut Vec<u8>) {
    put_head(kind::SETTINGS, 0, 0, settings.len() * 6, out);
    for (id, value) in settings {
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Appends the acknowledgement of SETTINGS.
pub fn put_settings_ack(out: &mut Vec<u8>) {
    put_frame(kind::SETTINGS, flag::ACK, 0, &[], out);
}

/// Appends PING.
pub fn put_ping(is_ack: bool, data: [u8; 8], out: &mut Vec<u8>) {
    put_frame(kind::PING, u8::from(is_ack), 0, &data, out);
}

/// Appends RST_STREAM.
pub fn put_reset(stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
    put_frame(kind::RST_STREAM, 0, stream, &code.0.to_be_bytes(), out);
}

/// Appends WINDOW_UPDATE.
pub fn put_window_update(stream: u32, increment: u32, out: &mut Vec<u8>) {
    put_frame(
        kind::WINDOW_UPDATE,
        0,
        stream,
        &increment.to_be_bytes(),
        out,
    );
}

/// Appends GOAWAY; `debug_data` is debug data for people.
pub fn put_goaway(last_stream: u32, code: ErrorCode, debug_data: &str, out: &mut Vec<u8>) {
    put_head(kind::GOAWAY, 0, 0, 8 + debug_data.len(), out);
    out.extend_from_slice(&last_stream.to_be_bytes());
    out.extend_from_slice(&code.0.to_be_bytes());
    out.extend_from_slice(debug_data.as_bytes());
}

/// Appends PRIORITY_UPDATE; `value` is a Priority field value.
pub fn put_priority_update(stream: u32, value: &[u8], out: &mut Vec<u8>) {
    put_head(kind::PRIORITY_UPDATE, 0, 0, 4 + value.len(), out);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(value);
}

/// Completes a field block at the end of `out`, which has room for a frame header at `frame_start`: writes the header
/// of the HEADERS frame, and splits the block into CONTINUATION frames as required by the peer's frame size.
pub(super) fn close_block(
    stream: u32,
    is_end: bool,
    frame_start: usize,
    len_max: usize,
    out: &mut Vec<u8>,
) {
    let block_at = frame_start + HEAD_LEN;
    let len = out.len().saturating_sub(block_at);
    let end_stream = if is_end { flag::END_STREAM } else { 0 };
    // END_STREAM is a flag of HEADERS even if CONTINUATION frames follow (RFC 9113 §6.2).
    let (first, flags) = match len <= len_max {
        true => (len, end_stream | flag::END_HEADERS),
        false => (len_max, end_stream),
    };
    let head = FrameHead {
        len: first,
        kind: kind::HEADERS,
        flags,
        stream,
    };
    if let Some(header_slot) = out.get_mut(frame_start..block_at) {
        header_slot.copy_from_slice(&head.bytes());
    }
    if first < len {
        let rest = out.split_off(block_at + first);
        let count = rest.len().div_ceil(len_max);
        for (number, part) in rest.chunks(len_max).enumerate() {
            let is_last = number + 1 == count;
            let flags = if is_last { flag::END_HEADERS } else { 0 };
            put_frame(kind::CONTINUATION, flags, stream, part, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_header_encoding_round_trips() {
        let head = FrameHead {
            len: 0x01_2345,
            kind: kind::HEADERS,
            flags: 5,
            stream: 0x7fff_fffe,
        };
        assert_eq!(head.bytes(), [1, 0x23, 0x45, 1, 5, 0x7f, 0xff, 0xff, 0xfe]);
        assert_eq!(FrameHead::parse(&head.bytes()), head);
        let reserved = [0, 0, 0, 0, 0, 0x80, 0, 0, 1];
        assert_eq!(FrameHead::parse(&reserved).stream, 1);
    }

    #[test]
    fn frame_type_determines_allowed_length_and_stream() {
        // RFC 9113 §4.2 and §6.
        use kind::*;
        let code = |kind, flags, stream, len| {
            let head = FrameHead {
                len,
                kind,
                flags,
                stream,
            };
            head.check().err().map(|fault| fault.code)
        };
        let (size, protocol) = (
            Some(ErrorCode::FRAME_SIZE_ERROR),
            Some(ErrorCode::PROTOCOL_ERROR),
        );
        for (kind, flags, stream, len, wanted) in [
            (DATA, 0, 1, 16_384, None),
            (DATA, 0, 1, 16_385, size),
            (DATA, 0, 0, 1, protocol),
            (HEADERS, 0, 0, 1, protocol),
            (PRIORITY, 0, 1, 5, None),
            (PRIORITY, 0, 0, 5, protocol),
            (PRIORITY, 0, 1, 4, size),
            (RST_STREAM, 0, 1, 4, None),
            (RST_STREAM, 0, 0, 4, protocol),
            (RST_STREAM, 0, 1, 5, size),
            (SETTINGS, 0, 0, 12, None),
            (SETTINGS, 0, 1, 12, protocol),
            (SETTINGS, 0, 0, 13, size),
            (SETTINGS, 1, 0, 0, None),
            (SETTINGS, 1, 0, 6, size),
            (PUSH_PROMISE, 0, 0, 6, protocol),
            (PING, 0, 0, 8, None),
            (PING, 0, 1, 8, protocol),
            (PING, 0, 0, 7, size),
            (GOAWAY, 0, 0, 8, None),
            (GOAWAY, 0, 1, 8, protocol),
            (GOAWAY, 0, 0, 7, size),
            (WINDOW_UPDATE, 0, 0, 4, None),
            (WINDOW_UPDATE, 0, 1, 4, None),
            (WINDOW_UPDATE, 0, 1, 3, size),
            (CONTINUATION, 0, 0, 1, protocol),
            (PRIORITY_UPDATE, 0, 0, 4, None),
            (PRIORITY_UPDATE, 0, 1, 4, protocol),
            (PRIORITY_UPDATE, 0, 0, 3, size),
            (11, 0, 0, 1, None),
            (255, 255, 7, 16_384, None),
            (255, 0, 0, 16_385, size),
        ] {
            assert_eq!(
                code(kind, flags, stream, len),
                wanted,
                "{kind} {flags} {stream} {len}"
            );
        }
    }

    #[test]
    fn fragment_excludes_padding_and_priority() {
        let head = |flags, len| FrameHead {
            len,
            kind: kind::HEADERS,
            flags,
            stream: 1,
        };
        let both = flag::PADDED | flag::PRIORITY;
        let bytes = [2, 0, 0, 0, 0, 9, b'a', b'b', 0, 0];
        assert_eq!(fragment(head(both, 10), &bytes), Ok(&b"ab"[..]));
        assert_eq!(fragment(head(both, 8), &bytes[..8]), Ok(&b""[..]));
        let code = |flags, bytes: &[u8]| {
            let fault = fragment(head(flags, bytes.len()), bytes);
            fault.err().map(|fault| fault.code)
        };
        assert_eq!(code(both, &bytes[..7]), Some(ErrorCode::FRAME_SIZE_ERROR));
        assert_eq!(code(flag::PADDED, &[]), Some(ErrorCode::FRAME_SIZE_ERROR));
        assert_eq!(code(flag::PADDED, &[1]), Some(ErrorCode::PROTOCOL_ERROR));
        assert_eq!(
            code(flag::PRIORITY, &[0; 4]),
            Some(ErrorCode::FRAME_SIZE_ERROR)
        );
    }

    #[test]
    fn field_block_is_split_at_peer_frame_size() {
        // SETTINGS_MAX_FRAME_SIZE bounds each part (RFC 9113 §4.3).
        let mut out = alloc::vec![0; HEAD_LEN];
        out.extend_from_slice(b"abcdefgh");
        close_block(3, true, 0, 3, &mut out);
        let mut wanted = Vec::new();
        put_frame(kind::HEADERS, flag::END_STREAM, 3, b"abc", &mut wanted);
        put_frame(kind::CONTINUATION, 0, 3, b"def", &mut wanted);
        put_frame(kind::CONTINUATION, flag::END_HEADERS, 3, b"gh", &mut wanted);
        assert_eq!(out, wanted);
    }
}
