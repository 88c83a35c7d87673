//! Hits of published responses by URL and by host, from the difference between two samples; and their report to the
//! server that started the level.

use std::collections::HashMap;

use lowroad_metrics::MetricScope;
use lowroad_site::url_table::{SOFTIRQ_LEVEL, UrlParts, UrlTable, visible};
use lowroad_softirq::level::slot_hits::SlotHits;

use super::levels;

/// Maximum number of URLs or hosts in a report.
const REPORTED_URLS_MAX: usize = 64;

/// The hits of each response at the previous sample, by the identifier of the response.
#[derive(Default)]
pub struct UrlHits {
    previous: Option<HashMap<u32, u64>>,
}

impl UrlHits {
    /// Returns the hits since the previous sample by URL, the most frequent first; empty for the first sample. `freed`
    /// contains the responses with slots that were freed since then; they are read after `current`.
    pub fn since_previous(
        &mut self,
        current: Vec<SlotHits>,
        freed: Vec<SlotHits>,
    ) -> Vec<(String, u64)> {
        let counts = current.iter().map(|it| (it.id, it.hits)).collect();
        let Some(previous) = self.previous.replace(counts) else {
            return Vec::new();
        };
        let counts = self.previous.get_or_insert_default();
        let mut hot: HashMap<String, u64> = HashMap::new();
        let mut add = |response: &SlotHits, counted: u64| {
            let hits = response.hits.saturating_sub(counted);
            if hits > 0 {
                *hot.entry(levels::describe_key(&response.key).0)
                    .or_default() += hits;
            }
        };
        for response in &current {
            add(response, previous.get(&response.id).copied().unwrap_or(0));
        }
        for response in &freed {
            // A slot that was freed between the two readings is among the current ones, too.
            let counted = counts.remove(&response.id);
            let counted = counted.or_else(|| previous.get(&response.id).copied());
            add(response, counted.unwrap_or(0));
        }
        sorted(hot)
    }
}

/// The hosts of URLs with the sums of their hits, the most frequent first.
pub fn hits_by_host(urls: &[(String, u64)]) -> Vec<(String, u64)> {
    let mut hosts: HashMap<String, u64> = HashMap::new();
    for (url, hits) in urls {
        *hosts.entry(split_url(url).0.to_owned()).or_default() += hits;
    }
    sorted(hosts)
}

/// Counts the most frequent first. Equal counts are sorted by name, so that lines keep their positions on successive
/// pages.
fn sorted(counts: HashMap<String, u64>) -> Vec<(String, u64)> {
    let mut counts: Vec<(String, u64)> = counts.into_iter().collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    counts
}

/// The host of a URL, with its port, and the target.
fn split_url(url: &str) -> (&str, &str) {
    let rest = url.strip_prefix("http://").unwrap_or(url);
    rest.split_at(rest.find('/').unwrap_or(rest.len()))
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
    sorted(hot)
}

/// Formats hits as one line: those of all other URLs or hosts, then a number and a name in turn.
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
        let url = words.next().filter(|it| it.starts_with("http://"));
        let Some(url) = url else { return };
        let (host, path) = split_url(url);
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

/// Calls `record` with each host of a line and its hits, and with an empty host for all others. Stops at a word that is
/// malformed, as above.
pub fn read_hosts(line: &str, mut record: impl FnMut(&str, u64)) {
    let mut words = line.split_ascii_whitespace();
    if let Some(others @ 1..) = words.next().and_then(|it| it.parse().ok()) {
        record("", others);
    }
    while let Some(count) = words.next().and_then(|it| it.parse().ok()) {
        let Some(host) = words.next() else { return };
        record(host, count);
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
    fn hits_before_a_withdrawal_are_counted_once() {
        let slot = |id, hits| SlotHits {
            id,
            key: KEY.to_vec(),
            hits,
        };
        let mut url_hits = UrlHits::default();
        let mut sum = |current: &[(u32, u64)], freed: &[(u32, u64)]| {
            let slots = |pairs: &[(u32, u64)]| pairs.iter().map(|it| slot(it.0, it.1)).collect();
            let hot = url_hits.since_previous(slots(current), slots(freed));
            hot.iter().map(|(_, hits)| hits).sum::<u64>()
        };
        assert_eq!(sum(&[(1, 5)], &[]), 0, "the first sample");
        assert_eq!(sum(&[(1, 7), (2, 3)], &[]), 5);
        // Freed before the sample, between its two readings, and published and freed since the last sample.
        assert_eq!(sum(&[(2, 4)], &[(1, 9), (2, 6), (3, 1)]), 2 + 1 + 2 + 1);
        assert_eq!(sum(&[], &[]), 0);
    }

    #[test]
    fn hosts_are_reported_with_their_sums() {
        let urls = [("http://a:81/x", 2), ("http://b/", 1), ("http://a:81/y", 3)];
        let urls = urls.map(|(url, hits)| (url.to_owned(), hits));
        let mut read = Vec::new();
        let line = to_line(&hits_by_host(&urls));
        read_hosts(&line, |host, hits| read.push((host.to_owned(), hits)));
        assert_eq!(read, [("a:81".to_owned(), 5), ("b".to_owned(), 1)]);
        read_hosts("7 1", |host, hits| assert_eq!((host, hits), ("", 7)));
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
