//! Fills in a format that an operator has defined.

use std::sync::Arc;

use crate::access::{AccessEntry, DateText, address};
use crate::civil_date;
use crate::decimal::{decimal, thousandths};
use crate::escape::{escaped, escaped_until, json_escaped};
use crate::format::{FormatPart, TextFormat, ValueEscape};
use crate::line_limit::{LineLimit, truncated};
use crate::variable::{self, LogVariable, NamedValue, ValueSource};

/// Properties of a request that only the variables of formats need. Missing texts are empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct EntryDetails<'a> {
    /// The client's port; 0 if it is not known.
    pub peer_port: u16,
    /// The scheme of the request.
    pub scheme: &'a str,
    /// The site.
    pub site: &'a str,
    /// The route.
    pub route: &'a str,
    /// The values that the format names, except arguments.
    pub values: ValueTexts<'a>,
    /// The length of the response's head in bytes.
    pub head_len: u64,
    /// The identifier of the request.
    pub request_id: Option<[u8; 16]>,
    /// The trace, and the span of the request.
    pub trace: Option<([u8; 16], [u8; 8])>,
    /// The attempts at upstream servers.
    pub upstream: UpstreamTexts<'a>,
    /// The TLS session.
    pub tls: TlsTexts<'a>,
    /// The number of the connection; 0 if it is not known.
    pub connection: u64,
    /// The number of the request on its connection; 0 if it is not known.
    pub connection_requests: u64,
    /// The process that writes the entry.
    pub process: LogProcess<'a>,
}

/// The attempts at upstream servers: texts with a value for each attempt, separated by commas.
#[derive(Clone, Copy, Debug, Default)]
pub struct UpstreamTexts<'a> {
    /// The addresses.
    pub address: &'a [u8],
    /// The statuses.
    pub status: &'a [u8],
    /// Times to connect, in seconds.
    pub connect_time: &'a [u8],
    /// Times to the head of the response, in seconds.
    pub header_time: &'a [u8],
    /// Times to the end of the response, in seconds.
    pub response_time: &'a [u8],
}

/// A TLS session. All texts are empty without TLS.
#[derive(Clone, Copy, Debug, Default)]
pub struct TlsTexts<'a> {
    /// The cipher suite.
    pub cipher: &'a str,
    /// The requested server name.
    pub server_name: &'a str,
    /// `r` for a resumed session, otherwise `.`.
    pub session_reused: &'a str,
    /// `SUCCESS` for a verified client certificate, otherwise `NONE`.
    pub client_verify: &'a str,
    /// The subject of the client's certificate.
    pub client_subject: &'a str,
    /// The issuer of the client's certificate.
    pub client_issuer: &'a str,
    /// The serial number of the client's certificate.
    pub client_serial: &'a str,
}

/// A process that writes entries.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogProcess<'a> {
    /// The host.
    pub hostname: &'a str,
    /// The process identifier.
    pub pid: u32,
}

/// Values, adjacent in one buffer.
#[derive(Clone, Copy, Debug, Default)]
pub struct ValueTexts<'a> {
    /// The buffer.
    pub bytes: &'a [u8],
    /// The start of the first value in the buffer, and the end of each value.
    pub bounds: &'a [usize],
}

impl<'a> ValueTexts<'a> {
    fn get(&self, index: usize) -> &'a [u8] {
        let bound = |index: usize| self.bounds.get(index).copied();
        let range = bound(index).zip(bound(index + 1));
        let value = range.and_then(|(start, end)| self.bytes.get(start..end));
        value.unwrap_or_default()
    }
}

/// Formats lines in a format that an operator has defined.
pub struct TextFormatter {
    format: Arc<TextFormat>,
    limit: LineLimit,
    time_local: DateText,
    time_iso8601: DateText,
}

impl TextFormatter {
    /// Creates a formatter for this format.
    pub fn new(format: Arc<TextFormat>) -> TextFormatter {
        TextFormatter {
            format,
            limit: LineLimit::NONE,
            time_local: DateText::default(),
            time_iso8601: DateText::default(),
        }
    }

    /// Limits the length of lines.
    pub fn with_limit(self, limit: LineLimit) -> TextFormatter {
        TextFormatter { limit, ..self }
    }

    /// The format.
    pub fn format(&self) -> &TextFormat {
        &self.format
    }

    /// Appends the line of a response.
    pub fn append(
        &mut self,
        entry: &AccessEntry<'_>,
        details: &EntryDetails<'_>,
        out: &mut Vec<u8>,
    ) {
        let limit = self.limit;
        limit.append(out, |text_len_max, out| {
            self.append_parts(entry, details, text_len_max, out);
        });
        out.push(b'\n');
    }

