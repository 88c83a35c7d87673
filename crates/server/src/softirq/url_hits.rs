//! Hits of published responses by URL, from the difference between two samples; and their report to the server that
//! started the level.

use std::collections::HashMap;

use lowroad_metrics::MetricScope;
use lowroad_site::url_table::{SOFTIRQ_LEVEL, UrlParts, UrlTable, visible};
use lowroad_softirq::level::publisher::PublishedResponse;

use super::levels;

/// Maximum number of URLs in a report.
const REPORTED_URLS_MAX: usize = 64;

/// The hits of each response at the previous sample.
#[derive(Default)]
pub struct UrlHits {
    previous: Option<HashMap<Vec<u8>, u64>>,
}

impl UrlHits {
    /// Returns the hits since the previous sample by URL, the most frequent first, without URLs that had none; empty for
    /// the first sample.
    pub fn since_previous(&mut self, published: Vec<PublishedResponse>) -> Vec<(String, u64)> {
        let current = published.into_iter().map(|it| (it.key, it.hits)).collect();
        let Some(previous) = self.previous.replace(current) else {
            return Vec::new();
        };
        let current = self.previous.as_ref();
        let mut hot = hits_by_url(&previous, current.into_iter().flatten());
        hot.retain(|(_, hits)| *hits > 0);
        hot
    }
}

/// The difference between two samples by URL, the most frequent first.
pub fn hits_by_url<'a>(
    previous: &HashMap<Vec<u8>, u64>,
    current: impl IntoIterator<Item = (&'a Vec<u8>, &'a u64)>,
) -> Vec<(String, u64)> {
    let mut hot: HashMap<String, u64> = HashMap::new();
    for (key, hits) in current {
        // A response that was published again counts its hits from 0.
        let old = previous.get(key).filter(|old| *old <= hits);
        *hot.entry(levels::describe_key(key).0).or_default() += hits - old.unwrap_or(&0);
    }
    let mut hot: Vec<(String, u64)> = hot.into_iter().collect();
    // Equal counts are sorted by URL, so that lines keep their positions on successive pages.
    hot.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    hot
}

/// Formats hits as one line: those of all other URLs, then a number and a URL in turn.
pub fn to_line(hits: &[(String, u64)]) -> String {
    let (listed, others) = hits.split_at(hits.len().min(REPORTED_URLS_MAX));
    let others: u64 = others.iter().map(|(_, count)| count).sum();
    let mut line = others.to_string();
    for (url, count) in listed {
        line.push_str(&format!(" {count} {}", visible(url.as_bytes())));
    }
    line
}

/// Records the hits of a line in a table. Stops at a word that is malformed: a killed process may leave an incomplete
/// line.
pub fn record_line(line: &str, table: &mut UrlTable, now_ms: u64) {
    let mut words = line.split_ascii_whitespace();
    let Some(others) = words.next().and_then(|it| it.parse().ok()) else {
        return;
    };
    table.record_others(others, now_ms);
    while let Some(count) = words.next().and_then(|it| it.parse().ok()) {
        let url = words.next().and_then(|it| it.strip_prefix("http://"));
        let Some(url) = url else { return };
        let (host, path) = url.split_at(url.find('/').unwrap_or(url.len()));
        let parts = UrlParts {
            scope: MetricScope::NO_SITE,
            is_https: false,
            host: host.as_bytes(),
            // The query is part of it.
            path: path.as_bytes(),
            query: None,
        };
        table.record(&parts, SOFTIRQ_LEVEL, count, now_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"\0\0\x50\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\x02\x01\x01/hot\x02h";

    #[test]
    fn hits_are_counted_from_the_previous_sample() {
        let sample = |hits| HashMap::from([(KEY.to_vec(), hits)]);
        let new = |old, now| hits_by_url(&sample(old), &sample(now));
        assert_eq!(new(5, 7), [("http://h/hot".to_owned(), 2)]);
        // The response was published again.
        assert_eq!(new(5, 3), [("http://h/hot".to_owned(), 3)]);
        assert_eq!(new(5, 5), [("http://h/hot".to_owned(), 0)]);
    }

    #[test]
    fn line_of_hits_is_recorded_in_a_table() {
        let mut hits = vec![("http://h:81/a?b c\x1b".to_owned(), 3)];
        hits.extend((0..REPORTED_URLS_MAX).map(|number| (format!("http://h/{number}"), 1)));
        let line = to_line(&hits);
        assert!(line.starts_with("1 3 http://h:81/a?b%20c%1B 1 "), "{line}");
        let mut table = UrlTable::new(0);
        record_line(&line, &mut table, 0);
        let snapshot = table.snapshot(1000);
        assert_eq!(snapshot.urls.len(), REPORTED_URLS_MAX);
        let first = &snapshot.urls[0];
        assert_eq!((&*first.host, &*first.target), ("h:81", "/a?b%20c%1B"));
        let share = first.rates[SOFTIRQ_LEVEL] / snapshot.total_rate;
        assert!((share - 3.0 / 67.0).abs() < 1e-6, "{share}");
        for cut in ["", "x", "1 2", "1 2 htt", "1 -2 http://h/"] {
            let mut table = UrlTable::new(0);
            record_line(cut, &mut table, 0);
            assert!(table.snapshot(0).urls.is_empty(), "{cut}");
        }
    }
}
