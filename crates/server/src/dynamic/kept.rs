//! Responses of programs that may be used again: which, for how long, and under what key. They lie
//! in the same store as files' answers.
//!
//! Whether a response may be kept is decided as a shared cache does (RFC 9111), but only with a
//! lifetime that the program gave, and only where nothing of the request but its target and Host
//! plays a part.

use std::sync::Arc;

use bytes::Bytes;
use lowroad_cache::freshness::{Received, Source};
use lowroad_cache::storable;
use lowroad_dynamic::{Fields, Response};
use lowroad_http::conditional::{self, Precondition, Validators};
use lowroad_http::date;
use lowroad_http::method::Method;
use lowroad_http::request::{Framing, Request, Target};
use lowroad_http::status::Status;

use crate::place::OVERHEAD;
use crate::sites::Site;
use crate::store::SharedStore;
use crate::stored::{Kind, Stored};

/// In the place of an encoding in keys of files' answers.
const MARK: u8 = 0xff;
/// A longer body is not kept.
pub const BODY_LEN_MAX: usize = 1 << 20;
/// Fields with which a program may answer otherwise, beside those that it must name in Vary.
const SPECIAL: [&[u8]; 5] = [
    b"authorization",
    b"if-match",
    b"if-range",
    b"if-unmodified-since",
    b"range",
];

/// A response that was kept.
pub struct Kept {
    pub status: Status,
    pub fields: Fields,
    pub body: Bytes,
    /// When it was made, monotonic ms.
    made_ms: u64,
    /// Until when it may be used, monotonic ms.
    until_ms: u64,
}

impl Kept {
    /// Whether it may still be used.
    pub fn fresh(&self, now_ms: u64) -> bool {
        now_ms < self.until_ms
    }

    /// Its age in seconds, for the field of that name.
    pub fn age_s(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.made_ms) / 1000
    }

    /// Whether the client has it already, by its own account.
    pub fn is_known(&self, request: &Request<'_>, now_s: u64) -> bool {
        let field = |name| self.fields.values(name).next();
        let modified = field("Last-Modified").and_then(|value| date::parse(value, now_s));
        let validators = Validators {
            etag: field("ETag").unwrap_or_default(),
            last_modified: modified,
        };
        let precondition = conditional::evaluate(request, &validators, now_s);
        self.status == Status::OK && precondition == Precondition::NotModified
    }

    fn size(&self) -> u64 {
        (self.body.len() + self.fields.size()) as u64 + OVERHEAD
    }
}

#[cfg(test)]
impl Kept {
    /// A response with these fields, and no more.
    pub fn for_tests(fields: Fields) -> Kept {
        Kept {
            status: Status::OK,
            fields,
            body: Bytes::new(),
            made_ms: 0,
            until_ms: 0,
        }
    }
}

/// Where a response is kept.
#[derive(Clone)]
pub struct Key {
    bytes: Vec<u8>,
    hash: u64,
    /// Purges before the request was put to the program.
    purges: u64,
    /// The request is a GET: what comes of it has its body.
    whole: bool,
}

impl Key {
    /// The key for a request whose response can depend on nothing but target and Host, as far as
    /// HTTP goes: GET and HEAD without a body, credentials and ranges. Those programs answer
    /// each time. Conditions are for the kept response to judge, and 304 is never kept.
    pub fn of(request: &Request<'_>, site: &Site, store: &SharedStore) -> Option<Key> {
        let reads = matches!(request.method, Method::Get | Method::Head);
        let bodiless = matches!(request.framing, Framing::None | Framing::Length(0));
        let mut fields = request.fields();
        let plain = !fields.any(|(name, _)| SPECIAL.iter().any(|f| name.eq_ignore_ascii_case(f)));
        if !reads || !bodiless || !plain {
            return None;
        }
        Key::of_target(request, site, store)
    }

    /// The key that a GET of the same target has, if this request may change what it would give (RFC
    /// 9111 §4.4).
    pub fn of_changed(request: &Request<'_>, site: &Site, store: &SharedStore) -> Option<Key> {
        let changes = !matches!(
            request.method,
            Method::Get | Method::Head | Method::Options | Method::Trace
        );
        changes.then(|| Key::of_target(request, site, store))?
    }

    fn of_target(request: &Request<'_>, site: &Site, store: &SharedStore) -> Option<Key> {
        let Target::Origin { path, query, .. } = request.target else {
            return None;
        };
        let host = request.host.unwrap_or_default();
        let mut bytes = Vec::with_capacity(6 + host.len() + request.line().len());
        bytes.extend_from_slice(&site.id.to_le_bytes());
        bytes.push(MARK);
        bytes.extend_from_slice(host);
        bytes.extend_from_slice(path);
        if let Some(query) = query {
            bytes.push(b'?');
            bytes.extend_from_slice(query);
        }
        Some(Key {
            hash: store.hash(&bytes),
            bytes,
            purges: store.purges(),
            whole: request.method == Method::Get,
        })
    }

