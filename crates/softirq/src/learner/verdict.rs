//! Judges the result of a fetch: returns either a response to publish or the reason for a denial. Independent of the
//! published responses.

use super::settings::LearnSettings;
use crate::response::FetchError;
use crate::response::encoder::{self, EncodedResponse, PrepareError, PrepareOptions};
use crate::response::fetched_response::FetchedResponse;
use lowroad_cache::excluded_paths;
use lowroad_cache::freshness::{Freshness, LifetimeSource, ReceiveTime};
use lowroad_cache::storage_policy::{self, StorageRefusal};
use lowroad_wire::key::{ConnectionClass, KeyParts};
use std::fmt;

/// Age is written with five digits.
const AGE_SECS_MAX: u64 = 99_999;

/// A response that may be published.
#[derive(Debug)]
pub struct PublishableResponse {
    /// The response as fetched; after a 304, the previous response updated by it.
    pub stored: FetchedResponse,
    /// The bytes to publish.
    pub prepared: EncodedResponse,
    /// The response's age.
    pub age_ms: u64,
    /// Time for which the response will be published, more than 0.
    pub remaining_ms: u64,
    /// Source of the freshness lifetime.
    pub source: LifetimeSource,
}

/// Inputs of the verdict besides the response.
#[derive(Debug)]
pub struct VerdictTerms<'s> {
    /// The key of the request.
    pub key: KeyParts<'s>,
    /// The limits.
    pub settings: &'s LearnSettings,
    /// Time from the decision to fetch until now.
    pub delay_ms: u64,
}

/// The reason for which a key is not fetched for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchDenial {
    /// The response may not be stored.
    NotStorable(StorageRefusal),
    /// The response can't be prepared for the fast path.
    Unfit(PrepareError),
    /// The origin responded with this 5xx.
    ServerError(u16),
    /// The origin sent a 304 to an unconditional request, or with the entity tag of another representation.
    UnexpectedNotModified,
    /// The fetch failed.
    Fetch(FetchError),
    /// Too many keys are waiting for a fetch, or the limits leave no room for the response.
    Busy,
    /// The level had no room for the response, or its head is too long.
    NoRoom,
    /// The key's path is excluded by this prefix.
    Excluded(String),
}

impl FetchDenial {
    /// The denial of a key with an excluded path.
    pub fn for_path(key: &KeyParts<'_>, settings: &LearnSettings) -> Option<FetchDenial> {
        let prefix = settings.excluded.matching_prefix(key.target)?;
        Some(FetchDenial::Excluded(prefix.to_owned()))
    }

    /// A short name for counters.
    pub fn label(&self) -> &'static str {
        match self {
            FetchDenial::NotStorable(reason) => reason.label(),
            FetchDenial::Unfit(PrepareError::TooLong { .. }) => "too-long",
            FetchDenial::Unfit(_) => "response-invalid",
            FetchDenial::ServerError(_) => "server-error",
            FetchDenial::UnexpectedNotModified => "not-asked-after",
            FetchDenial::Fetch(error) => error.label(),
            FetchDenial::Busy => "busy",
            FetchDenial::NoRoom => "no-room",
            FetchDenial::Excluded(_) => "excluded",
        }
    }

    /// Whether the origin merely failed, so that an older response stays usable.
    pub(super) fn is_failure(&self) -> bool {
        match self {
            FetchDenial::ServerError(_)
            | FetchDenial::UnexpectedNotModified
            | FetchDenial::Busy
            | FetchDenial::NoRoom => true,
            FetchDenial::Fetch(error) => {
                // These three errors are properties of the response itself, not failures to get it.
                let is_response_property = matches!(
                    error,
                    FetchError::TooLong { .. }
                        | FetchError::Unframed
                        | FetchError::DiffersBySource { .. }
                );
                !is_response_property
            }
            FetchDenial::NotStorable(_) | FetchDenial::Unfit(_) | FetchDenial::Excluded(_) => false,
        }
    }

    pub(super) fn secs(&self, settings: &LearnSettings) -> u64 {
        match self {
            FetchDenial::Unfit(PrepareError::TooLong { .. })
            | FetchDenial::Fetch(
                FetchError::TooLong { .. }
                | FetchError::Unframed
                | FetchError::DiffersBySource { .. },
            )
            | FetchDenial::Excluded(_) => settings.denied_long_secs,
            FetchDenial::Busy => 1,
            _ => settings.denied_secs,
        }
    }
}

impl fmt::Display for FetchDenial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FetchDenial::NotStorable(reason) => reason.fmt(f),
            FetchDenial::Unfit(error) => error.fmt(f),
            FetchDenial::ServerError(status) => {
                write!(f, "the origin answered with status {status}")
            }
            FetchDenial::UnexpectedNotModified => {
                f.write_str("the origin answered 304, which does not match the request")
            }
            FetchDenial::Fetch(error) => error.fmt(f),
            FetchDenial::Busy | FetchDenial::NoRoom => f.write_str("no memory is free for it now"),
            FetchDenial::Excluded(prefix) if excluded_paths::is_well_known(prefix) => write!(
                f,
                "its path is excluded (as by attach --exclude {prefix}), because servers often \
                 restrict it to some clients"
            ),
            FetchDenial::Excluded(prefix) => {
                write!(f, "its path is excluded (attach --exclude {prefix})")
            }
        }
    }
}

