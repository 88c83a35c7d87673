//! Computes the freshness lifetime of a response, and its age on arrival. Read RFC 9111 §4.2.

use crate::cache_control::{CacheControl, DeltaSeconds, parse_delta_secs};
use lowroad_http::date;

/// The longest heuristic lifetime.
pub const HEURISTIC_SECS_MAX: u64 = 24 * 3600;
/// The heuristic lifetime is the time since Last-Modified divided by this.
const HEURISTIC_SHARE: u64 = 10;

/// The unparsed fields that determine freshness and age.
#[derive(Clone, Copy, Debug, Default)]
pub struct TimeFields<'a> {
    /// Date
    pub date: SingletonField<'a>,
    /// Expires
    pub expires: SingletonField<'a>,
    /// Last-Modified
    pub last_modified: SingletonField<'a>,
    /// Age; the first of several counts (§5.1).
    pub age: Option<&'a [u8]>,
}

/// A field that should have a single line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SingletonField<'a> {
    /// The field is absent.
    #[default]
    Absent,
    /// Its value; several lines of the same value count as one.
    Value(&'a [u8]),
    /// Lines with different values.
    Conflict,
}

/// When a response was received, by the receiver's clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveTime {
    /// The time of receipt, in seconds since 1970.
    pub at_unix_secs: u64,
    /// The time from sending the request to the receipt.
    pub delay_ms: u64,
}

/// The source of a lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifetimeSource {
    /// `s-maxage` or `max-age` of CDN-Cache-Control (RFC 9213).
    Targeted,
    /// `s-maxage`
    SMaxage,
    /// `max-age`
    MaxAge,
    /// Expires, counted from Date.
    Expires,
    /// The operator's lifetime for responses without one.
    Ttl,
    /// A tenth of the time since Last-Modified.
    Heuristic,
    /// There is no lifetime: the response is stale on arrival, and stored for validation only.
    Absent,
}

/// The freshness lifetime, and the age on arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freshness {
    /// The whole lifetime.
    pub lifetime_secs: u64,
    /// The age on arrival.
    pub age_ms: u64,
    /// The source of the lifetime.
    pub source: LifetimeSource,
}

impl Freshness {
    /// The remaining freshness lifetime; 0 if the response is stale.
    pub fn remaining_ms(&self) -> u64 {
        self.lifetime_secs
            .saturating_mul(1000)
            .saturating_sub(self.age_ms)
    }
}

