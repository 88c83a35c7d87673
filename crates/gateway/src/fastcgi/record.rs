//! Encoding and decoding of FastCGI 1.0 records, without I/O.
//!
//! A record consists of a header of eight bytes (version, type, request ID, length of the content, length of the
//! padding), the content, and the padding. See FastCGI 1.0, §3.3 to §3.5, §4.1 and §5.

#[cfg(test)]
mod tests;

use std::ops::Range;

/// The length of a record's header, in bytes.
pub const HEADER_LEN: usize = 8;
/// A record's header.
pub type FastCgiHeader = [u8; HEADER_LEN];
/// The maximum content length of a record that is sent: a multiple of eight.
pub const CONTENT_LEN_MAX: usize = 0xfff8;
/// The maximum accepted length of FCGI_GET_VALUES_RESULT.
const VALUES_LEN_MAX: usize = 1024;

const BEGIN_REQUEST: u8 = 1;
const ABORT_REQUEST: u8 = 2;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;
const GET_VALUES: u8 = 9;
const GET_VALUES_RESULT: u8 = 10;
const UNKNOWN_TYPE: u8 = 11;

const RESPONDER: u8 = 1;
const KEEP_CONN: u8 = 1;

/// Appends FCGI_BEGIN_REQUEST; with `keeps_connection`, the server keeps the connection open after the request.
pub fn write_begin_request(out: &mut Vec<u8>, id: u16, keeps_connection: bool) {
    write_header(out, BEGIN_REQUEST, id, 8);
    let flags = if keeps_connection { KEEP_CONN } else { 0 };
    out.extend_from_slice(&[0, RESPONDER, flags, 0, 0, 0, 0, 0]);
}

/// The header of FCGI_ABORT_REQUEST.
pub fn abort(id: u16) -> FastCgiHeader {
    header(ABORT_REQUEST, id, 0)
}

/// The header of FCGI_STDIN with `len` bytes of content, at most [`CONTENT_LEN_MAX`]; length 0 ends the body.
pub fn stdin(id: u16, len: usize) -> FastCgiHeader {
    header(STDIN, id, len)
}

/// Appends the header of FCGI_STDIN.
pub fn write_stdin_header(out: &mut Vec<u8>, id: u16, len: usize) {
    out.extend_from_slice(&stdin(id, len));
}

/// Appends FCGI_GET_VALUES for FCGI_MPXS_CONNS, which asks whether the server multiplexes connections.
pub fn write_get_values(out: &mut Vec<u8>) {
    let mut pair = Vec::new();
    write_pair(&mut pair, b"FCGI_MPXS_CONNS", b"");
    write_header(out, GET_VALUES, 0, pair.len());
    out.extend_from_slice(&pair);
}

/// Appends FCGI_PARAMS records to a buffer.
pub struct ParamsWriter<'o> {
    out: &'o mut Vec<u8>,
    id: u16,
    /// The offset in `out` of the first record's content.
    start: usize,
}

