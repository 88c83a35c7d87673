//! Which requests may be answered with what a program answered to another, and which responses may be used again: the key,
//! and the lifetime. Knows neither the store nor how a response is put there.
//!
//! Whether a response may be stored is decided as a shared cache does (RFC 9111): of programs, only with a lifetime that they
//! gave; of origins, all that the RFC allows.

use std::sync::Arc;

use lowroad_cache::freshness::Received;
use lowroad_cache::groups;
use lowroad_cache::lifetime::Storing as Stored;
use lowroad_cache::request::Asked;
use lowroad_cache::storable::{self, NotStorable, Policy};
use lowroad_cache::vary::Selecting;
use lowroad_handler::Fields;
use lowroad_handler::fields::TAG_FIELD;
use lowroad_http::conditional;
use lowroad_http::fields::{FieldNames, Lines};
use lowroad_http::method::Method;
use lowroad_http::range::{self, Ranges};
use lowroad_http::request::{Request, Target};
use lowroad_http::status::Status;
use lowroad_store::key;
use lowroad_store::makings::Job;
use lowroad_store::seen::Since;
use lowroad_store::validity::Lifetime;

/// Fields with which a program may answer otherwise, beside those that it must name in Vary: conditions that only it can
/// judge, and other methods than the request's. Each has to be among those that `Request::concerns_caches` notes.
const SPECIAL: [&[u8]; 5] = [
    b"if-match",
    b"if-unmodified-since",
    b"x-http-method",
    b"x-http-method-override",
    b"x-method-override",
];

/// Separates what is remembered of requests for a range from what is remembered of those for the whole. Its upper half
/// selects another place of the table in [`Makings`](lowroad_store::makings::Makings).
const PART_MARK: u64 = 0x5bd1_e995_9e37_79b9;

/// Under what a request's response is stored.
#[derive(Clone)]
pub struct Key {
    /// See [`key::write_of_program`].
    pub bytes: Arc<[u8]>,
    /// See [`Facts`].
    pub hash: u64,
    /// See [`Facts`].
    pub wants: Wants,
    /// See [`Facts`].
    pub is_conditional: bool,
    /// See [`Facts`].
    pub is_authorized: bool,
    /// It has waited for another's response already.
    pub has_waited: bool,
    /// The fields that responses are known to depend on, with the request's values: others' may be another variant's.
    pub variant: Box<[u8]>,
}

/// What of a representation a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// All of it.
    Whole,
    /// What Range says.
    Part,
    /// Its fields: it is HEAD.
    Head,
}

/// What is known of a key as soon as its bytes are put together: enough to look for what is stored.
#[derive(Clone, Copy)]
pub struct Facts {
    /// The hash of the bytes.
    pub hash: u64,
    /// What the request wants.
    pub wants: Wants,
    /// The response may say that nothing has changed, which is of no use to others.
    pub is_conditional: bool,
    /// The request has credentials: few responses are for others, too.
    pub is_authorized: bool,
}

impl Wants {
    fn of(request: &Request<'_>, has_range: bool) -> Wants {
        match (request.method, has_range) {
            (Method::Get, false) => Wants::Whole,
            (Method::Get, true) => Wants::Part,
            _ => Wants::Head,
        }
    }
}

