//! Which requests may be answered with what a program answered to another, and which responses may be used again: the key,
//! and the lifetime. Knows neither the store nor how a response is put there.
//!
//! Whether a response may be stored is decided as a shared cache does (RFC 9111), but only with a lifetime that the
//! program gave.

use std::sync::Arc;

use lowroad_cache::freshness::{Freshness, Received, Source};
use lowroad_cache::storable;
use lowroad_cache::vary::Selecting;
use lowroad_dynamic::fields::TAG_FIELD;
use lowroad_dynamic::{Fields, Response};
use lowroad_http::fields::Lines;
use lowroad_http::method::Method;
use lowroad_http::request::{Request, Target};
use lowroad_http::status::Status;

use crate::store::key;
use crate::store::validity::Lifetime;

/// Fields with which a program may answer otherwise, beside those that it must name in Vary.
const SPECIAL: [&[u8]; 3] = [b"authorization", b"if-match", b"if-unmodified-since"];

/// Under what a request's response is stored.
#[derive(Clone)]
pub struct Key {
    /// See [`key::write_of_program`].
    pub bytes: Arc<[u8]>,
    /// Its hash.
    pub hash: u64,
    /// What comes of the request has its body, and all of it: it is a GET without a range.
    pub is_whole: bool,
    /// The response may say that nothing has changed, which is of no use to others.
    pub is_conditional: bool,
    /// It has waited for another's response already.
    pub has_waited: bool,
}

