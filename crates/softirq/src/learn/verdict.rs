//! Judges the result of a fetch: a response to publish, or a reason not to. Independent of the published responses.

use super::settings::Settings;
use crate::response::FetchError;
use crate::response::fetched::Fetched;
use crate::response::prepare::{self, Form, PrepareError, Prepared};
use lowroad_cache::exclude;
use lowroad_cache::freshness::{Freshness, Received, Source};
use lowroad_cache::storable::{self, NotStorable};
use lowroad_wire::key::{Class, KeyParts};
use std::fmt;

/// Age is written with five digits.
const AGE_SECS_MAX: u64 = 99_999;

/// A response that may be published.
#[derive(Debug)]
pub struct Accepted {
    /// As fetched, updated by a 304 if that was the response.
    pub stored: Fetched,
    /// The bytes to publish.
    pub prepared: Prepared,
    /// Its age.
    pub age_ms: u64,
    /// Time for which it is published. More than 0.
    pub left_ms: u64,
    /// Source of its lifetime.
    pub source: Source,
}

/// Inputs of the verdict besides the response.
#[derive(Debug)]
pub struct Terms<'s> {
    /// The request.
    pub key: KeyParts<'s>,
    /// The limits.
    pub settings: &'s Settings,
    /// Time from the decision to fetch until now.
    pub delay_ms: u64,
}

/// Why a key is not fetched for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denial {
    /// The response may not be stored.
    NotStorable(NotStorable),
    /// The response can't be prepared for the fast path.
    Unfit(PrepareError),
    /// The origin responded with this 5xx.
    ServerError(u16),
    /// The origin sent a 304 to an unconditional request, or about another representation.
    NotAskedAfter,
    /// The fetch failed.
    Fetch(FetchError),
    /// Too many keys are waiting, or the limits permit no publication.
    Busy,
    /// No room to publish it, or its head is too long.
    NoRoom,
    /// Its path is excluded by this prefix.
    Excluded(String),
}

impl Denial {
    /// The denial of a key with an excluded path.
    pub fn of_path(key: &KeyParts<'_>, settings: &Settings) -> Option<Denial> {
        let prefix = settings.excluded.prefix_of(key.target)?;
        Some(Denial::Excluded(prefix.to_owned()))
    }

    /// A short name for counters.
    pub fn label(&self) -> &'static str {
        match self {
            Denial::NotStorable(reason) => reason.label(),
            Denial::Unfit(PrepareError::TooLong { .. }) => "too-long",
            Denial::Unfit(_) => "response-invalid",
            Denial::ServerError(_) => "server-error",
            Denial::NotAskedAfter => "not-asked-after",
            Denial::Fetch(error) => error.label(),
            Denial::Busy => "busy",
            Denial::NoRoom => "no-room",
            Denial::Excluded(_) => "excluded",
        }
    }

    /// Whether the origin merely failed, so that an older response stays valid.
    pub(super) fn is_failure(&self) -> bool {
        match self {
            Denial::ServerError(_) | Denial::NotAskedAfter | Denial::Busy | Denial::NoRoom => true,
            Denial::Fetch(error) => {
                let says_something = matches!(
                    error,
                    FetchError::TooLong { .. } | FetchError::Unframed | FetchError::ForFew { .. }
                );
                !says_something
            }
            Denial::NotStorable(_) | Denial::Unfit(_) | Denial::Excluded(_) => false,
        }
    }

    pub(super) fn secs(&self, settings: &Settings) -> u64 {
        match self {
            Denial::Unfit(PrepareError::TooLong { .. })
            | Denial::Fetch(
                FetchError::TooLong { .. } | FetchError::Unframed | FetchError::ForFew { .. },
            )
            | Denial::Excluded(_) => settings.denied_long_secs,
            Denial::Busy => 1,
            _ => settings.denied_secs,
        }
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Denial::NotStorable(reason) => reason.fmt(f),
            Denial::Unfit(error) => error.fmt(f),
            Denial::ServerError(status) => write!(f, "the origin answered with status {status}"),
            Denial::NotAskedAfter => {
                f.write_str("the origin answered 304, which does not fit what was asked")
            }
            Denial::Fetch(error) => error.fmt(f),
            Denial::Busy | Denial::NoRoom => f.write_str("there is no room for it now"),
            Denial::Excluded(prefix) if exclude::is_well_known(prefix) => write!(
                f,
                "nothing is learnt of its path (attach --exclude {prefix}, without being told: servers \
                 often answer it to few)"
            ),
            Denial::Excluded(prefix) => {
                write!(
                    f,
                    "nothing is learnt of its path (attach --exclude {prefix})"
                )
            }
        }
    }
}

