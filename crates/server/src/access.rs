//! What is noted of a request, and the access log's lines.
//!
//! A worker gathers lines and hands them over once per turn of its event loop; a thread of the log
//! writes them. If that thread can't keep up, lines are lost and counted, never waited for.

use std::net::IpAddr;

use lowroad_config::Format;
use lowroad_engine::Exchange;
use lowroad_http::h1::first_line;
use lowroad_http::request::Request;
use lowroad_http::status::Status;
use lowroad_log::{Entry, Sink, combined, extended, json};

use crate::dynamic::storing::Way;
use crate::guard::passwords::Credentials;

/// How an answer came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// From memory.
    Hit,
    /// It had to be loaded or looked at first.
    Miss,
    /// Made for this request: redirects by rule, refusals.
    Made,
    /// By a program.
    Program,
    /// From memory, though stale: it may still be used, or its origin failed.
    Stale,
    /// By an origin, and stored, for this request or an equal one.
    Fetched,
    /// From memory, after its origin said that it holds still.
    Revalidated,
    /// By an origin, and not stored.
    Passed,
}

impl Outcome {
    /// That of a request whose response was put into the store, or found there after all.
    pub fn of(way: Way, is_origin: bool) -> Outcome {
        match way {
            _ if !is_origin => Outcome::Program,
            Way::Hit => Outcome::Hit,
            Way::Made | Way::Shared => Outcome::Fetched,
            Way::Validated => Outcome::Revalidated,
            Way::OnError => Outcome::Stale,
        }
    }

    /// The word in the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Hit => "hit",
            Outcome::Miss | Outcome::Fetched => "miss",
            Outcome::Made | Outcome::Program => "made",
            Outcome::Stale => "stale",
            Outcome::Revalidated => "revalidated",
            Outcome::Passed => "pass",
        }
    }

    /// The level that answered.
    fn level(self) -> &'static str {
        match self {
            Outcome::Program => "module",
            Outcome::Fetched | Outcome::Revalidated | Outcome::Passed => "origin",
            _ => "worker",
        }
    }
}

/// What is noted of a request until its answer has left.
pub struct Record {
    peer: IpAddr,
    unix_ms: u64,
    started_ms: u64,
    status: u16,
    outcome: Outcome,
    /// Whom it has shown to be; empty for nobody.
    user: Box<[u8]>,
    line: Box<[u8]>,
    host: Box<[u8]>,
    referer: Box<[u8]>,
    user_agent: Box<[u8]>,
    /// The version of TLS; empty if it was not spoken.
    tls: &'static str,
}

/// A request line of garbage is cut to this.
const LINE_LEN_MAX: usize = 1024;

impl Record {
    /// A note of a request.
    pub fn of(
        request: &Request<'_>,
        exchange: &Exchange,
        status: Status,
        outcome: Outcome,
    ) -> Box<Record> {
        let copy = |field: Option<&[u8]>| field.unwrap_or_default().into();
        Box::new(Record {
            user: user(request, exchange),
            line: line(request, exchange),
            host: copy(request.authority),
            referer: copy(request.referer()),
            user_agent: copy(request.user_agent()),
            ..Record::bare(exchange, status, outcome)
        })
    }

    /// A note of what was no request.
    pub fn of_refused(input: &[u8], exchange: &Exchange, status: Status) -> Box<Record> {
        let line = first_line(input);
        let line = &line[..line.len().min(LINE_LEN_MAX)];
        Box::new(Record {
            line: line.into(),
            ..Record::bare(exchange, status, Outcome::Made)
        })
    }

    fn bare(exchange: &Exchange, status: Status, outcome: Outcome) -> Record {
        Record {
            peer: exchange.peer,
            unix_ms: exchange.unix_s * 1000,
            started_ms: exchange.started_ms,
            status: status.code(),
            outcome,
            user: Box::default(),
            line: Box::default(),
            host: Box::default(),
            referer: Box::default(),
            user_agent: Box::default(),
            tls: exchange.secured.as_ref().map_or("", |it| it.version),
        }
    }
}

/// The user whose password was verified.
fn user(request: &Request<'_>, exchange: &Exchange) -> Box<[u8]> {
    if !exchange.is_user {
        return Box::default();
    }
    let shown = Credentials::of(request);
    shown.map_or_else(Box::default, |shown| shown.user.into_bytes().into())
}

/// The request line, as logs show it for every protocol.
fn line(request: &Request<'_>, exchange: &Exchange) -> Box<[u8]> {
    let method = request.method.as_str().as_bytes();
    let protocol = exchange.protocol.as_str().as_bytes();
    [method, b" ", request.raw_target(), b" ", protocol]
        .concat()
        .into()
}

/// One worker's end of the access log.
pub struct AccessLog {
    sink: Sink,
    format: Format,
    lines: Vec<u8>,
}

/// Lines handed over at a time.
const BATCH_LEN: usize = 32 * 1024;

impl AccessLog {
    /// A log into `sink`.
    pub fn new(sink: Sink, format: Format) -> AccessLog {
        AccessLog {
            sink,
            format,
            lines: Vec::with_capacity(BATCH_LEN),
        }
    }

    /// Writes a line; `whole` is false for an answer that was cut.
    pub fn write(&mut self, record: &Record, body_len: u64, whole: bool, now_ms: u64) {
        let entry = Entry {
            peer: record.peer,
            user: &record.user,
            unix_ms: record.unix_ms,
            line: &record.line,
            host: &record.host,
            status: record.status,
            body_bytes: body_len,
            whole,
            referer: &record.referer,
            user_agent: &record.user_agent,
            duration_us: now_ms.saturating_sub(record.started_ms) * 1000,
            outcome: record.outcome.as_str(),
            level: record.outcome.level(),
            tls: record.tls,
        };
        match self.format {
            Format::Combined => combined(&entry, &mut self.lines),
            Format::Extended => extended(&entry, &mut self.lines),
            Format::Json => json(&entry, &mut self.lines),
        }
        if self.lines.len() >= BATCH_LEN {
            self.flush();
        }
    }

    /// Hands over what was gathered.
    pub fn flush(&mut self) {
        if !self.lines.is_empty() {
            let batch = std::mem::replace(&mut self.lines, Vec::with_capacity(BATCH_LEN));
            // Lost lines are counted by the log.
            let _ = self.sink.push(batch);
        }
    }
}
