//! Writes what a program answered: its head with our framing, and its body as it is or as it comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lowroad_dynamic::fields::TAG_FIELD;
use lowroad_dynamic::{Content, Failure, Fields, Response};
use lowroad_engine::{Framing, Part, Streamed};
use lowroad_http::head::HeadWriter;
use lowroad_http::method::Method;
use lowroad_http::range::ByteRange;
use lowroad_http::request::Version;
use lowroad_http::status::Status;
use lowroad_log::Logger;
use lowroad_softirq::fetch::USER_AGENT;

use crate::dynamic::kept::Kept;
use crate::heads;
use crate::respond::{Responder, append};
use crate::sites::At;
use crate::softirq;
use crate::stored::Stored;

/// A longer body is not copied behind its head.
const COPIED_LEN_MAX: usize = 16 * 1024;

/// A response, and what it refers to.
pub struct Reply {
    /// The response.
    pub response: Response,
    stored: Option<Arc<Stored>>,
}

/// A head to be written.
struct Head<'a> {
    status: Status,
    fields: &'a Fields,
    age_s: Option<u64>,
    framing: Framing,
}

impl Reply {
    /// A response; `stored` is what it refers to by [`Content::Stored`], a representation.
    pub fn new(response: Response, stored: Option<Arc<Stored>>) -> Reply {
        Reply { response, stored }
    }

    /// The status.
    pub fn status(&self) -> Status {
        self.response.status
    }

    /// Whether it is worth a closer look.
    pub fn may_be_kept(&self) -> bool {
        self.response.fields.give_lifetime()
    }

    /// The length of the body, if it is known.
    fn len(&self) -> Option<u64> {
        match &self.response.content {
            Content::Bytes(bytes) => Some(bytes.len() as u64),
            Content::Stream { len, .. } => *len,
            Content::Stored(around) => {
                let stored = self.stored.as_ref();
                let stored = stored.and_then(|stored| stored.representation());
                let between = stored.map_or(0, |representation| representation.len);
                Some(around.before.len() as u64 + between + around.after.len() as u64)
            }
        }
    }
}

impl Responder<'_, '_, '_> {
    /// Writes what a program answered.
    pub fn reply(&mut self, at: At<'_>, reply: Reply) -> Status {
        let status = reply.response.status;
        if status.code() < 200 {
            return self.refuse(Some(at), Status::BAD_GATEWAY);
        }
        let framing = self.framing(&reply);
        let head = Head {
            status,
            fields: &reply.response.fields,
            age_s: None,
            framing,
        };
        self.head(at, &head);
        if self.request.method != Method::Head && !status.is_bodiless() {
            self.body(reply, framing);
        }
        status
    }

    /// Writes what a program answered before.
    pub fn kept(&mut self, at: At<'_>, kept: &Kept) -> Status {
        let known = kept.is_known(self.request, self.exchange.unix_s);
        let status = if known {
            Status::NOT_MODIFIED
        } else {
            kept.status
        };
        let head = Head {
            status,
            fields: &kept.fields,
            age_s: Some(kept.age_s(self.exchange.now_ms)),
            framing: Framing::Length(kept.body.len() as u64),
        };
        self.head(at, &head);
        if self.request.method != Method::Head && !status.is_bodiless() {
            self.bytes(kept.body.clone());
        }
        status
    }

    fn head(&mut self, at: At<'_>, head: &Head<'_>) {
        let status = head.status;
        let mut out = HeadWriter::start(&mut self.out.bytes, status, self.exchange.date);
        match head.fields.lines() {
            Some(lines) => out.lines(lines),
            None => {
                let fields = head.fields.iter();
                for (name, value) in
                    fields.filter(|(name, _)| !name.eq_ignore_ascii_case(TAG_FIELD))
                {
                    out.field(name, value);
                }
            }
        }
        // The level below keeps for a while what says nothing, since it is told when files change. Of
        // what programs make nobody tells it.
        let says = self.request.user_agent == Some(USER_AGENT);
        if says && !head.fields.give_lifetime() && softirq::may_ask_from(self.exchange.peer) {
            out.field("Cache-Control", b"no-store");
        }
        if let Some(age_s) = head.age_s {
            out.field_u64("Age", age_s);
        }
        for (name, value) in heads::fields_for_all(at, status) {
            out.field(name, value.as_bytes());
        }
        match head.framing {
            _ if status.is_bodiless() => {}
            Framing::Length(len) => {
                out.field_u64("Content-Length", len);
            }
            Framing::Chunked => {
                out.field("Transfer-Encoding", b"chunked");
            }
            Framing::Close => {}
        }
        out.finish_open();
        let end = self.exchange.head_end(self.request.version);
        self.out.bytes.extend_from_slice(end);
    }

    /// How the body is delimited; may decide that the connection ends with it.
    fn framing(&mut self, reply: &Reply) -> Framing {
        match (reply.len(), self.request.version) {
            (Some(len), _) => Framing::Length(len),
            (None, Version::Http11) => Framing::Chunked,
            (None, Version::Http10) => {
                self.exchange.keep_alive = false;
                Framing::Close
            }
        }
    }

    fn body(&mut self, reply: Reply, framing: Framing) {
        match reply.response.content {
            Content::Bytes(bytes) => self.bytes(bytes),
            Content::Stream { stream, .. } => {
                let streamed = Streamed::new(stream, framing);
                self.out.parts.push(Part::Stream(streamed));
            }
            Content::Stored(around) => {
                self.bytes(around.before);
                let stored = reply.stored.as_ref();
                if let Some(representation) = stored.and_then(|stored| stored.representation()) {
                    let range = ByteRange {
                        start: 0,
                        end: representation.len,
                    };
                    append(representation, range, self.out);
                }
                self.bytes(around.after);
            }
        }
    }

    fn bytes(&mut self, bytes: bytes::Bytes) {
        if self.out.parts.is_empty() && bytes.len() <= COPIED_LEN_MAX {
            self.out.body(&bytes);
        } else if !bytes.is_empty() {
            self.out.parts.push(Part::Bytes(bytes));
        }
    }

    /// Says that a program did not answer: to the client a number, to the log what is behind it.
    pub fn failed(&mut self, at: At<'_>, failure: &Failure, logger: &Logger) -> Status {
        if failure.detail.is_empty() {
            self.refuse_program(at, failure.status, None);
            return failure.status;
        }
        let number = next_number();
        let path = String::from_utf8_lossy(at.path);
        let (code, detail) = (failure.status.code(), &failure.detail);
        let line = format_args!("fault {number}: {code} at {path}: {detail}");
        match code {
            500.. => logger.error(line),
            _ => logger.info(line),
        }
        let explanation = format!("This is fault number {number} in the server's log.");
        self.refuse_program(at, failure.status, Some(&explanation));
        failure.status
    }
}

/// A number for a fault, other than those of earlier runs.
fn next_number() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let start = crate::clock::unix_ns() as u64 / 1_000_000;
    let _ = NEXT.compare_exchange(0, start, Relaxed, Relaxed);
    format!("{:x}", NEXT.fetch_add(1, Relaxed))
}