/// Judges the result of a fetch. `previous` is the response that was validated.
///
/// # Errors
/// The reason for which nothing is published.
pub fn judge(
    result: Result<FetchedResponse, FetchError>,
    previous: Option<&FetchedResponse>,
    terms: &VerdictTerms<'_>,
) -> Result<PublishableResponse, FetchDenial> {
    let fetched = result.map_err(FetchDenial::Fetch)?;
    // RFC 9111 §4.3.3: a server error may be treated as if the server had not answered.
    if fetched.status >= 500 {
        return Err(FetchDenial::ServerError(fetched.status));
    }
    let stored = match previous {
        Some(previous) if fetched.status == 304 => {
            if !applies_to(&fetched, previous) {
                return Err(FetchDenial::UnexpectedNotModified);
            }
            previous.updated_by(&fetched)
        }
        // For a conditional key, a 304 is the response to publish.
        None if fetched.status == 304 && !terms.key.is_conditional() => {
            return Err(FetchDenial::UnexpectedNotModified);
        }
        _ => fetched,
    };
    accept(stored, terms)
}

fn accept(
    stored: FetchedResponse,
    terms: &VerdictTerms<'_>,
) -> Result<PublishableResponse, FetchDenial> {
    let settings = terms.settings;
    let received = ReceiveTime {
        at_unix_secs: stored.at_unix_secs,
        delay_ms: terms.delay_ms,
    };
    let freshness = storable(&stored, &received, settings)?;
    let remaining_ms = publication_ms(&freshness, settings);
    // A response may be fresh and still too old for the five digits of Age.
    if remaining_ms == 0 {
        return Err(FetchDenial::NotStorable(StorageRefusal::Stale));
    }
    let len_max = settings.len_max(&terms.key);
    let prepared = encode_response(&stored, terms.key.class, settings.with_age, len_max)
        .map_err(FetchDenial::Unfit)?;
    Ok(PublishableResponse {
        stored,
        prepared,
        age_ms: freshness.age_ms,
        remaining_ms,
        source: freshness.source,
    })
}

/// Whether a shared cache may store a response, and for how long it is fresh.
fn storable(
    stored: &FetchedResponse,
    received: &ReceiveTime,
    settings: &LearnSettings,
) -> Result<Freshness, FetchDenial> {
    storage_policy::decide_strict(stored.status, stored.fields(), received, settings.ttl_secs)
        .map_err(FetchDenial::NotStorable)
}

/// Time for which a response is published.
fn publication_ms(freshness: &Freshness, settings: &LearnSettings) -> u64 {
    let secs_max = match freshness.source {
        // A heuristic lifetime is a guess, so it has a separate limit.
        LifetimeSource::Heuristic => settings.lifetime_secs_max.min(settings.guessed_secs_max),
        _ => settings.lifetime_secs_max,
    };
    freshness
        // Age must not exceed its five digits.
        .remaining_ms()
        .min(secs_max.saturating_mul(1000))
        .min((AGE_SECS_MAX * 1000).saturating_sub(freshness.age_ms))
}

pub(super) fn encode_response(
    stored: &FetchedResponse,
    class: ConnectionClass,
    with_age: bool,
    len_max: usize,
) -> Result<EncodedResponse, PrepareError> {
    let options = PrepareOptions {
        class,
        with_age,
        len_max,
    };
    encoder::prepare(stored, &options)
}

/// Whether a 304 applies to this response: their entity tags do not differ (RFC 9111 §4.3.4), compared weakly.
fn applies_to(not_modified: &FetchedResponse, previous: &FetchedResponse) -> bool {
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
    use lowroad_wire::segment_context::IgnoredFields;

    fn judge_with(
        status: u16,
        fields: &[(&str, &str)],
        body_len: usize,
    ) -> Result<PublishableResponse, String> {
        let owned = |(n, v): &(&str, &str)| (n.as_bytes().to_vec(), v.as_bytes().to_vec());
        let response = FetchedResponse {
            status,
            reason: b"OK".to_vec(),
            fields: fields.iter().map(owned).collect(),
            body: vec![b'x'; body_len],
            at_unix_secs: 1_000_000_000,
        };
        let head = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
        let local = ([192, 0, 2, 1], 80).into();
        let reading = key::read(head, local, IgnoredFields::default()).expect("a key");
        let terms = VerdictTerms {
            key: reading.key.parts(),
            settings: &LearnSettings::default(),
            delay_ms: 0,
        };
        judge(Ok(response), None, &terms).map_err(|why| why.to_string())
    }

    #[test]
    fn fresh_response_within_the_limits_is_published() {
        let accepted = judge_with(200, &[("Cache-Control", "max-age=60")], 1300).expect("fresh");
        assert_eq!(
            (accepted.prepared.status, accepted.remaining_ms),
            (200, 60_000)
        );
        assert_eq!(accepted.source, LifetimeSource::MaxAge);
        assert!(accepted.prepared.bytes.len() > 1300);
    }

    #[test]
    fn denied_responses_have_a_reason() {
        let fresh = ("Cache-Control", "max-age=60");
        let why =
            |status, fields: &[_], len| judge_with(status, fields, len).expect_err("a reason");
        assert!(why(200, &[fresh, ("Set-Cookie", "a=b")], 1).contains("cookie"));
        assert!(why(200, &[], 1).contains("lifetime"));
        // More than ten segments.
        assert!(why(200, &[fresh], 14_700).contains("at most 14480"));
        assert!(why(500, &[fresh], 1).contains("500"));
        assert!(why(304, &[fresh], 0).contains("304"));
    }
}
