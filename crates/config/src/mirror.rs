//! Reads `mirror` of a route: copies of requests to another origin.

use crate::class::list;
use crate::conditions::method;
use crate::named::{self, count};
use crate::origin_url;
use crate::reader::{ConfigSection, ConfigValue, KeyPosition};
use crate::value::InvalidValue;
use crate::{MirrorConfig, OriginConfig};

/// The upper bound of `body_max`: each copy in progress may buffer this much.
const BODY_LEN_MAX: u64 = 16 << 20;

/// Reads the name or URL of an origin, or a table; also returns the position of the origin.
pub(crate) fn mirror(section: &ConfigSection<'_>) -> Option<(MirrorConfig, KeyPosition)> {
    let item = section.item("mirror")?;
    if !item.is_table() {
        let to = origin_of(&item)?;
        return Some((MirrorConfig::new(to), item.position));
    }
    let section = item.section()?;
    let to_item = section.required("to");
    let to = to_item.as_ref().and_then(origin_of);
    let default = MirrorConfig::new(OriginConfig::named(String::new()));
    let methods = list(&section, "methods", |item| item.read(method));
    let mirror = MirrorConfig {
        share: section
            .item("share")
            .and_then(|item| item.read(share))
            .unwrap_or(default.share),
        methods: match methods.is_empty() {
            true => default.methods,
            false => methods,
        },
        body_len_max: section.size("body_max", default.body_len_max, 0..=BODY_LEN_MAX),
        concurrency_max: count(&section, "concurrency", default.concurrency_max, 1..=65_536),
        to: default.to,
    };
    section.finish();
    let mirror = MirrorConfig {
        to: Box::new(to?),
        ..mirror
    };
    Some((mirror, to_item?.position))
}

/// A URL, or the name of an `[[origin]]`, which has no servers until the names are resolved.
fn origin_of(item: &ConfigValue<'_>) -> Option<OriginConfig> {
    match item.value_text().is_some_and(|text| text.contains(':')) {
        true => item.read(origin_url::url).map(OriginConfig::new),
        false => named::name(item).map(OriginConfig::named),
    }
}

/// Reads a percentage, in hundredths of a percent.
fn share(text: &str) -> Result<u32, InvalidValue> {
    let parse = |text: &str| {
        let (whole, fraction) = text
            .strip_suffix('%')?
            .split_once('.')
            .unwrap_or((text.strip_suffix('%')?, ""));
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) || fraction.len() > 2 {
            return None;
        }
        let hundredths: u32 = format!("{fraction:0<2}").parse().ok()?;
        let whole: u32 = whole.parse().ok().filter(|whole| *whole <= 100)?;
        Some(whole * 100 + hundredths).filter(|share| (1..=10_000).contains(share))
    };
    parse(text).ok_or(InvalidValue {
        expected: "a share of requests",
        allowed: "\"10%\", \"0.5%\"; 0.01 to 100",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_is_a_percentage_with_two_decimals() {
        for (text, expected) in [
            ("10%", Some(1_000)),
            ("100%", Some(10_000)),
            ("0.5%", Some(50)),
            ("0.05%", Some(5)),
            ("0%", None),
            ("0.001%", None),
            ("100.01%", None),
            ("10", None),
            ("%", None),
            ("+1%", None),
            ("-1%", None),
        ] {
            assert_eq!(share(text).ok(), expected, "{text}");
        }
    }
}