impl Facts {
    /// Writes to `scratch` the bytes of the key for a request whose response can depend on nothing but target, Host and the
    /// fields that Vary names: GET and HEAD without a body, and credentials but for an origin. Conditions and ranges are for
    /// the stored response to judge. The site is given as its number, and whether it is asked over TLS.
    pub fn of(
        (request, has_body): (&Request<'_>, bool),
        is_origin: bool,
        site: (u32, bool),
        scratch: &mut Vec<u8>,
        hash: impl Fn(&[u8]) -> u64,
    ) -> Option<Facts> {
        let reads = matches!(request.method, Method::Get | Method::Head);
        if !reads || has_body {
            return None;
        }
        let is_authorized = match request.concerns_caches() {
            false => false,
            true => is_authorized_only(request)?,
        };
        if is_authorized && !is_origin {
            return None;
        }
        let facts = Facts::of_target(request, site, scratch, hash)?;
        Some(Facts {
            is_authorized,
            ..facts
        })
    }

    fn of_target(
        request: &Request<'_>,
        site: (u32, bool),
        scratch: &mut Vec<u8>,
        hash: impl Fn(&[u8]) -> u64,
    ) -> Option<Facts> {
        let Target::Origin { path, query, .. } = request.target else {
            return None;
        };
        let host = request.authority.unwrap_or_default();
        key::write_of_program(scratch, site, host, (path, query));
        let asks_otherwise = conditional::may_differ(request);
        let has_condition = asks_otherwise
            && (!request.if_none_match().is_empty() || request.if_modified_since().is_some());
        let has_range = asks_otherwise && request.range().is_some();
        Some(Facts {
            hash: hash(scratch),
            wants: Wants::of(request, has_range),
            is_conditional: has_condition,
            is_authorized: false,
        })
    }

    /// The key with these bytes.
    pub fn key(self, bytes: &[u8]) -> Key {
        Key {
            bytes: bytes.into(),
            hash: self.hash,
            wants: self.wants,
            is_conditional: self.is_conditional,
            is_authorized: self.is_authorized,
            has_waited: false,
            variant: Box::default(),
        }
    }
}

/// Whether a request has credentials; `None` if something in it can make a program answer as no key says.
fn is_authorized_only(request: &Request<'_>) -> Option<bool> {
    let is_special = |name: &[u8]| SPECIAL.iter().any(|f| name.eq_ignore_ascii_case(f));
    let mut is_authorized = false;
    for (name, value) in request.fields() {
        is_authorized |= name.eq_ignore_ascii_case(b"authorization");
        if is_special(name) || hides_fields(name, value) {
            return None;
        }
    }
    Some(is_authorized)
}

impl Key {
    /// The same for one of the variants that are told apart by these fields.
    pub fn of_variant(mut self, selecting: Option<&Selecting>, request: &Request<'_>) -> Key {
        if let Some(selecting) = selecting {
            let mut variant = Vec::new();
            let selecting = selecting.of_request(request.fields());
            selecting.write(&mut variant);
            self.variant = variant.into();
        }
        self
    }

    /// Names the making of the response after so many purges, other than any for another key or variant. Requests for a
    /// range have another than those for the whole, which a 206 does not answer.
    pub fn job(&self, purges: Since) -> Job {
        let key_len = self.bytes.len() as u64;
        let job = [
            &*self.bytes,
            &self.variant,
            &purges.to_le_bytes(),
            &key_len.to_le_bytes(),
            &[u8::from(self.wants == Wants::Part)],
        ];
        job.concat().into()
    }

    /// Whether others may wait for what comes of the request. An origin does not get to see the client's conditions, except
    /// for those of a request for a range. Only of origins the whole is stored that answers a range.
    pub fn is_shareable(&self, is_origin: bool) -> bool {
        let is_for_others = match self.wants {
            Wants::Whole => is_origin || !self.is_conditional,
            Wants::Part => is_origin && !self.is_conditional,
            Wants::Head => false,
        };
        is_for_others && !self.is_authorized && !self.has_waited
    }

    /// The hash under which is remembered that the response to such a request was of no use to others.
    pub fn sharing_mark(&self) -> u64 {
        match self.wants {
            Wants::Part => self.part_mark(),
            Wants::Whole | Wants::Head => self.hash,
        }
    }

    /// The same for requests for a range, mostly since the origin answers them with 206.
    pub fn part_mark(&self) -> u64 {
        self.hash ^ PART_MARK
    }

    /// Whether what comes of the request has its body, and all of it.
    pub fn is_whole(&self) -> bool {
        self.wants == Wants::Whole
    }

    /// The same for a request for all of it.
    pub fn of_whole(self) -> Key {
        Key {
            wants: Wants::Whole,
            ..self
        }
    }
}

/// Whether a request with these field lines asks for one range, without If-Range. An origin that answers it with the whole
/// ignores Range. To other requests it may send the whole because their ranges are too many or malformed, or because the
/// version in If-Range is gone.
pub fn is_plain_range(lines: &[u8]) -> bool {
    let (mut found, mut is_plain) = (0, true);
    for (name, value) in Lines::of(lines) {
        if name.eq_ignore_ascii_case(b"range") {
            found += 1;
            is_plain &= matches!(range::evaluate(value, u64::MAX), Ranges::One(_));
        }
        is_plain &= !name.eq_ignore_ascii_case(b"if-range");
    }
    is_plain && found == 1
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

/// What it takes to judge a response.
pub struct Judge<'j> {
    /// What may be stored of it.
    pub policy: &'j Policy,
    /// What its request said.
    pub asked: &'j Asked,
    /// When its request went out, and what is now, monotonic ms.
    pub begun_ms: u64,
    /// See there.
    pub now_ms: u64,
    /// The purges before that.
    pub purges: Since,
}

/// How a response is stored.
pub struct Judged {
    /// Until when.
    pub lifetime: Lifetime,
    /// Fields to omit.
    pub left_out: FieldNames,
}

impl Judge<'_> {
    /// For whom a response may be used again; `lines` are the field lines of its request. `None` if it may not be, for
    /// it names more than can be compared.
    pub fn selecting(&self, fields: &Fields, lines: &[u8]) -> Option<Selecting> {
        let encoding = self
            .policy
            .encoding_in_key
            .then_some(&b"accept-encoding"[..]);
        Selecting::of(fields.values("Vary").chain(encoding), Lines::of(lines))
    }

