//! Whether a shared cache may store a response to a GET and answer with it unasked, and why not. It
//! knows nothing of requests: who calls it has made sure that the request had no Authorization, no
//! Range, and no field that is not part of the key. Read RFC 9111 §3 and §4, RFC 9110 §15.1.
//!
//! Stricter than the RFC: nothing is answered stale, what would have to be validated before each
//! use is not stored, and neither is what sets a cookie.

use crate::cache_control::CacheControl;
use crate::freshness::{self, Freshness, Received, Source, Times};
use alloc::string::String;
use core::fmt;

/// Why a response is not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotStorable {
    /// Its status is not final, or depends on more than the key.
    Status(u16),
    /// Its status may only be stored with an explicit lifetime, and there is none.
    StatusNeedsLifetime(u16),
    /// `must-understand`, and the status is not one of those that are understood.
    NotUnderstood(u16),
    /// `no-store`
    NoStore,
    /// `private`
    Private,
    /// `no-cache`: each use would have to be validated.
    NoCache,
    /// It sets a cookie.
    SetCookie,
    /// Vary names a field that is no part of the key, or `*`.
    Vary(String),
    /// Cache-Control cannot be read.
    Malformed,
    /// `must-revalidate` without an explicit lifetime: no time is guessed for it.
    MustRevalidate,
    /// It gives no lifetime, nothing to guess one from, and the operator gave none.
    NoLifetime,
    /// It is not fresh when it comes.
    Stale,
}

impl NotStorable {
    /// A short name for counters.
    pub fn label(&self) -> &'static str {
        match self {
            NotStorable::Status(_) => "status",
            NotStorable::StatusNeedsLifetime(_) => "status-without-lifetime",
            NotStorable::NotUnderstood(_) => "must-understand",
            NotStorable::NoStore => "no-store",
            NotStorable::Private => "private",
            NotStorable::NoCache => "no-cache",
            NotStorable::SetCookie => "set-cookie",
            NotStorable::Vary(_) => "vary",
            NotStorable::Malformed => "cache-control-malformed",
            NotStorable::MustRevalidate => "must-revalidate",
            NotStorable::NoLifetime => "no-lifetime",
            NotStorable::Stale => "stale",
        }
    }
}

impl fmt::Display for NotStorable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotStorable::Status(status) => {
                write!(f, "responses with status {status} are never stored")
            }
            NotStorable::StatusNeedsLifetime(status) => write!(
                f,
                "status {status} needs an explicit lifetime to be stored; set Cache-Control: max-age"
            ),
            NotStorable::NotUnderstood(status) => write!(
                f,
                "Cache-Control has must-understand, and what status {status} asks of a cache is not known"
            ),
            NotStorable::NoStore => f.write_str("Cache-Control has no-store"),
            NotStorable::Private => f.write_str("Cache-Control has private, and this cache is shared"),
            NotStorable::NoCache => f.write_str(
                "Cache-Control (or Pragma) has no-cache: each use would have to be validated; use max-age instead",
            ),
            NotStorable::SetCookie => f.write_str("the response sets a cookie"),
            NotStorable::Vary(name) => write!(
                f,
                "Vary names {name:?}; only Accept-Encoding is told apart"
            ),
            NotStorable::Malformed => f.write_str("Cache-Control cannot be read"),
            NotStorable::MustRevalidate => f.write_str(
                "Cache-Control has must-revalidate and the response gives no lifetime; add max-age",
            ),
            NotStorable::NoLifetime => f.write_str(
                "the response gives no lifetime; set Cache-Control: max-age, or a ttl for such responses",
            ),
            NotStorable::Stale => f.write_str(
                "the response is not fresh when it comes (a lifetime of 0, an Expires that is past or no date, or an Age beyond it)",
            ),
        }
    }
}

impl core::error::Error for NotStorable {}

/// Judges the response to a GET. `ttl_secs` is the operator's lifetime for responses that give none;
/// if it is set, nothing is guessed from Last-Modified.
///
/// # Errors
/// The first reason found not to store the response.
pub fn judge<'a>(
    status: u16,
    fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    received: &Received,
    ttl_secs: Option<u64>,
) -> Result<Freshness, NotStorable> {
    let seen = Seen::read(fields)?;
    allowed(status, &seen)?;
    let (lifetime_secs, source) = lifetime(status, &seen, received.at_unix_secs, ttl_secs)?;
    let freshness = Freshness {
        lifetime_secs,
        age_ms: freshness::age_ms(&seen.times, received),
        source,
    };
    match freshness.left_ms() {
        0 => Err(NotStorable::Stale),
        _ => Ok(freshness),
    }
}

