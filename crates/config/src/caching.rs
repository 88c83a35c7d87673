//! Reads `[site.route.cache]`: settings that override how an origin's responses are cached.

use crate::class::list;
use crate::conditions;
use crate::named::DAY_MS;
use crate::reader::{ConfigSection, ConfigValue, KeyPosition};
use crate::site_marks::CacheMarks;
use crate::value::InvalidValue;
use crate::{
    CACHE_RULES_MAX, CacheConfig, CacheRule, CacheRuleAction, CookieStorage, RequestConditions,
    StatusRange,
};

/// The maximum lifetime, which is beyond any sensible value.
const LIFETIME_MS_MAX: u64 = 10 * 365 * DAY_MS;

/// The keys for routes to origins only: programs validate no responses, and their errors are not replaced by stale ones.
pub(crate) const KEYS_OF_ORIGINS: [&str; 5] = [
    "stale_while_revalidate",
    "stale_if_error",
    "cookies",
    "request_directives",
    "status_field",
];

/// Reads the cache settings of a route to an origin, or to programs; also returns the positions of some values.
pub(crate) fn caching(section: ConfigSection<'_>, is_origin: bool) -> (CacheConfig, CacheMarks) {
    if !is_origin {
        for key in KEYS_OF_ORIGINS {
            section.only_with(key, "origin");
        }
    }
    let default = CacheConfig::default();
    let secs = |key, default_s: u64| {
        // Delta-seconds are whole seconds (RFC 9111 §1.2.2).
        section.duration_ms(key, default_s * 1000, 0..=LIFETIME_MS_MAX) / 1000
    };
    let cookies = [
        ("shared", CookieStorage::Shared),
        ("never", CookieStorage::Never),
        ("always", CookieStorage::Always),
    ];
    let ignored = list(&section, "ignore_arguments", |item| {
        Some((item.read(argument)?, item.position.clone()))
    });
    let (ignored_arguments, ignored) = ignored.into_iter().unzip();
    let (rules, rule_marks) = rules(&section).into_iter().unzip();
    let position = |key| section.item(key).map(|item| item.position);
    let marks = CacheMarks {
        ignored,
        sorted: position("sort_arguments"),
        ttl: position("ttl"),
        rules: rule_marks,
    };
    let caching = CacheConfig {
        ttl_s: section
            .optional_duration_ms("ttl", 0..=LIFETIME_MS_MAX)
            .map(|ms| ms / 1000),
        stale_while_revalidate_s: secs("stale_while_revalidate", default.stale_while_revalidate_s),
        stale_if_error_s: secs("stale_if_error", default.stale_if_error_s),
        cookies: section.choice("cookies", &cookies, default.cookies),
        request_directives: section.flag("request_directives", default.request_directives),
        status_field: section.flag("status_field", default.status_field),
        ignored_arguments,
        sorts_arguments: section.flag("sort_arguments", default.sorts_arguments),
        bypass_conditions: bypass(&section),
        rules,
        ..default
    };
    section.finish();
    (caching, marks)
}

/// Reads the name of an argument, decoded, perhaps with a `*` at its end.
fn argument(text: &str) -> Result<String, InvalidValue> {
    let name = text.strip_suffix('*').unwrap_or(text);
    // `*` alone would leave out the whole query.
    let is_name = !name.is_empty() && !name.contains(['*', '&', '=', '%', '?']);
    is_name.then(|| text.to_owned()).ok_or(InvalidValue {
        expected: "the name of an argument",
        allowed: "NAME or FRONT*, as in the query but decoded, without & = % ?",
    })
}

/// Reads the tables of `rule`, each with its position.
fn rules(section: &ConfigSection<'_>) -> Vec<(CacheRule, KeyPosition)> {
    let Some(item) = section.item("rule") else {
        return Vec::new();
    };
    if item.is_empty_array() {
        item.report("the list is empty", "at least one; or leave the key out");
    }
    let position = item.position.clone();
    let items = item.one_or_many();
    if items.len() > CACHE_RULES_MAX {
        let allowed = format!("at most {CACHE_RULES_MAX}");
        section.report_at(&position, format!("{} rules", items.len()), allowed);
    }
    // Valid tables are kept beside invalid ones, so that later checks find more.
    let tables = items.iter().filter_map(ConfigValue::section);
    tables.filter_map(rule).collect()
}

fn rule(section: ConfigSection<'_>) -> Option<(CacheRule, KeyPosition)> {
    let position = section.position.clone();
    let patterns = section
        .item("pattern")
        .map_or_else(|| Some(Vec::new()), ConfigValue::patterns);
    let statuses = list(&section, "status", status_range);
    let conditions = conditions::conditions(&section);
    let ttl_s = section
        .optional_duration_ms("ttl", 0..=LIFETIME_MS_MAX)
        .map(|ms| ms / 1000);
    let no_store = section.flag("no_store", false);
    let overrides = match ttl_s {
        Some(_) => section.flag("override", false),
        None => {
            section.only_with("override", "ttl");
            false
        }
    };
    let action = match (ttl_s, no_store) {
        (Some(ttl_s), false) => Some(CacheRuleAction::Lifetime { ttl_s, overrides }),
        (None, true) => Some(CacheRuleAction::NoStore),
        (None, false) => {
            // An invalid `ttl` was reported.
            if section.item("ttl").is_none() {
                section.report("the rule does nothing", "ttl, or no_store = true");
            }
            None
        }
        (Some(_), true) => {
            section.report(
                "ttl of a response that is not stored",
                "ttl, or no_store = true",
            );
            None
        }
    };
    section.finish();
    let rule = CacheRule {
        patterns: patterns?,
        statuses,
        conditions,
        action: action?,
    };
    Some((rule, position))
}

/// Reads a status, or a class of statuses.
pub(crate) fn status_range(item: &ConfigValue<'_>) -> Option<StatusRange> {
    let range = parse_status(&item.plain_text().unwrap_or_default());
    if range.is_none() {
        item.refuse(
            "a status of a response",
            "200 to 599, or \"2xx\" to \"5xx\"",
        );
    }
    range
}

/// Reads a final status (`404`), or a class of them (`4xx`).
pub(crate) fn parse_status(text: &str) -> Option<StatusRange> {
    let class = text.strip_suffix("xx").filter(|class| class.len() == 1);
    let range = match class {
        Some(class) => class.parse().ok().map(StatusRange::Class),
        // `parse` would also accept a sign.
        None if text.len() == 3 => text.parse().ok().map(StatusRange::Exact),
        None => None,
    };
    let is_final = |range: &StatusRange| match range {
        StatusRange::Exact(status) => (200..600).contains(status),
        StatusRange::Class(class) => (2..6).contains(class),
    };
    range.filter(is_final)
}

/// Reads the tables of `bypass`.
fn bypass(section: &ConfigSection<'_>) -> Vec<RequestConditions> {
    list(section, "bypass", |item| {
        let table = item.section()?;
        let is_empty = table.is_empty();
        if is_empty {
            item.report("the table is empty", "at least one condition");
        }
        let conditions = conditions::conditions(&table);
        table.finish();
        Some(conditions)
    })
}