    /// The same for a request that was put to its program after so many purges.
    pub fn made_after(self, purges: u64) -> Key {
        Key { purges, ..self }
    }

    /// Host and target of a key in the store, if it is one of these.
    pub fn parts(key: &[u8]) -> Option<(&[u8], &[u8])> {
        let rest = key.get(size_of::<u32>()..)?.strip_prefix(&[MARK])?;
        let slash = rest.iter().position(|byte| *byte == b'/')?;
        Some(rest.split_at(slash))
    }

    /// Forgets what is kept there.
    pub fn forget(&self, store: &SharedStore) {
        store.forget(self.hash, &self.bytes);
    }

    /// What is kept there and may still be used.
    pub fn find(&self, store: &SharedStore, now_ms: u64) -> Option<Arc<Stored>> {
        let stored = store.find(self.hash, &self.bytes)?;
        stored
            .kept()
            .is_some_and(|kept| kept.fresh(now_ms))
            .then_some(stored)
    }

    /// What is to be kept there of a response, once its body is whole; `None` if it may not be.
    pub fn draft(&self, response: &Response, now_ms: u64) -> Option<Draft> {
        // 304 answers a condition, and nobody who made none.
        let whole = self.whole && response.status != Status::NOT_MODIFIED;
        let lifetime_ms = lifetime_ms(response).filter(|_| whole)?;
        let kept = Kept {
            status: response.status,
            fields: response.fields.clone(),
            body: Bytes::new(),
            made_ms: now_ms,
            until_ms: now_ms.saturating_add(lifetime_ms),
        };
        Some(Draft {
            key: self.clone(),
            kept,
        })
    }
}

/// A response that is kept once its body is there.
pub struct Draft {
    key: Key,
    kept: Kept,
}

impl Draft {
    /// Keeps it with this body, unless that is long or there was a purge meanwhile. Says whether
    /// it did.
    pub fn keep(self, store: &SharedStore, body: Bytes) -> bool {
        if body.len() > BODY_LEN_MAX {
            return false;
        }
        let kept = Kept { body, ..self.kept };
        let (size, made_ms) = (kept.size(), kept.made_ms);
        let stored = Stored::new(Kind::Kept(Box::new(kept)), size, None, made_ms);
        let Key {
            purges,
            hash,
            bytes,
            ..
        } = self.key;
        store.insert_after(purges, hash, &bytes, Arc::new(stored))
    }
}

/// For how long a response may be kept, if it may be at all.
fn lifetime_ms(response: &Response) -> Option<u64> {
    let fields = response.fields.iter();
    let fields = fields.map(|(name, value)| (name.as_bytes(), value));
    let varies = fields
        .clone()
        .any(|(name, _)| name.eq_ignore_ascii_case(b"vary"));
    if varies {
        return None;
    }
    let received = Received {
        at_unix_secs: (crate::clock::unix_ns() / 1_000_000_000) as u64,
        delay_ms: 0,
    };
    let freshness = storable::judge(response.status.code(), fields, &received, None).ok()?;
    (freshness.source != Source::Heuristic).then(|| freshness.left_ms())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response() -> Response {
        Response::of(Status::OK, "text/plain", "hello")
    }

    #[test]
    fn keys_tell_what_was_asked() {
        let kept = [&7u32.to_le_bytes()[..], &[MARK], b"a:80/x/y?z"].concat();
        assert_eq!(Key::parts(&kept), Some((&b"a:80"[..], &b"/x/y?z"[..])));
        let file = [&7u32.to_le_bytes()[..], &[0], b"/x"].concat();
        assert_eq!(Key::parts(&file), None);
        assert_eq!(Key::parts(b""), None);
    }

    #[test]
    fn only_what_says_so_is_kept() {
        assert_eq!(lifetime_ms(&response()), None);
        let kept = response().field("Cache-Control", "max-age=60");
        assert_eq!(lifetime_ms(&kept), Some(60_000));
        assert_eq!(lifetime_ms(&kept.field("Vary", "Cookie")), None);
        let private = response().field("Cache-Control", "private, max-age=60");
        assert_eq!(lifetime_ms(&private), None);
        let cookie = response()
            .field("Cache-Control", "max-age=60")
            .field("Set-Cookie", "a=b");
        assert_eq!(lifetime_ms(&cookie), None);
        let guessed = response().field("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(lifetime_ms(&guessed), None);
    }
}
