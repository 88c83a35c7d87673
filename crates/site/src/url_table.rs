//! The URLs with the most requests, and the levels that answer them.

use std::hash::BuildHasher;

use lowroad_engine::Exchange;
use lowroad_http::request::{Request, RequestTarget};
use lowroad_metrics::{HeavyHitters, HitterEstimate, HitterLimits, MetricScope};

use crate::request_metrics::LEVELS;

/// The levels at which URLs are answered.
pub const URL_LEVELS: [&str; 1 + LEVELS.len()] = ["softirq", LEVELS[0], LEVELS[1], LEVELS[2]];
/// The index of the softirq level in [`URL_LEVELS`]. The levels of [`LEVELS`] follow.
pub const SOFTIRQ_LEVEL: usize = 0;

/// Maximum length of path and query; the rest is cut off.
pub const TARGET_LEN_MAX: usize = 256;
/// Maximum length of a host with its port. A longer name is not valid in DNS.
const HOST_LEN_MAX: usize = 255;
/// Maximum number of URLs of one table. A URL with more than one in 128 of the requests is always in it.
pub const URLS_MAX: usize = 128;
/// The time in which the weight of a request halves.
pub const HALF_LIFE_MS: u64 = 60_000;

const LIMITS: HitterLimits = HitterLimits {
    entries: URLS_MAX,
    key_len: HEAD_LEN + HOST_LEN_MAX + TARGET_LEN_MAX,
    half_life_ms: HALF_LIFE_MS,
};

/// A key begins with flags, scope and length of the host; host and target follow.
const HEAD_LEN: usize = 4;
const IS_HTTPS: u8 = 1;
const IS_CUT: u8 = 2;

/// The parts of a URL, as the client sent them.
#[derive(Clone, Copy, Debug)]
pub struct UrlParts<'a> {
    /// The scope of the request's site and route.
    pub scope: MetricScope,
    /// Whether the scheme is https.
    pub is_https: bool,
    /// The host, with a port if the client sent one.
    pub host: &'a [u8],
    /// The path.
    pub path: &'a [u8],
    /// The query without its question mark.
    pub query: Option<&'a [u8]>,
}

impl<'a> UrlParts<'a> {
    /// The URL of a request; `None` if its target is not a path.
    pub fn from_request(request: &Request<'a>, exchange: &'a Exchange) -> Option<UrlParts<'a>> {
        let RequestTarget::Origin { path, query, .. } = request.target else {
            return None;
        };
        let forwarded = exchange.forwarded.as_ref();
        let reported = forwarded.and_then(|it| it.authority.as_deref());
        Some(UrlParts {
            scope: MetricScope::from_number(exchange.metric_scope),
            is_https: exchange.is_https(),
            host: reported.or(request.authority).unwrap_or_default(),
            path,
            query,
        })
    }
}

/// A frequent URL. Its texts consist of visible ASCII characters; other bytes are percent-encoded.
#[derive(Clone, Debug, PartialEq)]
pub struct UrlEstimate {
    /// The scope of the latest request that added the URL.
    pub scope: MetricScope,
    /// Whether the scheme is https.
    pub is_https: bool,
    /// Whether the URL is longer and was cut off. All URLs with this beginning are one.
    pub is_cut: bool,
    /// The host in lower case, with a port if clients send one; empty if they send none.
    pub host: String,
    /// Path and query.
    pub target: String,
    /// The bound of the overestimate of the rate, because of sampling and of URLs that left the table.
    pub error: f64,
    /// Requests per second by level, in the order of [`URL_LEVELS`].
    pub rates: [f64; URL_LEVELS.len()],
}

/// The frequent URLs at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UrlSnapshot {
    /// Requests per second for all URLs.
    pub total_rate: f64,
    /// The frequent URLs, in no particular order.
    pub urls: Vec<UrlEstimate>,
}

/// Counts requests by URL, in bounded memory.
#[derive(Debug)]
pub struct UrlTable {
    hitters: HeavyHitters<{ URL_LEVELS.len() }>,
    /// Reusable buffer for keys.
    key: Vec<u8>,
}

impl UrlTable {
    /// Creates an empty table with a random seed.
    pub fn new(now_ms: u64) -> UrlTable {
        // Clients must not be able to choose URLs with equal fingerprints.
        let seed = foldhash::fast::RandomState::default().hash_one(now_ms);
        UrlTable {
            hitters: HeavyHitters::new(LIMITS, seed, now_ms),
            key: Vec::with_capacity(LIMITS.key_len),
        }
    }

    /// Records `count` requests for a URL at a level of [`URL_LEVELS`].
    pub fn record(&mut self, url: &UrlParts<'_>, level: usize, count: u64, now_ms: u64) {
        write_key(url, &mut self.key);
        self.hitters.record(&self.key, level, count, now_ms);
    }