impl<'a> SingletonField<'a> {
    /// Adds another line.
    #[must_use]
    pub fn combine(self, value: &'a [u8]) -> SingletonField<'a> {
        match self {
            SingletonField::Absent => SingletonField::Value(value),
            SingletonField::Value(previous) if previous == value => self,
            _ => SingletonField::Conflict,
        }
    }

    fn date(self, now_secs: u64) -> Option<u64> {
        match self {
            SingletonField::Value(value) => date::parse(value, now_secs),
            _ => None,
        }
    }
}

/// The explicit freshness lifetime of a response; `None` if it has none. An invalid lifetime counts as 0 (§4.2.1,
/// §5.3).
pub fn explicit(
    control: &CacheControl,
    times: &TimeFields<'_>,
    at_unix_secs: u64,
) -> Option<(u64, LifetimeSource)> {
    let lifetime_from = |delta, source| match delta {
        DeltaSeconds::Absent => None,
        DeltaSeconds::Secs(secs) => Some((secs, source)),
        DeltaSeconds::Invalid => Some((0, source)),
    };
    // RFC 9111 §4.2.1: the order of precedence in a shared cache.
    lifetime_from(control.s_maxage, LifetimeSource::SMaxage)
        .or_else(|| lifetime_from(control.max_age, LifetimeSource::MaxAge))
        .or_else(|| {
            let has_expires = times.expires != SingletonField::Absent;
            has_expires.then(|| (from_expires(times, at_unix_secs), LifetimeSource::Expires))
        })
}

fn from_expires(times: &TimeFields<'_>, at_unix_secs: u64) -> u64 {
    let Some(expires) = times.expires.date(at_unix_secs) else {
        return 0;
    };
    expires.saturating_sub(date_or_arrival(times, at_unix_secs))
}

/// The heuristic lifetime by Last-Modified (§4.2.2); `None` if Last-Modified is absent or not a date.
pub fn heuristic(times: &TimeFields<'_>, at_unix_secs: u64) -> Option<u64> {
    let modified = times.last_modified.date(at_unix_secs)?;
    let unchanged_secs = date_or_arrival(times, at_unix_secs).saturating_sub(modified);
    Some((unchanged_secs / HEURISTIC_SHARE).min(HEURISTIC_SECS_MAX))
}

/// The age on arrival (§4.2.3, `corrected_initial_age`).
pub fn age_ms(times: &TimeFields<'_>, received: &ReceiveTime) -> u64 {
    let apparent_secs = received
        .at_unix_secs
        .saturating_sub(date_or_arrival(times, received.at_unix_secs));
    // An Age that is not a number is ignored (§5.1).
    let age_value_ms = times.age.and_then(first_number).map_or(0, age_field_ms);
    let corrected_ms = age_value_ms.saturating_add(received.delay_ms);
    // RFC 9111 §4.2.3: the larger of the two estimates.
    apparent_secs.saturating_mul(1000).max(corrected_ms)
}

/// Converts the value of Age to ms. Caches truncate Age to whole seconds, so on average the true age is half a second
/// higher. With this correction, a worker with a clock slightly behind that of the storing worker does not send a
/// lower Age than the origin did.
fn age_field_ms(secs: u64) -> u64 {
    const CUT_MS: u64 = 500;
    match secs {
        0 => 0,
        _ => (secs * 1000).saturating_add(CUT_MS),
    }
}

/// The value of Date; without a valid Date, the time of arrival.
fn date_or_arrival(times: &TimeFields<'_>, at_unix_secs: u64) -> u64 {
    times.date.date(at_unix_secs).unwrap_or(at_unix_secs)
}

fn first_number(list: &[u8]) -> Option<u64> {
    parse_delta_secs(list.split(|b| *b == b',').next()?.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_795_207_512;

    fn control(line: &str) -> CacheControl {
        let mut control = CacheControl::default();
        control.add_line(line.as_bytes());
        control
    }

    #[test]
    fn s_maxage_overrides_max_age_and_expires() {
        // RFC 9111 §4.2.1.
        let expires = date::format(NOW + 30);
        let times = TimeFields {
            expires: SingletonField::Value(&expires),
            ..TimeFields::default()
        };
        let of = |line| explicit(&control(line), &times, NOW);
        assert_eq!(
            of("max-age=10, s-maxage=20"),
            Some((20, LifetimeSource::SMaxage))
        );
        assert_eq!(of("max-age=10"), Some((10, LifetimeSource::MaxAge)));
        assert_eq!(of("public"), Some((30, LifetimeSource::Expires)));
        assert_eq!(
            explicit(&control("public"), &TimeFields::default(), NOW),
            None,
            "nothing said"
        );
    }

    #[test]
    fn expires_is_relative_to_date() {
        // The origin's clock may differ, so both times are taken from it.
        let (date, expires) = (date::format(NOW - 100), date::format(NOW + 30));
        let times = TimeFields {
            date: SingletonField::Value(&date),
            expires: SingletonField::Value(&expires),
            ..TimeFields::default()
        };
        assert_eq!(from_expires(&times, NOW), 130);
        let past = TimeFields {
            expires: SingletonField::Value(&date),
            ..TimeFields::default()
        };
        assert_eq!(from_expires(&past, NOW), 0);
    }

    #[test]
    fn invalid_lifetimes_count_as_zero() {
        // RFC 9111 §5.3: `Expires: 0` is a common mark of expired responses.
        for expires in [
            SingletonField::Value(b"0"),
            SingletonField::Value(b"-1"),
            SingletonField::Conflict,
        ] {
            let times = TimeFields {
                expires,
                ..TimeFields::default()
            };
            assert_eq!(
                explicit(&CacheControl::default(), &times, NOW),
                Some((0, LifetimeSource::Expires))
            );
        }
        let invalid = control("max-age=soon");
        assert_eq!(
            explicit(&invalid, &TimeFields::default(), NOW),
            Some((0, LifetimeSource::MaxAge))
        );
        let conflict = control("s-maxage=1, s-maxage=2, max-age=9");
        assert_eq!(
            explicit(&conflict, &TimeFields::default(), NOW),
            Some((0, LifetimeSource::SMaxage))
        );
    }

    #[test]
    fn heuristic_lifetime_is_a_tenth_and_at_most_a_day() {
        let guess = |ago| {
            let modified = date::format(NOW - ago);
            let times = TimeFields {
                last_modified: SingletonField::Value(&modified),
                ..TimeFields::default()
            };
            heuristic(&times, NOW)
        };
        assert_eq!(guess(1000), Some(100));
        assert_eq!(guess(9), Some(0));
        assert_eq!(guess(365 * 24 * 3600), Some(HEURISTIC_SECS_MAX));
        assert_eq!(heuristic(&TimeFields::default(), NOW), None);
        let future = date::format(NOW + 1000);
        let times = TimeFields {
            last_modified: SingletonField::Value(&future),
            ..TimeFields::default()
        };
        assert_eq!(heuristic(&times, NOW), Some(0));
        let bad = TimeFields {
            last_modified: SingletonField::Value(b"yesterday"),
            ..TimeFields::default()
        };
        assert_eq!(heuristic(&bad, NOW), None);
    }

    #[test]
    fn age_is_the_larger_of_apparent_and_corrected_age() {
        // RFC 9111 §4.2.3. An Age of at least 1 s counts half a second more.
        let received = ReceiveTime {
            at_unix_secs: NOW,
            delay_ms: 1500,
        };
        let date = date::format(NOW - 7);
        let age = |date, age| {
            let times = TimeFields {
                date,
                age,
                ..TimeFields::default()
            };
            age_ms(&times, &received)
        };
        assert_eq!(age(SingletonField::Absent, None), 1500);
        assert_eq!(age(SingletonField::Value(&date), None), 7000);
        assert_eq!(age(SingletonField::Value(&date), Some(b"6")), 8000);
        assert_eq!(age(SingletonField::Value(&date), Some(b"9, 1")), 11_000);
        assert_eq!(age(SingletonField::Absent, Some(b"0")), 1500);
        assert_eq!(age(SingletonField::Value(&date), Some(b"old")), 7000);
        let ahead = date::format(NOW + 50);
        assert_eq!(age(SingletonField::Value(&ahead), None), 1500);
        assert_eq!(age(SingletonField::Conflict, None), 1500);
    }
}
