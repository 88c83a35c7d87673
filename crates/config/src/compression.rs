//! Reads `[site.compress]` and the keys of a route that name content codings.

use crate::reader::{Item, Section};
use crate::{Compress, Encoding};

pub(crate) fn compress(section: Section<'_>) -> Compress {
    let default = Compress::default();
    let compress = Compress {
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

fn encodings(section: &Section<'_>) -> Option<Vec<Encoding>> {
    codings(&section.item("encodings")?)
}

/// The codings of dynamic responses: a list, `true` for the fast ones, `false` for none.
pub(crate) fn on_the_fly(item: &Item<'_>) -> Option<Vec<Encoding>> {
    match item.value_bool() {
        Some(true) => Some(Compress::ON_THE_FLY.to_vec()),
        Some(false) => Some(Vec::new()),
        None if item.is_array() => codings(item),
        None => {
            item.refuse("a list of codings", "true, false, or [\"zstd\", \"gzip\"]");
            None
        }
    }
}

fn codings(item: &Item<'_>) -> Option<Vec<Encoding>> {
    let items = item.items()?;
    if items.is_empty() {
        item.report(
            "there is no coding",
            "at least one; or enabled = false and precompressed = false",
        );
    }
    let words = [
        ("br", Encoding::Br),
        ("zstd", Encoding::Zstd),
        ("gzip", Encoding::Gzip),
    ];
    let mut encodings = Vec::new();
    for item in items {
        let Some(encoding) = item.choice(&words) else {
            continue;
        };
        if encodings.contains(&encoding) {
            item.report(
                format!("{} is there twice", item.shown()),
                "each coding once",
            );
        }
        encodings.push(encoding);
    }
    Some(encodings)
}
