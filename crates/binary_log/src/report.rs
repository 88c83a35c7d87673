//! A report of the records: totals, rankings, times of day, percentiles. Memory is bounded; see [`RankedCounts`].

mod histogram;
mod ranking;
mod text;

use lowroad_log::AccessEntry;

pub use self::histogram::DurationHistogram;
pub use self::ranking::{KeyTotals, RankedCounts};
pub use self::text::{ranking_text, report_text};
use crate::filter::without_port;
use crate::line::RequestWords;

/// A property by which records are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankingKey {
    /// The path of the request target.
    Url,
    /// The status.
    Status,
    /// The level that answered.
    Level,
    /// The response's source.
    Outcome,
    /// The client's address.
    Client,
    /// The requested host.
    Host,
    /// The method.
    Method,
    /// The Referer.
    Referer,
    /// The User-Agent.
    UserAgent,
}

impl RankingKey {
    /// All keys, in the order of the report.
    pub const ALL: [RankingKey; 9] = [
        RankingKey::Url,
        RankingKey::Status,
        RankingKey::Level,
        RankingKey::Outcome,
        RankingKey::Client,
        RankingKey::Host,
        RankingKey::Method,
        RankingKey::Referer,
        RankingKey::UserAgent,
    ];

    /// The heading.
    pub fn name(self) -> &'static str {
        match self {
            RankingKey::Url => "URL",
            RankingKey::Status => "status",
            RankingKey::Level => "level",
            RankingKey::Outcome => "outcome",
            RankingKey::Client => "client",
            RankingKey::Host => "host",
            RankingKey::Method => "method",
            RankingKey::Referer => "referer",
            RankingKey::UserAgent => "user agent",
        }
    }

    /// Calls a function with a record's value.
    pub fn with_value<T>(self, entry: &AccessEntry<'_>, call: impl FnOnce(&[u8]) -> T) -> T {
        match self {
            RankingKey::Url => call(RequestWords::from_line(entry.line).path()),
            RankingKey::Status => call(entry.status.to_string().as_bytes()),
            RankingKey::Level => call(entry.level.as_bytes()),
            RankingKey::Outcome => call(entry.outcome.as_bytes()),
            RankingKey::Client => call(entry.peer.to_canonical().to_string().as_bytes()),
            RankingKey::Host => call(without_port(entry.host)),
            RankingKey::Method => call(RequestWords::from_line(entry.line).method),
            RankingKey::Referer => call(entry.referer),
            RankingKey::UserAgent => call(entry.user_agent),
        }
    }
}

/// The totals of some records.
pub struct TrafficReport {
    /// The number of records.
    pub requests: u64,
    /// The sum of body bytes.
    pub body_bytes: u64,
    /// The number of responses that were not sent completely.
    pub cut: u64,
    /// The earliest and the latest time, ms since 1970.
    pub period_ms: Option<(u64, u64)>,
    /// The durations of all records.
    pub durations: DurationHistogram,
    /// Requests by hour of the day, UTC.
    pub hours: [u64; 24],
    /// The rankings, in the order of [`RankingKey::ALL`].
    pub rankings: [RankedCounts; RankingKey::ALL.len()],
    /// Durations by level, in the order in which levels appear.
    pub level_durations: Vec<(String, DurationHistogram)>,
}

impl Default for TrafficReport {
    fn default() -> TrafficReport {
        TrafficReport {
            requests: 0,
            body_bytes: 0,
            cut: 0,
            period_ms: None,
            durations: DurationHistogram::default(),
            hours: [0; 24],
            rankings: std::array::from_fn(|_| RankedCounts::default()),
            level_durations: Vec::new(),
        }
    }
}

/// Maximum number of levels with separate durations, since a damaged file may name any level.
const LEVELS_MAX: usize = 16;

impl TrafficReport {
    /// Adds a record.
    pub fn add(&mut self, entry: &AccessEntry<'_>) {
        self.requests += 1;
        self.body_bytes = self.body_bytes.saturating_add(entry.body_bytes);
        self.cut += u64::from(!entry.whole);
        let (first, last) = self.period_ms.unwrap_or((entry.unix_ms, entry.unix_ms));
        self.period_ms = Some((first.min(entry.unix_ms), last.max(entry.unix_ms)));
        self.hours[(entry.unix_ms / 3_600_000 % 24) as usize] += 1;
        self.durations.add(entry.duration_us);
        for (key, ranking) in RankingKey::ALL.into_iter().zip(&mut self.rankings) {
            key.with_value(entry, |value| ranking.add(value, entry));
        }
        self.add_level(entry);
    }

    fn add_level(&mut self, entry: &AccessEntry<'_>) {
        let levels = &mut self.level_durations;
        let place = levels.iter().position(|(level, _)| level == entry.level);
        // An unknown level gets the next place; beyond the limit that place stays empty and nothing is counted.
        let place = place.unwrap_or(levels.len());
        if place == levels.len() && place < LEVELS_MAX {
            levels.push((entry.level.to_owned(), DurationHistogram::default()));
        }
        if let Some((_, durations)) = levels.get_mut(place) {
            durations.add(entry.duration_us);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(line: &[u8], status: u16) -> AccessEntry<'_> {
        AccessEntry {
            peer: [192, 0, 2, 7].into(),
            user: b"",
            unix_ms: 784_111_777_042,
            line,
            host: b"example.com:80",
            status,
            body_bytes: 1000,
            whole: status != 404,
            referer: b"",
            user_agent: b"\x1b[31m",
            duration_us: 1500,
            outcome: "hit",
            level: "worker",
            tls: "",
        }
    }

    #[test]
    fn report_counts_records_by_each_key() {
        let mut report = TrafficReport::default();
        for _ in 0..3 {
            report.add(&entry(b"GET /a?b HTTP/1.1", 200));
        }
        report.add(&entry(b"GET /c HTTP/1.1", 404));
        let text = report_text(&report, 10);
        for part in [
            "requests          4",
            "cut               1",
            "1994-11-06T08:49:37",
            "example.com",
            "75.0 %",
            "/a\n",
            "404\n",
            "\\x1B[31m",
            "08  ",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'));
        let top = ranking_text(&report.rankings[0], RankingKey::Url, 1);
        assert!(top.contains("/a\n") && !top.contains("/c"), "{top}");
    }
}