impl<'o> ParamsWriter<'o> {
    /// Begins the FCGI_PARAMS of a request.
    pub fn start(out: &'o mut Vec<u8>, id: u16) -> ParamsWriter<'o> {
        write_header(out, PARAMS, id, 0);
        let start = out.len();
        ParamsWriter { out, id, start }
    }

    /// Appends a parameter.
    pub fn write(&mut self, name: &[u8], value: &[u8]) {
        write_pair(self.out, name, value);
    }

    /// Fills in the lengths, and splits a long content into several records.
    pub fn finish(self) {
        let len = self.out.len() - self.start;
        // Usually there is one record, and its length is filled in.
        if len <= CONTENT_LEN_MAX {
            let header = self.start - HEADER_LEN..self.start;
            set_len(&mut self.out[header], len);
        } else {
            let encoded = self.out.split_off(self.start);
            self.out.truncate(self.start - HEADER_LEN);
            for part in encoded.chunks(CONTENT_LEN_MAX) {
                write_header(self.out, PARAMS, self.id, part.len());
                self.out.extend_from_slice(part);
            }
        }
        // An empty record ends the parameters; if there are none, the first record is empty already.
        if len > 0 {
            write_header(self.out, PARAMS, self.id, 0);
        }
    }
}

fn write_header(out: &mut Vec<u8>, kind: u8, id: u16, len: usize) {
    out.extend_from_slice(&header(kind, id, len));
}

fn header(kind: u8, id: u16, len: usize) -> FastCgiHeader {
    let [high, low] = id.to_be_bytes();
    let mut header = [1, kind, high, low, 0, 0, 0, 0];
    set_len(&mut header, len);
    header
}

fn set_len(header: &mut [u8], len: usize) {
    let len = u16::try_from(len).expect("at most CONTENT_LEN_MAX");
    header[4..6].copy_from_slice(&len.to_be_bytes());
}

fn write_pair(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    // Lengths up to 127 take one byte, larger ones four bytes with the top bit set (§3.4).
    for text in [name, value] {
        match u8::try_from(text.len()) {
            Ok(len @ ..=127) => out.push(len),
            _ => {
                let len = u32::try_from(text.len()).unwrap_or(u32::MAX >> 1);
                out.extend_from_slice(&(len | 1 << 31).to_be_bytes());
            }
        }
    }
    out.extend_from_slice(name);
    out.extend_from_slice(value);
}

/// An event from a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FastCgiEvent {
    /// Output of a request: its range in the decoded bytes, never empty.
    Output(u16, Range<usize>),
    /// The output of a request is complete (an empty FCGI_STDOUT record).
    OutputEnd(u16),
    /// Bytes of a request's stderr: their range in the decoded bytes.
    Stderr(u16, Range<usize>),
    /// The request has ended.
    End(u16, FastCgiEnd),
    /// The reply to FCGI_GET_VALUES: whether the server multiplexes connections.
    Multiplexes(bool),
}

/// The protocol status at the end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastCgiEnd {
    /// FCGI_REQUEST_COMPLETE.
    Complete,
    /// FCGI_CANT_MPX_CONN: rejected, as the server takes only one request per connection.
    CannotMultiplex,
    /// FCGI_OVERLOADED: rejected, as there are too many requests.
    Overloaded,
    /// FCGI_UNKNOWN_ROLE: rejected, as the server is not a responder.
    UnknownRole,
}

/// The reason why bytes are not valid FastCGI. Continues a sentence that begins with the server's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRecord(pub String);

/// Incremental decoder, for input that is split anywhere. Output is returned as it arrives; only short records have to
/// be buffered completely by the caller.
#[derive(Clone, Debug, Default)]
pub struct FastCgiDecoder {
    kind: u8,
    id: u16,
    content_remaining: usize,
    padding_remaining: usize,
}

