//! Reads `[site.compress]` and the keys of a route that name content codings.

use crate::reader::{ConfigSection, ConfigValue};
use crate::{CompressConfig, OfferedCoding};

pub(crate) fn compress(section: ConfigSection<'_>) -> CompressConfig {
    let default = CompressConfig::default();
    let compress = CompressConfig {
        enabled: section.flag("enabled", default.enabled),
        len_min: section.size("len_min", default.len_min, 0..=1 << 30),
        encodings: encodings(&section).unwrap_or(default.encodings),
        precompressed: section.flag("precompressed", default.precompressed),
        programs: section
            .item("programs")
            .as_ref()
            .and_then(on_the_fly)
            .unwrap_or(default.programs),
    };
    section.finish();
    compress
}

fn encodings(section: &ConfigSection<'_>) -> Option<Vec<OfferedCoding>> {
    codings(&section.item("encodings")?)
}

/// The codings of dynamic responses: a list, `true` for the fast codings, `false` for none.
pub(crate) fn on_the_fly(item: &ConfigValue<'_>) -> Option<Vec<OfferedCoding>> {
    match item.value_bool() {
        Some(true) => Some(CompressConfig::ON_THE_FLY.to_vec()),
        Some(false) => Some(Vec::new()),
        // `true` and `false` are short forms of a list.
        None if item.is_array() => codings(item),
        None => {
            item.refuse("a list of codings", "true, false, or [\"zstd\", \"gzip\"]");
            None
        }
    }
}

fn codings(item: &ConfigValue<'_>) -> Option<Vec<OfferedCoding>> {
    let items = item.items()?;
    // An empty list is not the way to turn compression off: other keys do that.
    if items.is_empty() {
        item.report(
            "the list is empty",
            "at least one; or enabled = false and precompressed = false",
        );
    }
    let choices = [
        ("br", OfferedCoding::Br),
        ("zstd", OfferedCoding::Zstd),
        ("gzip", OfferedCoding::Gzip),
    ];
    let mut encodings = Vec::new();
    for item in items {
        let Some(encoding) = item.choice(&choices) else {
            continue;
        };
        if encodings.contains(&encoding) {
            item.report(
                format!("{} is listed twice", item.to_display()),
                "each coding once",
            );
        }
        encodings.push(encoding);
    }
    Some(encodings)
}