    fn append_parts(
        &mut self,
        entry: &AccessEntry<'_>,
        details: &EntryDetails<'_>,
        text_len_max: usize,
        out: &mut Vec<u8>,
    ) {
        let unix_s = entry.unix_ms / 1000;
        for part in &self.format.parts {
            let (variable, escape) = match part {
                FormatPart::Literal(text) => {
                    out.extend_from_slice(text);
                    continue;
                }
                FormatPart::Value(variable, escape) => (*variable, *escape),
            };
            match variable {
                LogVariable::TimeLocal => {
                    let date = self.time_local.format(unix_s, civil_date::common_log);
                    out.extend_from_slice(date.as_bytes());
                }
                LogVariable::TimeIso8601 => {
                    let date = self
                        .time_iso8601
                        .format(unix_s, civil_date::rfc3339_seconds);
                    out.extend_from_slice(date.as_bytes());
                    // With a numeric zone, as in nginx; the time is UTC.
                    out.extend_from_slice(b"+00:00");
                }
                LogVariable::RemoteAddr => address(entry.peer, out),
                LogVariable::Named(index) => {
                    let text = named(self.format.values(), index, entry, details);
                    value(truncated(text, text_len_max), escape, out);
                }
                LogVariable::RequestId | LogVariable::TraceId | LogVariable::SpanId => {
                    match identifier(variable, details) {
                        Some(id) => hexadecimal(id, out),
                        None => value(b"", escape, out),
                    }
                }
                LogVariable::Host => host(truncated(entry.host, text_len_max), escape, out),
                _ => match number(variable, entry, details) {
                    Some(LogNumber::Whole(number)) => decimal(number, out),
                    Some(LogNumber::Thousandths(number)) => {
                        decimal(number / 1000, out);
                        out.push(b'.');
                        thousandths(number, out);
                    }
                    None => {
                        let text = truncated(text(variable, entry, details), text_len_max);
                        match variable.is_upstream() {
                            true => list(text, escape, out),
                            false => value(text, escape, out),
                        }
                    }
                },
            }
        }
    }
}

/// The value of a variable that is a number.
enum LogNumber {
    Whole(u64),
    Thousandths(u64),
}

fn number(
    variable: LogVariable,
    entry: &AccessEntry<'_>,
    details: &EntryDetails<'_>,
) -> Option<LogNumber> {
    Some(match variable {
        LogVariable::Status => LogNumber::Whole(entry.status.into()),
        LogVariable::BodyBytesSent => LogNumber::Whole(entry.body_bytes),
        LogVariable::BytesSent => {
            LogNumber::Whole(details.head_len.saturating_add(entry.body_bytes))
        }
        LogVariable::Connection => LogNumber::Whole(details.connection),
        LogVariable::ConnectionRequests => LogNumber::Whole(details.connection_requests),
        LogVariable::Pid => LogNumber::Whole(details.process.pid.into()),
        LogVariable::RemotePort => LogNumber::Whole(details.peer_port.into()),
        LogVariable::RequestTimeUs => LogNumber::Whole(entry.duration_us),
        LogVariable::RequestTime => LogNumber::Thousandths(entry.duration_us / 1000),
        LogVariable::Msec => LogNumber::Thousandths(entry.unix_ms),
        _ => return None,
    })
}

/// The value of a variable that is a text.
fn text<'a>(
    variable: LogVariable,
    entry: &AccessEntry<'a>,
    details: &EntryDetails<'a>,
) -> &'a [u8] {
    match variable {
        LogVariable::RemoteUser => entry.user,
        LogVariable::Request => entry.line,
        LogVariable::RequestMethod => RequestLine::from_text(entry.line).method,
        LogVariable::RequestUri => RequestLine::from_text(entry.line).target,
        LogVariable::Uri => RequestLine::from_text(entry.line).path(),
        LogVariable::Args => RequestLine::from_text(entry.line).query(),
        LogVariable::ServerProtocol => RequestLine::from_text(entry.line).protocol,
        LogVariable::Scheme => details.scheme.as_bytes(),
        LogVariable::HttpHost => entry.host,
        LogVariable::Referer => entry.referer,
        LogVariable::UserAgent => entry.user_agent,
        LogVariable::RequestCompletion if entry.whole => b"OK",
        LogVariable::Site => details.site.as_bytes(),
        LogVariable::Route => details.route.as_bytes(),
        LogVariable::Level => entry.level.as_bytes(),
        LogVariable::Outcome => entry.outcome.as_bytes(),
        LogVariable::SslProtocol => entry.tls.as_bytes(),
        LogVariable::SslCipher => details.tls.cipher.as_bytes(),
        LogVariable::SslServerName => details.tls.server_name.as_bytes(),
        LogVariable::SslSessionReused => details.tls.session_reused.as_bytes(),
        LogVariable::SslClientVerify => details.tls.client_verify.as_bytes(),
        LogVariable::SslClientSubject => details.tls.client_subject.as_bytes(),
        LogVariable::SslClientIssuer => details.tls.client_issuer.as_bytes(),
        LogVariable::SslClientSerial => details.tls.client_serial.as_bytes(),
        LogVariable::UpstreamAddr => details.upstream.address,
        LogVariable::UpstreamStatus => details.upstream.status,
        LogVariable::UpstreamConnectTime => details.upstream.connect_time,
        LogVariable::UpstreamHeaderTime => details.upstream.header_time,
        LogVariable::UpstreamResponseTime => details.upstream.response_time,
        LogVariable::Hostname => details.process.hostname.as_bytes(),
        // The others are no texts, or incomplete.
        _ => b"",
    }
}