/// The fields of a response that matter here.
#[derive(Debug, Default)]
struct Seen<'a> {
    control: CacheControl,
    times: Times<'a>,
    sets_cookie: bool,
    /// `Pragma: no-cache`, which is a request field; servers that send it mean Cache-Control.
    pragma_no_cache: bool,
}

impl<'a> Seen<'a> {
    fn read(
        fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<Seen<'a>, NotStorable> {
        let mut seen = Seen::default();
        for (name, value) in fields {
            let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
            let value = value.trim_ascii();
            let times = &mut seen.times;
            if is("cache-control") {
                seen.control.add_line(value);
            } else if is("vary") {
                check_vary(value)?;
            } else if is("date") {
                times.date = times.date.and(value);
            } else if is("expires") {
                times.expires = times.expires.and(value);
            } else if is("last-modified") {
                times.last_modified = times.last_modified.and(value);
            } else if is("age") {
                times.age = times.age.or(Some(value));
            } else if is("pragma") {
                let says = |member: &[u8]| member.trim_ascii().eq_ignore_ascii_case(b"no-cache");
                seen.pragma_no_cache |= value.split(|b| *b == b',').any(says);
            }
            seen.sets_cookie |= is("set-cookie") || is("set-cookie2");
        }
        Ok(seen)
    }

    fn no_cache(&self) -> bool {
        self.control.no_cache || (self.pragma_no_cache && !self.control.present)
    }
}

/// Fails with the first name that is not Accept-Encoding.
fn check_vary(value: &[u8]) -> Result<(), NotStorable> {
    let foreign = value
        .split(|b| *b == b',')
        .map(<[u8]>::trim_ascii)
        .find(|name| !name.is_empty() && !name.eq_ignore_ascii_case(b"accept-encoding"));
    match foreign {
        Some(name) => Err(NotStorable::Vary(
            String::from_utf8_lossy(name).into_owned(),
        )),
        None => Ok(()),
    }
}

/// Everything but time.
fn allowed(status: u16, seen: &Seen<'_>) -> Result<(), NotStorable> {
    let control = &seen.control;
    if !is_plain(status) {
        return Err(NotStorable::Status(status));
    }
    if control.malformed {
        return Err(NotStorable::Malformed);
    }
    if control.must_understand && !is_understood(status) {
        return Err(NotStorable::NotUnderstood(status));
    }
    // With must-understand, no-store is there for caches that do not know must-understand (§5.2.2.3).
    if control.no_store && !control.must_understand {
        return Err(NotStorable::NoStore);
    }
    if control.private {
        return Err(NotStorable::Private);
    }
    if seen.no_cache() {
        return Err(NotStorable::NoCache);
    }
    if seen.sets_cookie {
        return Err(NotStorable::SetCookie);
    }
    Ok(())
}

fn lifetime(
    status: u16,
    seen: &Seen<'_>,
    at_unix_secs: u64,
    ttl_secs: Option<u64>,
) -> Result<(u64, Source), NotStorable> {
    if let Some(explicit) = freshness::explicit(&seen.control, &seen.times, at_unix_secs) {
        return Ok(explicit);
    }
    if !is_heuristic(status) && !seen.control.public {
        return Err(NotStorable::StatusNeedsLifetime(status));
    }
    // Its author cares about staleness: a lifetime of our own making is not what is meant.
    if seen.control.must_revalidate {
        return Err(NotStorable::MustRevalidate);
    }
    let guess = || freshness::heuristic(&seen.times, at_unix_secs).map(|s| (s, Source::Heuristic));
    ttl_secs
        .map(|secs| (secs, Source::Ttl))
        .or_else(guess)
        .ok_or(NotStorable::NoLifetime)
}

/// Statuses whose meaning is in the response alone. The others are interim ones, or answer what is
/// no part of a key: credentials, ranges, preconditions other than those for caches.
fn is_plain(status: u16) -> bool {
    (200..600).contains(&status) && !matches!(status, 206 | 401 | 407 | 412 | 416)
}

/// Statuses that may be stored without an explicit lifetime (RFC 9110 §15.1 without 206). 304 is
/// among them for requests that are conditional themselves: it says what the 200 would have said.
fn is_heuristic(status: u16) -> bool {
    matches!(
        status,
        200 | 203 | 204 | 300 | 301 | 304 | 308 | 404 | 405 | 410 | 414 | 501
    )
}

/// Statuses whose rules for caches are followed here.
fn is_understood(status: u16) -> bool {
    is_heuristic(status) || matches!(status, 302 | 303 | 307)
}

#[cfg(test)]
mod tests;
