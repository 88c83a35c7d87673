//! Reads `[[class]]`: the conditions and limits of a traffic class.
//!
//! The meaning and the defaults of the keys are in [`crate::schema`].

use lowroad_limits::RequestRate;

use crate::named::count;
use crate::named::{self, HOUR_MS};
use crate::prefix;
use crate::reader::{ConfigSection, ConfigSource, ConfigValue, KeyPosition};
use crate::rules::is_literal_name;
use crate::value::{self, InvalidValue};
use crate::{AddressPrefix, ClassConfig, ClassMembers, FieldMatch, SiteName};

pub(crate) fn class(section: ConfigSection<'_>) -> Option<(ClassConfig, KeyPosition)> {
    let name_item = section.required("name");
    let name = name_item.as_ref().and_then(named::name);
    let default = ClassConfig::new(name.unwrap_or_default());
    let weight = section.count("weight", u64::from(default.weight), 1..=1000);
    // 0 is outside of the range and stands for "not set".
    let concurrency = count(&section, "concurrency", 0, 1..=65_536);
    let class = ClassConfig {
        weight: u32::try_from(weight).unwrap_or(default.weight),
        concurrency_max: Some(concurrency).filter(|max| *max > 0),
        rate: rate(&section),
        queue_len_max: count(&section, "queue", default.queue_len_max, 0..=65_536),
        deadline_ms: section.duration_ms("deadline", default.deadline_ms, 1..=HOUR_MS),
        members: ClassMembers {
            hosts: list(&section, "hosts", |item| item.read(host)),
            routes: list(&section, "routes", ConfigValue::pattern),
            addresses: addresses(&section, "addresses"),
            headers: list(&section, "headers", |item| item.read(field_line)),
        },
        ..default
    };
    section.finish();
    Some((class, name_item?.position))
}

/// Reports classes that no request can reach, and a class with the reserved name `others`.
pub(crate) fn check(source: &ConfigSource<'_>, classes: &[(ClassConfig, KeyPosition)]) {
    let mut rest = classes.iter();
    // Classes are tried in order: classes after one without conditions are unreachable.
    for (class, position) in rest.by_ref() {
        if class.members.is_everything() {
            break;
        }
        if class.name == ClassConfig::OTHERS {
            let message = format!(
                "{:?} is the class of requests without a class",
                ClassConfig::OTHERS
            );
            source.report(position, message, "another name, or no conditions");
        }
    }
    for (class, position) in rest {
        let message = format!("no requests are left for {:?}", class.name);
        let allowed = "a class without conditions must be the last";
        source.report(position, message, allowed);
    }
}

/// Reads a key with one value or a list; an empty list is a problem.
pub(crate) fn list<'d, T>(
    section: &ConfigSection<'d>,
    key: &'static str,
    read: impl Fn(&ConfigValue<'d>) -> Option<T>,
) -> Vec<T> {
    items(section, key).iter().filter_map(read).collect()
}

fn items<'d>(section: &ConfigSection<'d>, key: &'static str) -> Vec<ConfigValue<'d>> {
    let Some(item) = section.item(key) else {
        return Vec::new();
    };
    // Without this check an empty list would match every request, as a missing key does.
    if item.is_empty_array() {
        item.report("the list is empty", "at least one; or leave the key out");
    }
    item.one_or_many()
}

/// Reads a key with one address prefix or a list; an empty list is a problem.
pub(crate) fn addresses(section: &ConfigSection<'_>, key: &'static str) -> Vec<AddressPrefix> {
    address_prefixes(&items(section, key))
}

