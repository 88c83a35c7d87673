//! Writes the Cache-Status field, which reports how a cache handled a request. Read RFC 9211.

use alloc::vec::Vec;

use lowroad_http::head_writer::put_number;

/// One member of Cache-Status, written by one cache.
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheStatus<'a> {
    /// How the request was handled.
    pub result: CacheResult,
    /// The status code of the origin's response, if it differs from the status code sent to the client.
    pub fwd_status: Option<u16>,
    /// The remaining freshness in seconds; negative if the response is stale.
    pub ttl_secs: Option<i64>,
    /// The response was stored.
    pub stored: bool,
    /// The request was coalesced with another one.
    pub collapsed: bool,
    /// Details for debugging: a token.
    pub detail: Option<&'a str>,
}

/// How a request was handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheResult {
    /// A stored response was sent.
    #[default]
    Hit,
    /// No response is stored for the URL.
    UriMiss,
    /// The stored responses are other variants (Vary).
    VaryMiss,
    /// The stored response is stale.
    Stale,
    /// The request's cache directives required a response from the origin.
    Request,
    /// The request bypasses the cache.
    Bypass,
    /// Requests with this method are not answered from the store.
    Method,
    /// No stored response matches, for an unspecified reason.
    Miss,
    /// Only a part of the requested ranges is stored.
    Partial,
}

impl CacheResult {
    fn forwarded(self) -> Option<&'static str> {
        Some(match self {
            CacheResult::Hit => return None,
            CacheResult::UriMiss => "uri-miss",
            CacheResult::VaryMiss => "vary-miss",
            CacheResult::Stale => "stale",
            CacheResult::Request => "request",
            CacheResult::Bypass => "bypass",
            CacheResult::Method => "method",
            CacheResult::Miss => "miss",
            CacheResult::Partial => "partial",
        })
    }
}

impl CacheStatus<'_> {
    /// Appends the member; `name` is the cache's name (a token).
    pub fn write(&self, name: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(name.as_bytes());
        match self.result.forwarded() {
            None => out.extend_from_slice(b"; hit"),
            Some(reason) => {
                out.extend_from_slice(b"; fwd=");
                out.extend_from_slice(reason.as_bytes());
            }
        }
        // The parameters `fwd-status`, `stored` and `collapsed` describe forwarded requests only.
        if let (Some(status), true) = (self.fwd_status, self.result != CacheResult::Hit) {
            out.extend_from_slice(b"; fwd-status=");
            put_number(out, u64::from(status));
        }
        if let Some(secs) = self.ttl_secs {
            // RFC 9211 §2.4: negative once the response is stale.
            let sign: &[u8] = if secs < 0 { b"; ttl=-" } else { b"; ttl=" };
            out.extend_from_slice(sign);
            put_number(out, secs.unsigned_abs());
        }
        for (is_set, name) in [(self.stored, "; stored"), (self.collapsed, "; collapsed")] {
            if is_set && self.result != CacheResult::Hit {
                out.extend_from_slice(name.as_bytes());
            }
        }
        if let Some(detail) = self.detail {
            out.extend_from_slice(b"; detail=");
            out.extend_from_slice(detail.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    fn written(status: &CacheStatus<'_>) -> String {
        let mut out = Vec::new();
        status.write("lowroad", &mut out);
        String::from_utf8(out).expect("tokens and digits")
    }

    #[test]
    fn hit_reports_its_ttl() {
        let hit = CacheStatus {
            ttl_secs: Some(-3),
            detail: Some("memory"),
            ..CacheStatus::default()
        };
        assert_eq!(written(&hit), "lowroad; hit; ttl=-3; detail=memory");
    }

    #[test]
    fn forwarded_request_reports_the_reason() {
        let miss = CacheStatus {
            result: CacheResult::VaryMiss,
            fwd_status: Some(304),
            ttl_secs: Some(60),
            stored: true,
            collapsed: true,
            detail: None,
        };
        let text = "lowroad; fwd=vary-miss; fwd-status=304; ttl=60; stored; collapsed";
        assert_eq!(written(&miss), text);
    }
}