    /// Records a request for a URL that stands for `count` requests for any URLs.
    pub fn record_sample(&mut self, url: &UrlParts<'_>, level: usize, count: u64, now_ms: u64) {
        write_key(url, &mut self.key);
        self.hitters.record_sample(&self.key, level, count, now_ms);
    }

    /// Records requests for rare URLs, which only count in the total.
    pub fn record_others(&mut self, count: u64, now_ms: u64) {
        self.hitters.record_others(count, now_ms);
    }

    /// The frequent URLs at one moment.
    pub fn snapshot(&self, now_ms: u64) -> UrlSnapshot {
        let snapshot = self.hitters.snapshot(now_ms);
        let urls = snapshot.keys.iter().filter_map(read_key);
        UrlSnapshot {
            total_rate: snapshot.total_rate,
            urls: urls.collect(),
        }
    }
}

fn write_key(url: &UrlParts<'_>, key: &mut Vec<u8>) {
    let host = &url.host[..url.host.len().min(HOST_LEN_MAX)];
    let path = &url.path[..url.path.len().min(TARGET_LEN_MAX)];
    let mut is_cut = host.len() < url.host.len() || path.len() < url.path.len();
    key.clear();
    key.push(0);
    key.extend_from_slice(&url.scope.number().to_ne_bytes());
    key.push(host.len() as u8);
    // Host names are case-insensitive (RFC 9110 §4.2.3).
    key.extend(host.iter().map(u8::to_ascii_lowercase));
    key.extend_from_slice(path);
    if let Some(query) = url.query {
        let room = TARGET_LEN_MAX - path.len();
        let part = &query[..query.len().min(room.saturating_sub(1))];
        // One byte of room is for the question mark.
        if room > 0 {
            key.push(b'?');
            key.extend_from_slice(part);
        }
        is_cut |= part.len() < query.len() || room == 0;
    }
    let flag = |is_set, bit| if is_set { bit } else { 0 };
    key[0] = flag(url.is_https, IS_HTTPS) | flag(is_cut, IS_CUT);
}

fn read_key(hitter: &HitterEstimate<{ URL_LEVELS.len() }>) -> Option<UrlEstimate> {
    let (head, rest) = hitter.key.split_first_chunk::<HEAD_LEN>()?;
    let [flags, scope @ .., host_len] = *head;
    let (host, target) = rest.split_at_checked(host_len.into())?;
    Some(UrlEstimate {
        scope: MetricScope::from_number(u16::from_ne_bytes(scope)),
        is_https: flags & IS_HTTPS != 0,
        is_cut: flags & IS_CUT != 0,
        host: visible(host),
        target: visible(target),
        error: hitter.error,
        rates: hitter.kinds,
    })
}

/// Percent-encodes all bytes that are not visible ASCII characters. A path that the parser accepts may contain other
/// bytes, which must not reach a terminal or a page.
pub fn visible(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte.is_ascii_graphic() {
            true => out.push(char::from(*byte)),
            false => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url<'a>(host: &'a str, path: &'a [u8], query: Option<&'a [u8]>) -> UrlParts<'a> {
        UrlParts {
            scope: MetricScope::NO_SITE,
            is_https: false,
            host: host.as_bytes(),
            path,
            query,
        }
    }

    fn only(parts: &UrlParts<'_>) -> UrlEstimate {
        let mut table = UrlTable::new(0);
        table.record(parts, 1, 1, 0);
        let mut urls = table.snapshot(1000).urls;
        assert_eq!(urls.len(), 1);
        urls.remove(0)
    }

    #[test]
    fn url_keeps_its_query_and_host_is_in_lower_case() {
        let found = only(&url("A.Example:81", b"/Path", Some(b"q=1")));
        assert_eq!(found.host, "a.example:81");
        assert_eq!((&*found.target, found.is_cut), ("/Path?q=1", false));
        assert!(found.rates[1] > 0.0 && found.rates[0] == 0.0);
        assert_eq!(only(&url("", b"/", Some(b""))).target, "/?");
    }

    #[test]
    fn long_urls_are_cut_and_marked() {
        let long = [b"/".repeat(300), b"a".to_vec()].concat();
        for (path, query) in [
            (&long[..], None),
            (&long[..TARGET_LEN_MAX], Some(&b"a"[..])),
            (b"/", Some(&long[..])),
            (&long[..TARGET_LEN_MAX - 1], Some(b"a")),
        ] {
            let found = only(&url("h", path, query));
            assert!(found.is_cut && found.target.len() <= TARGET_LEN_MAX);
        }
        let whole = only(&url("h", &long[..TARGET_LEN_MAX], None));
        assert!(!whole.is_cut && whole.target.len() == TARGET_LEN_MAX);
        assert!(only(&url(&"h".repeat(256), b"/", None)).is_cut);
    }

    #[test]
    fn texts_are_visible_characters() {
        let found = only(&url("h", b"/\x1b[2J\xff\"<", Some(b"\n \x7f")));
        assert_eq!(found.target, "/%1B[2J%FF\"<?%0A%20%7F");
    }
}
