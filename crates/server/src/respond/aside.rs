//! What is said about a response from the store beside what it says itself: its age, and what the cache did. For a hit, which
//! says the same but for two numbers, the lines are put together from their end in a piece of fixed length, and copied
//! behind the stored head at once. Knows neither the response nor its store.

use lowroad_cache::cache_status::{Answered, CacheStatus};
use lowroad_engine::Head;
use lowroad_http::fields::Fields;

use crate::dynamic::cache_status;

/// What is said.
#[derive(Clone, Copy)]
pub struct Aside<'a> {
    /// When it was made, if not by us.
    pub date: Option<&'a [u8; 29]>,
    /// Its age in seconds, where that is said.
    pub age_s: Option<u64>,
    /// What the cache did, for Cache-Status.
    pub cache_status: Option<CacheStatus<'a>>,
    /// What is for this client only.
    pub own: Option<&'a Fields>,
}

impl Aside<'_> {
    /// Adds the fields to a head.
    pub fn put(&self, head: &mut Head<'_>) {
        if let Some(own) = self.own {
            head.fields(own);
        }
        if let Some(age_s) = self.age_s {
            head.field_u64("Age", age_s);
        }
        if let Some(status) = &self.cache_status {
            cache_status::write(status, head);
        }
    }

    /// The lines of a hit; `None` if more is to be said.
    #[inline]
    pub fn lines_of_hit(&self) -> Option<Lines> {
        let status = match &self.cache_status {
            None => None,
            Some(CacheStatus {
                answered: Answered::Hit,
                ttl_secs: Some(ttl_secs),
                detail: Some(detail),
                ..
            }) if detail.len() <= DETAIL_LEN_MAX => Some((*ttl_secs, *detail)),
            Some(_) => return None,
        };
        if self.own.is_some() {
            return None;
        }
        let mut lines = Lines::default();
        if let Some((ttl_secs, detail)) = status {
            lines.prepend(b"\r\n");
            lines.prepend(detail.as_bytes());
            lines.prepend(b"; detail=");
            lines.prepend_number(ttl_secs.unsigned_abs());
            if ttl_secs < 0 {
                lines.prepend(b"-");
            }
            lines.prepend(b"Cache-Status: lowroad; hit; ttl=");
        }
        if let Some(age_s) = self.age_s {
            lines.prepend(b"\r\n");
            lines.prepend_number(age_s);
            lines.prepend(b"Age: ");
        }
        Some(lines)
    }
}

/// A longer detail is not for here.
const DETAIL_LEN_MAX: usize = 16;
/// u64::MAX has so many digits.
const DIGITS_MAX: usize = 20;
const LEN_MAX: usize = b"Age: \r\nCache-Status: lowroad; hit; ttl=-; detail=\r\n".len()
    + 2 * DIGITS_MAX
    + DETAIL_LEN_MAX;

/// Field lines, put together from their end.
pub struct Lines {
    bytes: [u8; LEN_MAX],
    /// Where they begin; `<= LEN_MAX`.
    at: usize,
}

impl Default for Lines {
    #[inline]
    fn default() -> Lines {
        Lines {
            bytes: [0; LEN_MAX],
            at: LEN_MAX,
        }
    }
}

impl Lines {
    /// They.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    #[inline(always)]
    fn prepend(&mut self, text: &[u8]) {
        let end = self.at;
        self.at -= text.len();
        self.bytes[self.at..end].copy_from_slice(text);
    }

    #[inline(always)]
    fn prepend_number(&mut self, mut number: u64) {
        loop {
            self.at -= 1;
            self.bytes[self.at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowroad_engine::response::Unsent;
    use lowroad_http::h1::BodyLen;
    use lowroad_http::limits::Limits;
    use lowroad_http::status::Status;

    const DATE: &[u8; 29] = b"Sun, 06 Nov 1994 08:49:37 GMT";

    /// As [`Aside::put`] writes them.
    fn put(aside: &Aside<'_>) -> String {
        let mut unsent = Unsent::default();
        let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        assert!(unsent.request(request, &Limits::default()).is_some());
        let mut response = unsent.response(DATE);
        let mut head = response.head(Status::OK);
        aside.put(&mut head);
        head.end(BodyLen::Known(0));
        let text = String::from_utf8(unsent.whole(1000).expect("short")).expect("ASCII");
        let text = text.split_once("GMT\r\n").expect("a date").1;
        text.split_once("Content-Length")
            .expect("a length")
            .0
            .into()
    }

    fn hit(ttl_secs: i64, detail: &str) -> CacheStatus<'_> {
        CacheStatus {
            ttl_secs: Some(ttl_secs),
            detail: Some(detail),
            ..CacheStatus::default()
        }
    }

    #[test]
    fn a_hit_says_what_others_say() {
        let statuses = [
            None,
            Some(hit(0, "memory")),
            Some(hit(-17, "disk")),
            Some(hit(i64::MIN, "sixteen-letters-")),
            Some(hit(i64::MAX, "")),
        ];
        for (age_s, cache_status) in [None, Some(0), Some(10), Some(u64::MAX)]
            .into_iter()
            .flat_map(|age_s| statuses.map(|status| (age_s, status)))
        {
            let aside = Aside {
                date: None,
                age_s,
                cache_status,
                own: None,
            };
            let lines = aside.lines_of_hit().expect("nothing else is said");
            assert_eq!(String::from_utf8_lossy(lines.as_bytes()), put(&aside));
        }
    }

    #[test]
    fn what_is_more_than_a_hit_is_not_for_here() {
        let own = Fields::new();
        let of = |cache_status, own| {
            let aside = Aside {
                date: None,
                age_s: Some(1),
                cache_status: Some(cache_status),
                own,
            };
            aside.lines_of_hit().is_some()
        };
        assert!(of(hit(1, "memory"), None));
        assert!(!of(hit(1, "memory"), Some(&own)));
        assert!(!of(hit(1, "seventeen-letters"), None));
        let miss = CacheStatus {
            answered: Answered::UriMiss,
            ..hit(1, "memory")
        };
        assert!(!of(miss, None));
    }
}
