//! Encoding and decoding of FastCGI 1.0 records, without I/O.
//!
//! A record is eight bytes (version, type, request, length of its content, length of its padding),
//! its content and its padding. See the specification, §3.3 to §3.5, §4.1 and §5.

#[cfg(test)]
mod tests;

use std::ops::Range;

/// The length of a record's header, in bytes.
pub const HEADER_LEN: usize = 8;
/// A record's header.
pub type FastCgiHeader = [u8; HEADER_LEN];
/// The longest content of a record that is sent: a multiple of eight.
pub const CONTENT_LEN_MAX: usize = 0xfff8;
/// The longest accepted FCGI_GET_VALUES_RESULT.
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

/// Appends FCGI_BEGIN_REQUEST for request `id`; with `keeps_connection` the server keeps the connection afterwards.
pub fn write_begin_request(out: &mut Vec<u8>, id: u16, keeps_connection: bool) {
    write_header(out, BEGIN_REQUEST, id, 8);
    let flags = if keeps_connection { KEEP_CONN } else { 0 };
    out.extend_from_slice(&[0, RESPONDER, flags, 0, 0, 0, 0, 0]);
}

/// FCGI_ABORT_REQUEST for request `id`.
pub fn abort(id: u16) -> FastCgiHeader {
    header(ABORT_REQUEST, id, 0)
}

/// The header of an FCGI_STDIN record with `len` bytes, at most [`CONTENT_LEN_MAX`]; 0 ends the body.
pub fn stdin(id: u16, len: usize) -> FastCgiHeader {
    header(STDIN, id, len)
}

/// Appends the same header.
pub fn write_stdin_header(out: &mut Vec<u8>, id: u16, len: usize) {
    out.extend_from_slice(&stdin(id, len));
}

/// Appends FCGI_GET_VALUES with FCGI_MPXS_CONNS: whether the server multiplexes connections.
pub fn write_get_values(out: &mut Vec<u8>) {
    let mut pair = Vec::new();
    write_pair(&mut pair, b"FCGI_MPXS_CONNS", b"");
    write_header(out, GET_VALUES, 0, pair.len());
    out.extend_from_slice(&pair);
}

/// Encodes FCGI_PARAMS at the end of a buffer.
pub struct ParamsWriter<'o> {
    out: &'o mut Vec<u8>,
    id: u16,
    /// The offset of the parameters, after the header of their record.
    start: usize,
}

impl<'o> ParamsWriter<'o> {
    /// Begins the parameters of request `id`.
    pub fn start(out: &'o mut Vec<u8>, id: u16) -> ParamsWriter<'o> {
        write_header(out, PARAMS, id, 0);
        let start = out.len();
        ParamsWriter { out, id, start }
    }

    /// Appends a parameter.
    pub fn write(&mut self, name: &[u8], value: &[u8]) {
        write_pair(self.out, name, value);
    }

    /// Sets the lengths, and splits long parameters into several records.
    pub fn finish(self) {
        let len = self.out.len() - self.start;
        // The usual case: one record; its length is filled in.
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
        // The empty record ends the parameters; without any, the first record is it.
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
    // Lengths up to 127 in one byte, longer ones in four with the top bit set (§3.4).
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
    /// Output of a request, at least one byte: its range in the input.
    Output(u16, Range<usize>),
    /// A request's output is complete (an empty STDOUT record).
    OutputEnd(u16),
    /// Bytes of a request's stderr.
    Complaint(u16, Range<usize>),
    /// The end of a request.
    End(u16, FastCgiEnd),
    /// Whether the server multiplexes connections.
    Multiplexes(bool),
}

/// The protocol status at the end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastCgiEnd {
    /// FCGI_REQUEST_COMPLETE.
    Complete,
    /// FCGI_CANT_MPX_CONN: refused, the server takes one request per connection.
    CannotMultiplex,
    /// FCGI_OVERLOADED: refused, too many requests.
    Overloaded,
    /// FCGI_UNKNOWN_ROLE: refused, the server is no responder.
    UnknownRole,
}

/// The reason why bytes are not FastCGI: the text continues a sentence that begins with the server's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRecord(pub String);

/// Incremental decoder: accepts input split anywhere. Content is returned as it arrives, so that only short records are
/// buffered by the caller.
#[derive(Clone, Debug, Default)]
pub struct FastCgiDecoder {
    kind: u8,
    id: u16,
    content_remaining: usize,
    padding_remaining: usize,
}

impl FastCgiDecoder {
    /// The first event in the bytes, and the number of processed bytes; after `None` the caller passes the rest again,
    /// with more bytes appended.
    ///
    /// # Errors
    /// [`BadRecord`]; the connection is unusable then.
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
                    _ => Some(FastCgiEvent::Complaint(self.id, range)),
                };
                return Ok((event, offset + len));
            }
            // Padding follows the content and is skipped, wherever the input was cut.
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
            if version != 1 {
                return Err(not_fastcgi(header));
            }
            // Output is streamed; the other types are short and wait for their whole content.
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
            check(kind, len, header)?;
            // Incomplete: the same bytes are decoded again with more behind them.
            let Some(content) = bytes.get(start..start + len) else {
                return Ok((None, offset));
            };
            self.padding_remaining = usize::from(padding);
            let event = decode_short_record(kind, id, content, header)?;
            return Ok((Some(event), start + len));
        }
    }
}

/// Whether a record that is not streamed may have this length.
fn check(kind: u8, len: usize, header: &[u8]) -> Result<(), BadRecord> {
    match kind {
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
            let end_status = match content.get(4) {
                Some(0) => FastCgiEnd::Complete,
                Some(1) => FastCgiEnd::CannotMultiplex,
                Some(2) => FastCgiEnd::Overloaded,
                // FastCGI 1.0 §5.5: the protocol status is the fifth byte; other values are undefined.
                Some(3) => FastCgiEnd::UnknownRole,
                _ => return Err(not_fastcgi(header)),
            };
            FastCgiEvent::End(id, end_status)
        }
        // The server does not know FCGI_GET_VALUES.
        UNKNOWN_TYPE => FastCgiEvent::Multiplexes(false),
        _ => FastCgiEvent::Multiplexes(find_value(content, b"FCGI_MPXS_CONNS") == Some(b"1")),
    })
}

/// The value of a name in name-value pairs.
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
    usize::try_from(u32::from_be_bytes(*four) & (u32::MAX >> 1)).ok()
}

fn not_fastcgi(header: &[u8]) -> BadRecord {
    BadRecord(format!(
        "sent an invalid FastCGI record: {}",
        header.escape_ascii()
    ))
}
