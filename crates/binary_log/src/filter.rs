//! Selects records by conditions.

mod parts;
pub mod time;

use lowroad_log::AccessEntry;

pub use self::parts::{AddressRange, StatusRange, TextPattern};
use crate::frame::BlockHeader;
use crate::line::RequestWords;

/// Conditions for records. A record must meet all conditions, and of several values of one condition at least one.
#[derive(Clone, Debug, Default)]
pub struct RecordFilter {
    /// The earliest time, ms since 1970.
    pub since_ms: Option<u64>,
    /// The time before which a record must begin, ms since 1970.
    pub until_ms: Option<u64>,
    /// The requested host, without port.
    pub hosts: Vec<TextPattern>,
    /// The request target. A pattern without `?` is compared with the path.
    pub targets: Vec<TextPattern>,
    /// The status.
    pub statuses: Vec<StatusRange>,
    /// The level.
    pub levels: Vec<String>,
    /// The outcome.
    pub outcomes: Vec<String>,
    /// The client's address.
    pub peers: Vec<AddressRange>,
    /// The shortest duration, µs.
    pub duration_min_us: Option<u64>,
    /// The longest duration, µs.
    pub duration_max_us: Option<u64>,
}

impl RecordFilter {
    /// Whether a record meets the conditions.
    pub fn matches(&self, entry: &AccessEntry<'_>) -> bool {
        // Comparisons of numbers come first: they are cheaper than patterns and exclude most records.
        self.matches_numbers(entry)
            && is_one(&self.levels, |level| level == entry.level)
            && is_one(&self.outcomes, |outcome| outcome == entry.outcome)
            && is_one(&self.peers, |range| range.contains(entry.peer))
            && is_one(&self.hosts, |host| host.matches(without_port(entry.host)))
            && is_one(&self.targets, |target| is_target(target, entry.line))
    }

    /// Whether a block may contain records that meet the conditions.
    pub fn may_match(&self, header: &BlockHeader) -> bool {
        // The header has the block's earliest time: if that is too late, all records are.
        let is_over = self.until_ms.is_some_and(|until| header.first_ms >= until);
        // The header stores the greatest number for a span that is too long for its field.
        let is_known = header.span_ms < u32::MAX;
        let is_before = is_known && self.since_ms.is_some_and(|since| header.last_ms() < since);
        !is_over && !is_before
    }

    fn matches_numbers(&self, entry: &AccessEntry<'_>) -> bool {
        self.since_ms.is_none_or(|since| entry.unix_ms >= since)
            && self.until_ms.is_none_or(|until| entry.unix_ms < until)
            && self
                .duration_min_us
                .is_none_or(|least| entry.duration_us >= least)
            && self
                .duration_max_us
                .is_none_or(|most| entry.duration_us <= most)
            && is_one(&self.statuses, |range| range.contains(entry.status))
    }
}

/// Whether one of the values fits. A condition without values is always met.
fn is_one<T>(values: &[T], is_it: impl FnMut(&T) -> bool) -> bool {
    values.is_empty() || values.iter().any(is_it)
}

fn is_target(pattern: &TextPattern, line: &[u8]) -> bool {
    let words = RequestWords::from_line(line);
    match pattern.contains(b'?') {
        // Only a pattern with a query is compared with one: `/a` should find `/a?b` as well.
        true => pattern.matches(words.target),
        false => pattern.matches(words.path()),
    }
}

/// The host of a Host field, without its port. An IPv6 address keeps its brackets.
pub fn without_port(host: &[u8]) -> &[u8] {
    match memchr::memrchr(b':', host) {
        // The last colon of an IPv6 address in brackets is followed by a bracket, so it is no port's.
        Some(colon) if host[colon + 1..].iter().all(u8::is_ascii_digit) => &host[..colon],
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> AccessEntry<'static> {
        AccessEntry {
            peer: [192, 0, 2, 7].into(),
            user: b"",
            unix_ms: 1000,
            line: b"GET /a/b?c=1 HTTP/1.1",
            host: b"Example.com:8080",
            status: 404,
            body_bytes: 5,
            whole: true,
            referer: b"",
            user_agent: b"",
            duration_us: 50,
            outcome: "hit",
            level: "worker",
            tls: "",
        }
    }

    #[test]
    fn each_condition_accepts_and_rejects_records() {
        type Change = fn(&mut RecordFilter);
        let cases: [(Change, Change); 9] = [
            (|it| it.since_ms = Some(1000), |it| it.since_ms = Some(1001)),
            (|it| it.until_ms = Some(1001), |it| it.until_ms = Some(1000)),
            (
                |it| it.hosts = vec![TextPattern::new("example.COM", true)],
                |it| it.hosts = vec![TextPattern::new("example.org", true)],
            ),
            (
                |it| {
                    it.targets = vec![
                        TextPattern::new("/x", false),
                        TextPattern::new("/a/*", false),
                    ]
                },
                |it| it.targets = vec![TextPattern::new("/a/b?c=2*", false)],
            ),
            (
                |it| it.statuses = vec!["4xx".parse().expect("a class")],
                |it| it.statuses = vec!["200-399".parse().expect("a range")],
            ),
            (
                |it| it.levels = vec!["worker".into()],
                |it| it.levels = vec!["softirq".into()],
            ),
            (
                |it| it.outcomes = vec!["hit".into()],
                |it| it.outcomes = vec!["miss".into()],
            ),
            (
                |it| it.peers = vec!["192.0.2.0/24".parse().expect("a range")],
                |it| it.peers = vec!["192.0.2.8".parse().expect("an address")],
            ),
            (
                |it| it.duration_min_us = Some(50),
                |it| it.duration_max_us = Some(49),
            ),
        ];
        assert!(RecordFilter::default().matches(&entry()));
        for (number, (holding, failing)) in cases.into_iter().enumerate() {
            for (change, expected) in [(holding, true), (failing, false)] {
                let mut filter = RecordFilter::default();
                change(&mut filter);
                assert_eq!(filter.matches(&entry()), expected, "case {number}");
            }
        }
    }

    #[test]
    fn host_is_compared_without_its_port() {
        for (host, expected) in [
            ("a", "a"),
            ("a:80", "a"),
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
            ("", ""),
        ] {
            assert_eq!(without_port(host.as_bytes()), expected.as_bytes());
        }
    }
}