/// Judges the result of a fetch. `previous` is the response that was validated.
///
/// # Errors
/// Why nothing is published.
pub fn judge(
    result: Result<Fetched, FetchError>,
    previous: Option<&Fetched>,
    terms: &Terms<'_>,
) -> Result<Accepted, Denial> {
    let fetched = result.map_err(Denial::Fetch)?;
    if fetched.status >= 500 {
        return Err(Denial::ServerError(fetched.status));
    }
    let stored = match previous {
        Some(previous) if fetched.status == 304 => {
            if !is_about(&fetched, previous) {
                return Err(Denial::NotAskedAfter);
            }
            previous.updated_by(&fetched)
        }
        // For a conditional key, a 304 is the response to publish.
        None if fetched.status == 304 && !terms.key.is_conditional() => {
            return Err(Denial::NotAskedAfter);
        }
        _ => fetched,
    };
    accept(stored, terms)
}

fn accept(stored: Fetched, terms: &Terms<'_>) -> Result<Accepted, Denial> {
    let settings = terms.settings;
    let received = Received {
        at_unix_secs: stored.at_unix_secs,
        delay_ms: terms.delay_ms,
    };
    let freshness = storable(&stored, &received, settings)?;
    let left_ms = left_ms(&freshness, settings);
    // A fresh response may be too old for the digits of Age.
    if left_ms == 0 {
        return Err(Denial::NotStorable(NotStorable::Stale));
    }
    let len_max = settings.len_max(&terms.key);
    let prepared =
        prepared(&stored, terms.key.class, settings.with_age, len_max).map_err(Denial::Unfit)?;
    Ok(Accepted {
        stored,
        prepared,
        age_ms: freshness.age_ms,
        left_ms,
        source: freshness.source,
    })
}

/// Whether a shared cache may store a response, and for how long it is fresh.
fn storable(
    stored: &Fetched,
    received: &Received,
    settings: &Settings,
) -> Result<Freshness, Denial> {
    storable::judge(stored.status, stored.fields(), received, settings.ttl_secs)
        .map_err(Denial::NotStorable)
}

/// How long a response is published.
fn left_ms(freshness: &Freshness, settings: &Settings) -> u64 {
    let secs_max = match freshness.source {
        Source::Heuristic => settings.lifetime_secs_max.min(settings.guessed_secs_max),
        _ => settings.lifetime_secs_max,
    };
    freshness
        // Age must stay within its five digits.
        .left_ms()
        .min(secs_max.saturating_mul(1000))
        .min((AGE_SECS_MAX * 1000).saturating_sub(freshness.age_ms))
}

pub(super) fn prepared(
    stored: &Fetched,
    class: Class,
    with_age: bool,
    len_max: usize,
) -> Result<Prepared, PrepareError> {
    let form = Form {
        class,
        with_age,
        len_max,
    };
    prepare::prepare(stored, &form)
}

/// Whether a 304 applies to this response: its entity tag does not differ (RFC 9111 §4.3.4). Strength is ignored.
fn is_about(not_modified: &Fetched, previous: &Fetched) -> bool {
    let opaque = |tag| <[u8]>::strip_prefix(tag, b"W/").unwrap_or(tag);
    match (not_modified.field("etag"), previous.field("etag")) {
        (Some(new), Some(old)) => opaque(new) == opaque(old),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowroad_wire::key;
    use lowroad_wire::world::Ignore;

    fn judged(status: u16, fields: &[(&str, &str)], body_len: usize) -> Result<Accepted, String> {
        let owned = |(n, v): &(&str, &str)| (n.as_bytes().to_vec(), v.as_bytes().to_vec());
        let response = Fetched {
            status,
            reason: b"OK".to_vec(),
            fields: fields.iter().map(owned).collect(),
            body: vec![b'x'; body_len],
            at_unix_secs: 1_000_000_000,
        };
        let head = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
        let local = ([192, 0, 2, 1], 80).into();
        let reading = key::read(head, local, Ignore::default()).expect("a key");
        let terms = Terms {
            key: reading.key.parts(),
            settings: &Settings::default(),
            delay_ms: 0,
        };
        judge(Ok(response), None, &terms).map_err(|why| why.to_string())
    }

    #[test]
    fn what_is_fresh_and_short_is_published() {
        let accepted = judged(200, &[("Cache-Control", "max-age=60")], 1300).expect("fresh");
        assert_eq!((accepted.prepared.status, accepted.left_ms), (200, 60_000));
        assert_eq!(accepted.source, Source::MaxAge);
        assert!(accepted.prepared.bytes.len() > 1300);
    }

    #[test]
    fn what_is_not_published_has_a_reason() {
        let fresh = ("Cache-Control", "max-age=60");
        let why = |status, fields: &[_], len| judged(status, fields, len).expect_err("a reason");
        assert!(why(200, &[fresh, ("Set-Cookie", "a=b")], 1).contains("cookie"));
        assert!(why(200, &[], 1).contains("lifetime"));
        // More than ten segments.
        assert!(why(200, &[fresh], 14_700).contains("at most 14480"));
        assert!(why(500, &[fresh], 1).contains("500"));
        assert!(why(304, &[fresh], 0).contains("304"));
    }
}
