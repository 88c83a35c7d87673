//! What would become of a response if it were asked for often: the rules by which the daemon publishes,
//! for explanations. It knows nothing of what is published.

use lowroad_cache::freshness::{Received, Source};

use crate::key::KeyParts;
use crate::learn::{self, Denial, Settings};
use crate::response::fetched::Fetched;
use crate::response::prepare::{self, Form};

/// A response that would be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Would {
    /// Its status.
    pub status: u16,
    /// Head and body.
    pub len: usize,
    /// For how long it would be answered.
    pub fresh_ms: u64,
    /// Which rule says so.
    pub because: &'static str,
}

/// Judges a response to a GET for this key, which came `delay_ms` after it was asked for.
///
/// # Errors
/// Why it would not be published.
pub fn publish(
    response: &Fetched,
    key: &KeyParts<'_>,
    settings: &Settings,
    delay_ms: u64,
) -> Result<Would, Denial> {
    if let Some(excluded) = Denial::of_path(key, settings) {
        return Err(excluded);
    }
    if response.status >= 500 {
        return Err(Denial::ServerError(response.status));
    }
    if response.status == 304 && !key.is_conditional() {
        return Err(Denial::NotAskedAfter);
    }
    let received = Received {
        at_unix_secs: response.at_unix_secs,
        delay_ms,
    };
    let freshness = learn::storable(response, &received, settings)?;
    let form = Form {
        class: key.class,
        with_age: settings.with_age,
        len_max: settings.len_max(key),
    };
    let prepared = prepare::prepare(response, &form).map_err(Denial::Unfit)?;
    Ok(Would {
        status: prepared.status,
        len: prepared.bytes.len(),
        fresh_ms: learn::left_ms(&freshness, settings),
        because: rule(freshness.source),
    })
}

fn rule(source: Source) -> &'static str {
    match source {
        Source::SMaxage => "s-maxage",
        Source::MaxAge => "max-age",
        Source::Expires => "Expires",
        Source::Ttl => "--ttl",
        Source::Heuristic => {
            "a tenth of the time since Last-Modified, 5 s at most (--ttl says another)"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asking;

    fn judged(status: u16, fields: &[(&str, &str)], body_len: usize) -> Result<Would, String> {
        let owned = |(n, v): &(&str, &str)| (n.as_bytes().to_vec(), v.as_bytes().to_vec());
        let response = Fetched {
            status,
            reason: b"OK".to_vec(),
            fields: fields.iter().map(owned).collect(),
            body: vec![b'x'; body_len],
            at_unix_secs: 1_000_000_000,
        };
        let head = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
        let key = asking::key_of(head, ([192, 0, 2, 1], 80).into(), 0).expect("a key");
        publish(&response, &key.parts(), &Settings::default(), 0).map_err(|why| why.to_string())
    }

    #[test]
    fn what_is_fresh_and_short_would_be_published() {
        let would = judged(200, &[("Cache-Control", "max-age=60")], 1300).expect("fresh");
        assert_eq!((would.status, would.fresh_ms), (200, 60_000));
        assert_eq!(would.because, "max-age");
        assert!(would.len > 1300);
    }

    #[test]
    fn what_would_not_be_published_has_a_reason() {
        let fresh = ("Cache-Control", "max-age=60");
        let why = |status, fields: &[_], len| judged(status, fields, len).expect_err("a reason");
        assert!(why(200, &[fresh, ("Set-Cookie", "a=b")], 1).contains("cookie"));
        assert!(why(200, &[], 1).contains("lifetime"));
        assert!(why(200, &[fresh], 14_700).contains("at most 14600"));
        assert!(why(500, &[fresh], 1).contains("500"));
        assert!(why(304, &[fresh], 0).contains("304"));
    }
}
