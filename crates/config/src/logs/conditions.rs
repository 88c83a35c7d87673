//! Reads the conditions of an access log.

use crate::reader::{ConfigSection, ConfigValue};
use crate::value::InvalidValue;
use crate::{AccessLogConditions, PathCondition, SiteCondition, StatusCondition};

const HOUR_MS: u64 = 3_600_000;
const SAMPLE_MAX: u64 = 1_000_000_000;

/// Reads `site`, `status`, `path`, `min_duration` and `sample`.
pub(super) fn conditions(section: &ConfigSection<'_>) -> AccessLogConditions {
    let items = |key| {
        section
            .item(key)
            .map(ConfigValue::one_or_many)
            .unwrap_or_default()
    };
    let sites = items("site");
    let sites = sites.iter().filter_map(|item| {
        Some(SiteCondition {
            name: item.text()?.to_owned(),
            place: item.place(),
        })
    });
    let statuses = items("status");
    let statuses = statuses.iter().filter_map(|item| item.read(status));
    let paths = items("path");
    AccessLogConditions {
        sites: sites.collect(),
        statuses: statuses.collect(),
        paths: paths.iter().filter_map(path).collect(),
        duration_min_ms: section.duration_ms("min_duration", 0, 0..=HOUR_MS),
        sample: section.count("sample", 1, 1..=SAMPLE_MAX),
    }
}

fn status(text: &str) -> Result<StatusCondition, InvalidValue> {
    let (digits, is_excluded) = match text.strip_prefix('!') {
        Some(digits) => (digits, true),
        None => (text, false),
    };
    let range = match digits.as_bytes() {
        [class @ b'1'..=b'5', b'x', b'x'] => {
            let first = u16::from(class - b'0') * 100;
            Some((first, first + 99))
        }
        // 0 is the status of a connection that is passed through.
        [b'0'] => Some((0, 0)),
        [b'1'..=b'5', b'0'..=b'9', b'0'..=b'9'] => digits.parse().ok().map(|code| (code, code)),
        _ => None,
    };
    let (first, last) = range.ok_or(InvalidValue {
        expected: "a status",
        allowed: "404, \"4xx\", or with ! for those that are not logged: \"!304\"",
    })?;
    Ok(StatusCondition {
        first,
        last,
        is_excluded,
    })
}

fn path(item: &ConfigValue<'_>) -> Option<PathCondition> {
    let text = item.text()?;
    let excluded = text.strip_prefix('!');
    let pattern = item.pattern_of(excluded.unwrap_or(text))?;
    Some(PathCondition {
        pattern,
        is_excluded: excluded.is_some(),
    })
}
