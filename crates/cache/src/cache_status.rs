//! The field Cache-Status: what a cache says of how it answered. It knows nothing of why. Read RFC 9211.

use alloc::string::String;
use core::fmt::Write;

/// A member of the field.
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheStatus<'a> {
    /// How the request was answered.
    pub answered: Answered,
    /// The status of the origin's response, where it is another than the client's.
    pub fwd_status: Option<u16>,
    /// Seconds for which the response is fresh; negative if it is stale.
    pub ttl_secs: Option<i64>,
    /// The response was stored.
    pub stored: bool,
    /// The request waited for another's response.
    pub collapsed: bool,
    /// More for who looks for a fault: a token.
    pub detail: Option<&'a str>,
}

/// How a request was answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answered {
    /// From the store.
    #[default]
    Hit,
    /// Nothing is stored under its URL.
    UriMiss,
    /// What is stored is for other requests, by Vary.
    VaryMiss,
    /// What is stored is stale.
    Stale,
    /// The request asked for it.
    Request,
    /// The cache was not to be asked.
    Bypass,
    /// Its method is not answered from the store.
    Method,
    /// Nothing that fits is stored, and why is not known.
    Miss,
    /// Only a part of what it asks for is stored.
    Partial,
}

impl Answered {
    fn forwarded(self) -> Option<&'static str> {
        Some(match self {
            Answered::Hit => return None,
            Answered::UriMiss => "uri-miss",
            Answered::VaryMiss => "vary-miss",
            Answered::Stale => "stale",
            Answered::Request => "request",
            Answered::Bypass => "bypass",
            Answered::Method => "method",
            Answered::Miss => "miss",
            Answered::Partial => "partial",
        })
    }
}

impl CacheStatus<'_> {
    /// Appends the member of the cache `name` (a token) to what came from the origin, if anything did.
    pub fn write(&self, name: &str, out: &mut String) {
        if !out.is_empty() {
            out.push_str(", ");
        }
        out.push_str(name);
        match self.answered.forwarded() {
            None => out.push_str("; hit"),
            Some(why) => put(out, "fwd", why),
        }
        // What follows describes a request that went on to the origin.
        if let (Some(status), true) = (self.fwd_status, self.answered != Answered::Hit) {
            put(out, "fwd-status", status);
        }
        if let Some(secs) = self.ttl_secs {
            put(out, "ttl", secs);
        }
        for (is_so, name) in [(self.stored, "; stored"), (self.collapsed, "; collapsed")] {
            if is_so && self.answered != Answered::Hit {
                out.push_str(name);
            }
        }
        if let Some(detail) = self.detail {
            put(out, "detail", detail);
        }
    }
}

fn put(out: &mut String, name: &str, value: impl core::fmt::Display) {
    // A String takes everything.
    let _ = write!(out, "; {name}={value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(status: &CacheStatus<'_>, before: &str) -> String {
        let mut out = String::from(before);
        status.write("lowroad", &mut out);
        out
    }

    #[test]
    fn a_hit_says_how_long_it_lasts() {
        let hit = CacheStatus {
            ttl_secs: Some(-3),
            detail: Some("memory"),
            ..CacheStatus::default()
        };
        assert_eq!(written(&hit, ""), "lowroad; hit; ttl=-3; detail=memory");
    }

    #[test]
    fn a_forwarded_one_says_why_after_what_others_said() {
        let miss = CacheStatus {
            answered: Answered::VaryMiss,
            fwd_status: Some(304),
            ttl_secs: Some(60),
            stored: true,
            collapsed: true,
            detail: None,
        };
        let text = "origin; hit, lowroad; fwd=vary-miss; fwd-status=304; ttl=60; stored; collapsed";
        assert_eq!(written(&miss, "origin; hit"), text);
    }
}