/// Reads address prefixes. Warns of those that are a part of others in the list.
pub(crate) fn address_prefixes(items: &[ConfigValue<'_>]) -> Vec<AddressPrefix> {
    let marked = items
        .iter()
        .filter_map(|item| Some((item.read(AddressPrefix::parse)?, item)));
    let (prefixes, items): (Vec<_>, Vec<_>) = marked.unzip();
    for (part, whole) in prefix::contained(&prefixes) {
        items[part].warn(
            format!(
                "{} is a part of {}, which is in the list, too",
                prefixes[part], prefixes[whole]
            ),
            "one of both",
        );
    }
    prefixes
}

fn host(text: &str) -> Result<SiteName, InvalidValue> {
    const REFUSED: InvalidValue = InvalidValue {
        expected: "a host name",
        allowed: "example.com, *.example.com (one or more labels in front), or an address (192.0.2.1, [2001:db8::1])",
    };
    match SiteName::parse(text) {
        // `_` would stand for all hosts; a class without the key already matches all hosts.
        Ok(SiteName::Default) | Err(_) => Err(REFUSED),
        Ok(name) => Ok(name),
    }
}

/// A field to match: `NAME: VALUE`, or `NAME` for any value.
fn field_line(text: &str) -> Result<FieldMatch, InvalidValue> {
    const REFUSED: InvalidValue = InvalidValue {
        expected: "a header field",
        allowed: "\"NAME: VALUE\", or \"NAME\" for any value; no * in the name",
    };
    let (name, value) = match text.split_once(':') {
        // Surrounding whitespace is not part of a field value (RFC 9110 §5.5).
        Some((name, value)) => (name, Some(value.trim_matches([' ', '\t']))),
        None => (text, None),
    };
    let is_name = is_literal_name(name);
    let is_value = value.is_none_or(|value| !value.is_empty() && !value.contains(char::is_control));
    if !is_name || !is_value {
        return Err(REFUSED);
    }
    Ok(FieldMatch {
        name: name.to_string(),
        value: value.map(str::to_string),
    })
}

fn rate(section: &ConfigSection<'_>) -> Option<RequestRate> {
    let Some(item) = section.item("rate") else {
        section.only_with("burst", "rate");
        return None;
    };
    read_rate(section, &item)
}

/// A rate, with the optional key `burst` of the same section.
pub(crate) fn read_rate(
    section: &ConfigSection<'_>,
    item: &ConfigValue<'_>,
) -> Option<RequestRate> {
    let rate = item.read(per_time);
    let (requests, period_ms) = rate.unwrap_or((1, 1000));
    // The default burst is the number of requests per second, at least one.
    let per_second = (requests * 1000 / period_ms).clamp(1, BURST_MAX);
    let burst = section.count("burst", per_second, 1..=BURST_MAX);
    rate.is_some().then_some(RequestRate {
        requests,
        period_ms,
        burst,
    })
}

const BURST_MAX: u64 = 1_000_000;

/// A rate: `100/s`, `30/m`, `5/h`; a bare number is per second.
fn per_time(text: &str) -> Result<(u64, u64), InvalidValue> {
    const REFUSED: InvalidValue = InvalidValue {
        expected: "a rate",
        allowed: "1 to 1000000 requests a second, or with /s, /m or /h: 100, 100/s, 30/m, 5/h",
    };
    let (digits, period_ms) = match text.split_once('/') {
        None | Some((_, "s")) => (text.trim_end_matches("/s"), 1000),
        Some((digits, "m")) => (digits, 60_000),
        Some((digits, "h")) => (digits, HOUR_MS),
        Some(_) => return Err(REFUSED),
    };
    // 0 would block all requests.
    match value::count(digits) {
        Ok(requests @ 1..=1_000_000) => Ok((requests, period_ms)),
        _ => Err(REFUSED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_parses_per_second_minute_and_hour() {
        assert_eq!(per_time("100"), Ok((100, 1000)));
        assert_eq!(per_time("7/s"), Ok((7, 1000)));
        assert_eq!(per_time("30/m"), Ok((30, 60_000)));
        assert_eq!(per_time("5/h"), Ok((5, 3_600_000)));
        for text in [
            "", "0", "/s", "1/", "1/d", "-1", "1/s/s", "1.5/s", "1000001",
        ] {
            assert!(per_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn field_condition_parses_name_and_optional_value() {
        let line = |name: &str, value: Option<&str>| {
            Ok(FieldMatch {
                name: name.into(),
                value: value.map(Into::into),
            })
        };
        assert_eq!(field_line("X-A"), line("X-A", None));
        assert_eq!(field_line("X-A:  b: c "), line("X-A", Some("b: c")));
        for text in [
            "",
            ":",
            ": b",
            "A:",
            "A: ",
            "A B",
            "A : b",
            "A: b\nC: d",
            "A*",
            "*: b",
        ] {
            assert!(field_line(text).is_err(), "{text:?}");
        }
    }
}