/// A named value.
fn named<'a>(
    values: &[NamedValue],
    index: usize,
    entry: &AccessEntry<'a>,
    details: &EntryDetails<'a>,
) -> &'a [u8] {
    match values.get(index) {
        // The request line has it, also in entries without the other values.
        Some(NamedValue {
            source: ValueSource::Argument,
            name,
        }) => variable::argument(RequestLine::from_text(entry.line).query(), name),
        _ => details.values.get(index),
    }
}

/// The value of a variable that is an identifier.
fn identifier<'d>(variable: LogVariable, details: &'d EntryDetails<'_>) -> Option<&'d [u8]> {
    let trace = details.trace.as_ref();
    match variable {
        LogVariable::RequestId => details.request_id.as_ref().map(|id| &id[..]),
        LogVariable::TraceId => trace.map(|(trace_id, _)| &trace_id[..]),
        _ => trace.map(|(_, span_id)| &span_id[..]),
    }
}

fn hexadecimal(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
}

/// Appends the host without its port, in lower case.
fn host(host: &[u8], escape: ValueEscape, out: &mut Vec<u8>) {
    let name_len = match host {
        // The colons of an IPv6 address are within brackets.
        [b'[', ..] => host.iter().position(|byte| *byte == b']').map(|at| at + 1),
        _ => host.iter().position(|byte| *byte == b':'),
    };
    let start = out.len();
    value(&host[..name_len.unwrap_or(host.len())], escape, out);
    out[start..].make_ascii_lowercase();
}

fn value(value: &[u8], escape: ValueEscape, out: &mut Vec<u8>) {
    match (escape, value) {
        // In JSON, an empty value is an empty string and not a dash.
        (ValueEscape::Json, value) => json_escaped(value, out),
        (_, b"") => out.push(b'-'),
        (ValueEscape::Quoted, value) => escaped(value, out),
        (ValueEscape::Word(delimiter), value) => escaped_until(delimiter, value, out),
    }
}

/// The separator of the values of several attempts at upstream servers, as in nginx.
const LIST_SEPARATOR: &[u8] = b", ";

/// Appends the values of a list. The separators are not escaped: the server has written them, and no client can.
fn list(text: &[u8], escape: ValueEscape, out: &mut Vec<u8>) {
    let mut rest = text;
    let separator_len = LIST_SEPARATOR.len();
    while let Some(at) = rest
        .windows(separator_len)
        .position(|it| it == LIST_SEPARATOR)
    {
        value(&rest[..at], escape, out);
        out.extend_from_slice(LIST_SEPARATOR);
        rest = &rest[at + separator_len..];
    }
    value(rest, escape, out);
}

/// The parts of a request line; empty if the line does not have three words.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestLine<'a> {
    method: &'a [u8],
    target: &'a [u8],
    protocol: &'a [u8],
}

impl<'a> RequestLine<'a> {
    /// Splits a request line of an entry.
    pub fn from_text(line: &'a [u8]) -> RequestLine<'a> {
        let mut words = line.split(|byte| *byte == b' ');
        let mut next = || words.next().unwrap_or_default();
        let (method, target, protocol) = (next(), next(), next());
        match protocol.starts_with(b"HTTP/") && words.next().is_none() {
            true => RequestLine {
                method,
                target,
                protocol,
            },
            // Input that is not a request has no such parts.
            false => RequestLine::default(),
        }
    }

    /// The path of the target, without the scheme and authority of the absolute form.
    pub fn path(&self) -> &'a [u8] {
        let end = self.target.iter().position(|byte| *byte == b'?');
        let target = &self.target[..end.unwrap_or(self.target.len())];
        if matches!(target, [b'/' | b'*', ..]) {
            return target;
        }
        let slash = target.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        // http://host/path: the third slash begins the path.
        slash
            .map(|(at, _)| &target[at..])
            .nth(2)
            .unwrap_or_default()
    }

    fn query(&self) -> &'a [u8] {
        let mark = self.target.iter().position(|byte| *byte == b'?');
        mark.map_or(b"", |at| &self.target[at + 1..])
    }
}

#[cfg(test)]
mod tests;
