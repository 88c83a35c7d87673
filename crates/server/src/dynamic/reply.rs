//! Writes what a program answered: its head with our framing, and its body as it is or as it comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lowroad_dynamic::fields::TAG_FIELD;
use lowroad_dynamic::{Content, Failure, Fields, Response};
use lowroad_http::h1::BodyLen;
use lowroad_http::range::ByteRange;
use lowroad_http::status::Status;
use lowroad_log::Logger;
use lowroad_softirq::fetch::USER_AGENT;

use crate::dynamic::kept::Kept;
use crate::heads;
use crate::respond::{Responder, append};
use crate::sites::At;
use crate::softirq;
use crate::stored::Stored;

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
    body: BodyLen,
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

    /// What is known of the body's length.
    fn len(&self) -> BodyLen {
        match &self.response.content {
            Content::Bytes(bytes) => BodyLen::Known(bytes.len() as u64),
            Content::Stream { len, .. } => len.map_or(BodyLen::Unknown, BodyLen::Known),
            Content::Stored(around) => {
                let stored = self.stored.as_ref();
                let stored = stored.and_then(|stored| stored.representation());
                let between = stored.map_or(0, |representation| representation.len);
                BodyLen::Known(around.before.len() as u64 + between + around.after.len() as u64)
            }
        }
    }
}

impl Responder<'_, '_> {
    /// Writes what a program answered.
    pub fn reply(&mut self, at: At<'_>, reply: Reply) -> Status {
        let status = reply.response.status;
        if status.code() < 200 {
            return self.refuse(Some(at), Status::BAD_GATEWAY);
        }
        let head = Head {
            status,
            fields: &reply.response.fields,
            age_s: None,
            body: reply.len(),
        };
        if self.head(at, &head) {
            self.body(reply);
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
            body: BodyLen::Known(kept.body.len() as u64),
        };
        if self.head(at, &head) {
            self.response.bytes(kept.body.clone());
        }
        status
    }

    /// Writes the head; whether a body is wanted.
    fn head(&mut self, at: At<'_>, head: &Head<'_>) -> bool {
        let status = head.status;
        let mut out = self.response.head(status);
        match head.fields.lines() {
            Some(lines) => {
                out.lines(lines);
            }
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
        out.end(head.body)
    }

    fn body(&mut self, reply: Reply) {
        match reply.response.content {
            Content::Bytes(bytes) => self.response.bytes(bytes),
            Content::Stream { stream, .. } => self.response.stream(stream),
            Content::Stored(around) => {
                self.response.bytes(around.before);
                let stored = reply.stored.as_ref();
                if let Some(representation) = stored.and_then(|stored| stored.representation()) {
                    let range = ByteRange {
                        start: 0,
                        end: representation.len,
                    };
                    append(representation, range, self.response);
                }
                self.response.bytes(around.after);
            }
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
