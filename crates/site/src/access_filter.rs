//! The conditions of an access log.

use lowroad_config::AccessLogConditions;
use lowroad_http::target;
use lowroad_log::{AccessEntry, RequestLine};

/// Decides which entries a log contains.
pub struct EntryFilter {
    conditions: AccessLogConditions,
    /// The entries that fulfil the conditions, modulo the sample.
    matched_count: u64,
    /// Memory for the decoded path.
    path: Vec<u8>,
}

impl EntryFilter {
    /// The filter for these conditions; `None` if they hold for all entries.
    pub fn new(conditions: AccessLogConditions) -> Option<EntryFilter> {
        (conditions != AccessLogConditions::default()).then(|| EntryFilter {
            conditions,
            matched_count: 0,
            path: Vec::new(),
        })
    }

    /// Whether the filter needs the duration.
    pub fn needs_duration(&self) -> bool {
        self.conditions.duration_min_ms > 0
    }

    /// Whether the filter needs the site.
    pub fn needs_site(&self) -> bool {
        !self.conditions.sites.is_empty()
    }

    /// Whether the log contains the entry of a request for this site.
    pub fn admits(&mut self, entry: &AccessEntry<'_>, site: &str) -> bool {
        let conditions = &self.conditions;
        let is_site =
            conditions.sites.is_empty() || conditions.sites.iter().any(|it| it.name == site);
        if !is_site || entry.duration_us < conditions.duration_min_ms * 1000 {
            return false;
        }
        let status = entry.status;
        let statuses = conditions.statuses.iter();
        let is_status = is_selected(statuses.map(|range| {
            let matches = (range.first..=range.last).contains(&status);
            (matches, range.is_excluded)
        }));
        if !is_status || !self.is_path(entry) {
            return false;
        }
        // Every nth entry instead of a random choice: the sample has exactly this share.
        self.matched_count = (self.matched_count + 1) % self.conditions.sample;
        self.matched_count == 1 % self.conditions.sample
    }

    fn is_path(&mut self, entry: &AccessEntry<'_>) -> bool {
        let paths = &self.conditions.paths;
        if paths.is_empty() {
            return true;
        }
        let path = RequestLine::from_text(entry.line).path();
        self.path.resize(path.len(), 0);
        // Patterns match decoded paths. A path that can't be decoded is compared as it is.
        let path = target::decode_with_slashes(path, &mut self.path).unwrap_or(path);
        is_selected(
            paths
                .iter()
                .map(|it| (it.pattern.matches(path), it.is_excluded)),
        )
    }
}

/// Whether a value is selected by conditions, each of which matches it or not, and may exclude it: at least one of those
/// that don't exclude matches, if there are any, and none of those that exclude.
fn is_selected(conditions: impl Iterator<Item = (bool, bool)>) -> bool {
    let (mut is_included, mut has_inclusion) = (false, false);
    for (matches, is_excluded) in conditions {
        if matches && is_excluded {
            return false;
        }
        has_inclusion |= !is_excluded;
        is_included |= matches;
    }
    is_included || !has_inclusion
}

#[cfg(test)]
mod tests {
    use lowroad_config::{ConfigPlace, PathCondition, PathPattern, SiteCondition, StatusCondition};

    use super::*;

    fn entry(line: &'static [u8], status: u16, duration_us: u64) -> AccessEntry<'static> {
        AccessEntry {
            peer: [192, 0, 2, 7].into(),
            user: b"",
            unix_ms: 0,
            line,
            host: b"",
            status,
            body_bytes: 0,
            whole: true,
            referer: b"",
            user_agent: b"",
            duration_us,
            outcome: "hit",
            level: "worker",
            tls: "",
        }
    }

    fn filter(conditions: AccessLogConditions) -> EntryFilter {
        EntryFilter::new(conditions).expect("there are conditions")
    }

    #[test]
    fn without_conditions_there_is_no_filter() {
        assert!(EntryFilter::new(AccessLogConditions::default()).is_none());
    }

    #[test]
    fn all_conditions_must_hold() {
        let status = |first, last, is_excluded| StatusCondition {
            first,
            last,
            is_excluded,
        };
        let path = |text: &str, is_excluded| PathCondition {
            pattern: PathPattern::parse(text).expect("a pattern"),
            is_excluded,
        };
        let mut filter = filter(AccessLogConditions {
            sites: vec![SiteCondition {
                name: "a.example".into(),
                place: ConfigPlace {
                    file: "lowroad.toml".into(),
                    line: 1,
                    column: 1,
                },
            }],
            statuses: vec![
                status(500, 599, false),
                status(404, 404, false),
                status(503, 503, true),
            ],
            paths: vec![path("/shop/**", false), path("*.css", true)],
            duration_min_ms: 10,
            sample: 1,
        });
        for (line, status, duration_us, site, is_admitted) in [
            (
                &b"GET /shop/a?x HTTP/1.1"[..],
                500,
                10_000,
                "a.example",
                true,
            ),
            (b"GET /sh%6Fp/a HTTP/1.1", 404, 10_000, "a.example", true),
            (b"GET /shop/a HTTP/1.1", 503, 10_000, "a.example", false),
            (b"GET /shop/a HTTP/1.1", 200, 10_000, "a.example", false),
            (b"GET /shop/a.css HTTP/1.1", 500, 10_000, "a.example", false),
            (b"GET /a HTTP/1.1", 500, 10_000, "a.example", false),
            (b"GET /shop/a HTTP/1.1", 500, 9_999, "a.example", false),
            (b"GET /shop/a HTTP/1.1", 500, 10_000, "b.example", false),
            (b"\x16\x03", 500, 10_000, "a.example", false),
        ] {
            let entry = entry(line, status, duration_us);
            assert_eq!(filter.admits(&entry, site), is_admitted, "{entry:?}");
        }
    }

    #[test]
    fn exclusions_alone_admit_all_others() {
        let mut filter = filter(AccessLogConditions {
            statuses: vec![StatusCondition {
                first: 304,
                last: 304,
                is_excluded: true,
            }],
            ..AccessLogConditions::default()
        });
        assert!(filter.admits(&entry(b"", 200, 0), ""));
        assert!(!filter.admits(&entry(b"", 304, 0), ""));
    }

    #[test]
    fn sample_admits_every_nth_entry() {
        let mut filter = filter(AccessLogConditions {
            sample: 3,
            ..AccessLogConditions::default()
        });
        let admitted: Vec<bool> = (0..7)
            .map(|_| filter.admits(&entry(b"", 200, 0), ""))
            .collect();
        assert_eq!(admitted, [true, false, false, true, false, false, true]);
    }
}