    /// Until when a response may be used again.
    ///
    /// # Errors
    /// It may not be, and why.
    pub fn lifetime(&self, status: Status, fields: &Fields) -> Result<Judged, NotStorable> {
        // 304 answers a condition, and nobody who made none.
        if status == Status::NOT_MODIFIED {
            return Err(NotStorable::Status(status.code()));
        }
        let storing = self.decide(self.asked, status, fields)?;
        let authorized = Asked {
            is_authorized: true,
            ..Asked::GET
        };
        Ok(Judged {
            lifetime: Lifetime::new(&storing.lifetime(self.now_ms), storing.freshness.source)
                .for_all(self.decide(&authorized, status, fields).is_ok())
                .since(self.purges)
                .named(names(fields)),
            left_out: storing.left_out,
        })
    }

    fn decide(
        &self,
        asked: &Asked,
        status: Status,
        fields: &Fields,
    ) -> Result<Stored, NotStorable> {
        let date = fields.date();
        let fields = fields
            .lines()
            .chain(date.map(|date| (&b"Date"[..], &date[..])));
        let received = Received {
            at_unix_secs: (lowroad_store::clock::unix_ns() / 1_000_000_000) as u64,
            delay_ms: self.now_ms.saturating_sub(self.begun_ms),
        };
        storable::decide(self.policy, asked, status.code(), fields, &received)
    }
}

/// What it is named by: tags with commas between, and behind each line end a group.
fn names(fields: &Fields) -> Vec<u8> {
    let mut tags: Vec<&[u8]> = fields.values(TAG_FIELD).collect();
    let keys = fields.values("Surrogate-Key");
    tags.extend(keys.flat_map(|keys| keys.split(|b| *b == b' ')));
    let mut names = tags.join(&b","[..]);
    for group in groups::names(fields.values("Cache-Groups")) {
        names.push(b'\n');
        names.extend(group);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowroad_handler::Response;

    fn response() -> Response {
        Response::of(Status::OK, "text/plain", "hello")
    }

    const PROGRAM: Judge<'_> = Judge {
        policy: &Policy::PROGRAM,
        asked: &Asked::GET,
        begun_ms: 0,
        now_ms: 0,
        purges: Since {
            generation: 0,
            forgotten: 0,
        },
    };

    fn lifetime_ms(response: &Response) -> Option<u64> {
        let judged = PROGRAM.lifetime(response.status, &response.fields);
        judged.ok().map(|judged| judged.lifetime.until_ms())
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
    fn a_plain_range_is_one_by_itself() {
        for (lines, is_plain) in [
            ("Range: bytes=0-3\r\n", true),
            ("range: bytes=5-\r\nAccept: */*\r\n", true),
            ("Range: bytes=-3\r\n", true),
            ("Range: bytes=0-3,7-9\r\n", false),
            ("Range: bytes=3-0\r\n", false),
            ("Range: lines=0-3\r\n", false),
            ("Range: bytes=0-3\r\nIf-Range: \"a\"\r\n", false),
            ("Range: bytes=0-3\r\nRange: bytes=0-3\r\n", false),
            ("Accept: */*\r\n", false),
        ] {
            assert_eq!(is_plain_range(lines.as_bytes()), is_plain, "{lines}");
        }
    }

    #[test]
    fn vary_says_for_whom() {
        let response = response()
            .field("Cache-Control", "max-age=60")
            .field("Vary", "Cookie")
            .field("Cache-Tag", "a, b")
            .field("Cache-Tag", "c")
            .field("Surrogate-Key", "d  e")
            .field("Cache-Groups", "\"f,g\"");
        let judged = PROGRAM.lifetime(response.status, &response.fields);
        let lifetime = judged.expect("it may be stored").lifetime;
        let selecting = PROGRAM.selecting(&response.fields, b"Cookie: a\r\n");
        let selecting = selecting.expect("it can be compared");
        assert!(lifetime.tags().eq([b"a", b"b", b"c", b"d", b"e"]));
        assert!(lifetime.groups().eq([b"f,g"]));
        let takes = |lines: &[u8]| selecting.takes(Lines::of(lines));
        assert!(takes(b"cookie: a\r\nX: y\r\n") && !takes(b"Cookie: b\r\n") && !takes(b""));
    }
}