impl FastCgiDecoder {
    /// Returns the first event, and the number of bytes consumed. After `None`, the caller passes the unconsumed bytes
    /// again with more bytes appended.
    ///
    /// # Errors
    /// [`BadRecord`]; the connection is unusable afterwards.
    pub fn next(&mut self, bytes: &[u8]) -> Result<(Option<FastCgiEvent>, usize), BadRecord> {
        let mut offset = 0;
        loop {
            let rest = &bytes[offset..];
            if self.content_remaining > 0 {
                let len = self.content_remaining.min(rest.len());
                self.content_remaining -= len;
                let range = offset..offset + len;
                let event = match self.kind {
                    _ if len == 0 => None,
                    STDOUT => Some(FastCgiEvent::Output(self.id, range)),
                    _ => Some(FastCgiEvent::Stderr(self.id, range)),
                };
                return Ok((event, offset + len));
            }
            // Padding is skipped, also if it is split across calls.
            let padding = self.padding_remaining.min(rest.len());
            self.padding_remaining -= padding;
            offset += padding;
            let Some(header) = bytes[offset..].first_chunk::<HEADER_LEN>() else {
                return Ok((None, offset));
            };
            let [
                version,
                kind,
                id_high,
                id_low,
                len_high,
                len_low,
                padding,
                _,
            ] = *header;
            let id = u16::from_be_bytes([id_high, id_low]);
            let len = usize::from(u16::from_be_bytes([len_high, len_low]));
            // Recognizes a server of another protocol, like HTTP, by the first byte.
            if version != 1 {
                return Err(not_fastcgi(header));
            }
            // Output is returned in parts. Records of other types are short and decoded when complete.
            if matches!(kind, STDOUT | STDERR) {
                (self.kind, self.id, self.content_remaining) = (kind, id, len);
                self.padding_remaining = usize::from(padding);
                offset += HEADER_LEN;
                if kind == STDOUT && len == 0 {
                    return Ok((Some(FastCgiEvent::OutputEnd(id)), offset));
                }
                continue;
            }
            let start = offset + HEADER_LEN;
            // Checked before the content is complete, since the caller buffers as much as the header announces.
            check(kind, len, header)?;
            // If the record is incomplete, its decoding is repeated when more bytes have arrived.
            let Some(content) = bytes.get(start..start + len) else {
                return Ok((None, offset));
            };
            self.padding_remaining = usize::from(padding);
            let event = decode_short_record(kind, id, content, header)?;
            return Ok((Some(event), start + len));
        }
    }
}

/// Checks the length of a record that is decoded when complete.
fn check(kind: u8, len: usize, header: &[u8]) -> Result<(), BadRecord> {
    match kind {
        // Both bodies have eight bytes, including reserved ones (§4.2, §5.5).
        END_REQUEST | UNKNOWN_TYPE if len == 8 => Ok(()),
        GET_VALUES_RESULT if len <= VALUES_LEN_MAX => Ok(()),
        _ => Err(not_fastcgi(header)),
    }
}

fn decode_short_record(
    kind: u8,
    id: u16,
    content: &[u8],
    header: &[u8],
) -> Result<FastCgiEvent, BadRecord> {
    Ok(match kind {
        END_REQUEST => {
            // The protocol status is the fifth byte (§5.5); other values are undefined.
            let end_status = match content.get(4) {
                Some(0) => FastCgiEnd::Complete,
                Some(1) => FastCgiEnd::CannotMultiplex,
                Some(2) => FastCgiEnd::Overloaded,
                Some(3) => FastCgiEnd::UnknownRole,
                _ => return Err(not_fastcgi(header)),
            };
            FastCgiEvent::End(id, end_status)
        }
        // The server does not support FCGI_GET_VALUES.
        UNKNOWN_TYPE => FastCgiEvent::Multiplexes(false),
        _ => FastCgiEvent::Multiplexes(find_value(content, b"FCGI_MPXS_CONNS") == Some(b"1")),
    })
}

/// Finds the value of a name in name-value pairs.
fn find_value<'c>(mut pairs: &'c [u8], wanted: &[u8]) -> Option<&'c [u8]> {
    while !pairs.is_empty() {
        let name_len = take_len(&mut pairs)?;
        let value_len = take_len(&mut pairs)?;
        let (name, rest) = pairs.split_at_checked(name_len)?;
        let (value, rest) = rest.split_at_checked(value_len)?;
        if name == wanted {
            return Some(value);
        }
        pairs = rest;
    }
    None
}

fn take_len(bytes: &mut &[u8]) -> Option<usize> {
    let (first, rest) = bytes.split_first()?;
    if *first < 128 {
        *bytes = rest;
        return Some(usize::from(*first));
    }
    let (four, rest) = bytes.split_first_chunk::<4>()?;
    *bytes = rest;
    // The top bit only marks the long form (§3.4).
    usize::try_from(u32::from_be_bytes(*four) & (u32::MAX >> 1)).ok()
}

fn not_fastcgi(header: &[u8]) -> BadRecord {
    BadRecord(format!(
        "sent an invalid FastCGI record: {}",
        header.escape_ascii()
    ))
}