impl Key {
    /// The key for a request whose response can depend on nothing but target, Host and the fields that Vary names: GET and
    /// HEAD without a body and credentials. Conditions and ranges are for the stored response to judge.
    pub fn of(
        (request, has_body): (&Request<'_>, bool),
        site_id: u32,
        scratch: &mut Vec<u8>,
        hash: impl Fn(&[u8]) -> u64,
    ) -> Option<Key> {
        let reads = matches!(request.method, Method::Get | Method::Head);
        let mut fields = request.fields();
        let is_special = |name: &[u8]| SPECIAL.iter().any(|f| name.eq_ignore_ascii_case(f));
        let plain = !fields.any(|(name, value)| is_special(name) || hides_fields(name, value));
        if !reads || has_body || !plain {
            return None;
        }
        Key::of_target(request, site_id, scratch, hash)
    }

    /// The key that a GET of the same target has, if this request may change what it would give (RFC 9111 §4.4).
    pub fn of_changed(
        request: &Request<'_>,
        site_id: u32,
        scratch: &mut Vec<u8>,
        hash: impl Fn(&[u8]) -> u64,
    ) -> Option<Key> {
        let changes = !matches!(
            request.method,
            Method::Get | Method::Head | Method::Options | Method::Trace
        );
        changes.then(|| Key::of_target(request, site_id, scratch, hash))?
    }

    fn of_target(
        request: &Request<'_>,
        site_id: u32,
        scratch: &mut Vec<u8>,
        hash: impl Fn(&[u8]) -> u64,
    ) -> Option<Key> {
        let Target::Origin { path, query, .. } = request.target else {
            return None;
        };
        let host = request.authority.unwrap_or_default();
        key::write_of_program(scratch, site_id, host, (path, query));
        let has_condition =
            !request.if_none_match().is_empty() || request.if_modified_since().is_some();
        Some(Key {
            bytes: scratch.as_slice().into(),
            hash: hash(scratch),
            is_whole: request.method == Method::Get && request.range().is_none(),
            is_conditional: has_condition,
            has_waited: false,
        })
    }

    /// Whether others may wait for what comes of the request. An origin does not get to see the client's conditions.
    pub fn is_shareable(&self, is_origin: bool) -> bool {
        self.is_whole && (is_origin || !self.is_conditional) && !self.has_waited
    }
}

/// Whether programs may not get to see all fields of the request: what Connection names is for the next hop (RFC 9110
/// §7.6.1). What they answer then is not what they would answer to who sends the same otherwise.
fn hides_fields(name: &[u8], value: &[u8]) -> bool {
    let known = |option: &[u8]| {
        let option = option.trim_ascii();
        let is = |known: &[u8]| option.eq_ignore_ascii_case(known);
        option.is_empty() || is(b"close") || is(b"keep-alive")
    };
    name.eq_ignore_ascii_case(b"connection") && !value.split(|b| *b == b',').all(known)
}

/// Until when, and for whom, a response may be used again; `lines` are the field lines of its request. `None` if it may
/// not be.
pub fn judge(
    response: &Response,
    lines: &[u8],
    now_ms: u64,
    purges: u64,
) -> Option<(Lifetime, Selecting)> {
    // 304 answers a condition, and nobody who made none.
    let fields = &response.fields;
    if response.status == Status::NOT_MODIFIED {
        return None;
    }
    let selecting = Selecting::of(fields.values("Vary"), Lines::of(lines))?;
    let lifetime = lifetime(response.status, fields, now_ms, purges)?;
    Some((lifetime, selecting))
}

/// The same, without looking for whom.
pub fn lifetime(status: Status, fields: &Fields, now_ms: u64, purges: u64) -> Option<Lifetime> {
    if !fields.give_lifetime() {
        return None;
    }
    let freshness = freshness(status, fields)?;
    Some(Lifetime {
        made_ms: now_ms.saturating_sub(freshness.age_ms),
        until_ms: now_ms.saturating_add(freshness.left_ms()),
        purges,
        tags: tags(fields),
    })
}

/// For how long a response may be stored, if it may be at all.
fn freshness(status: Status, fields: &Fields) -> Option<Freshness> {
    let date = fields.date();
    let fields = fields
        .iter()
        .map(|(name, value)| (name.as_bytes(), value))
        .filter(|(name, _)| !name.eq_ignore_ascii_case(b"vary"))
        .chain(date.map(|date| (&b"Date"[..], &date[..])));
    let received = Received {
        at_unix_secs: (crate::clock::unix_ns() / 1_000_000_000) as u64,
        delay_ms: 0,
    };
    let freshness = storable::judge(status.code(), fields, &received, None).ok()?;
    (freshness.source != Source::Heuristic).then_some(freshness)
}

/// What the program named it by, with commas between.
fn tags(fields: &Fields) -> Box<[u8]> {
    let values: Vec<&[u8]> = fields.values(TAG_FIELD).collect();
    values.join(&b","[..]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response() -> Response {
        Response::of(Status::OK, "text/plain", "hello")
    }

    fn lifetime_ms(response: &Response) -> Option<u64> {
        judge(response, b"Cookie: a\r\n", 0, 0).map(|(lifetime, _)| lifetime.until_ms)
    }

    #[test]
    fn only_what_says_so_is_used_again() {
        assert_eq!(lifetime_ms(&response()), None);
        let stored = || response().field("Cache-Control", "max-age=60");
        assert_eq!(lifetime_ms(&stored()), Some(60_000));
        assert_eq!(lifetime_ms(&stored().field("Vary", "*")), None);
        let private = response().field("Cache-Control", "private, max-age=60");
        assert_eq!(lifetime_ms(&private), None);
        assert_eq!(lifetime_ms(&stored().field("Set-Cookie", "a=b")), None);
        let guessed = response().field("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(lifetime_ms(&guessed), None);
    }

    #[test]
    fn vary_says_for_whom() {
        let response = response()
            .field("Cache-Control", "max-age=60")
            .field("Vary", "Cookie")
            .field("Cache-Tag", "a, b")
            .field("Cache-Tag", "c");
        let (lifetime, selecting) =
            judge(&response, b"Cookie: a\r\n", 0, 0).expect("it may be stored");
        assert!(lifetime.has_tag(b"c") && lifetime.has_tag(b"B"));
        let takes = |lines: &[u8]| selecting.takes(Lines::of(lines));
        assert!(takes(b"cookie: a\r\nX: y\r\n") && !takes(b"Cookie: b\r\n") && !takes(b""));
    }
}
