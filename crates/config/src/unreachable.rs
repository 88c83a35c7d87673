//! Warns of rules that no request can meet: conditions on a scheme that the site does not have, patterns outside of their
//! route, and rules after one that ends all requests for their paths.

use std::collections::HashSet;

use crate::contradictions::{OrderedTable, covers, covers_folder, warn_of_hidden};
use crate::reader::ConfigSource;
use crate::site_marks::{RouteMarks, SiteMarks};
use crate::{PathPattern, PathSelector, RouteConfig, RuleAction, RuleConfig, SiteConfig};

/// Warns of rules of sites that never apply.
pub(crate) fn check(source: &ConfigSource<'_>, sites: &[(SiteConfig, SiteMarks)]) {
    for (site, marks) in sites {
        warn_of_schemes(source, site, marks);
        warn_of_ended_rules(source, site, marks);
        warn_of_hidden(source, "site.redirect", &ordered_redirects(site, marks));
        let routes: Vec<_> = site.routes.iter().zip(&marks.routes).collect();
        for table in routes.chunk_by(|(_, one), (_, other)| one.table == other.table) {
            warn_of_outside_patterns(source, table);
        }
    }
}

/// Warns of conditions on the scheme that no request to the site meets.
fn warn_of_schemes(source: &ConfigSource<'_>, site: &SiteConfig, marks: &SiteMarks) {
    // A trusted proxy may report any scheme.
    if !site.trusted_proxies.addresses.is_empty() {
        return;
    }
    let missing = match (&site.tls, site.listen.is_empty()) {
        (None, _) => true,
        (Some(_), true) => false,
        (Some(_), false) => return,
    };
    let rules = site.access.iter().map(|it| &it.conditions);
    let redirects = site.redirects.iter().map(|it| &it.conditions);
    let rewrites = site.rewrites.iter().map(|it| &it.conditions);
    let routes = site.routes.iter().map(|it| &it.conditions);
    let headers = site.headers.iter().filter_map(|rule| {
        let position = marks.headers.get(rule.table)?;
        Some((&rule.conditions, position))
    });
    let cache_rules = site.routes.iter().zip(&marks.routes);
    let cache_rules = cache_rules.flat_map(|(route, marks)| {
        let conditions = route.caching.rules.iter().map(|it| &it.conditions);
        conditions.zip(&marks.caching.rules)
    });
    let all = rules
        .zip(&marks.access)
        .chain(redirects.zip(&marks.redirects))
        .chain(rewrites.zip(&marks.rewrites))
        .chain(routes.zip(marks.routes.iter().map(|it| &it.handler)))
        .chain(headers)
        .chain(cache_rules);
    let mut warned = HashSet::new();
    for (_, position) in all.filter(|(it, _)| it.is_https == Some(missing)) {
        // Several patterns of a table have the same conditions.
        if !warned.insert(position.offset) {
            continue;
        }
        let (scheme, reason, allowed) = match missing {
            true => (
                "https",
                "TLS",
                "[site.tls], or trusted_proxies if a proxy ends TLS",
            ),
            false => ("http", "a listener without TLS", "listen, or no such rule"),
        };
        source.warn(
            position,
            format!("never applies: scheme = \"{scheme}\", but the site is without {reason}"),
            allowed,
        );
    }
}

/// Warns of access rules after one that ends all requests for their paths.
fn warn_of_ended_rules(source: &ConfigSource<'_>, site: &SiteConfig, marks: &SiteMarks) {
    for (index, (rule, position)) in site.access.iter().zip(&marks.access).enumerate() {
        let earlier = site.access[..index].iter().zip(&marks.access);
        let mut is_allowed = false;
        for (other, other_position) in earlier {
            // Several patterns of a table have the same action.
            let is_other_table = other_position.offset != position.offset;
            if is_other_table && ends(other, rule, is_allowed) {
                source.warn(
                    position,
                    format!(
                        "never applies to {}: an earlier site.rule with {} and without conditions ends these requests",
                        rule.pattern, other.pattern
                    ),
                    "this rule first, or conditions in the earlier one",
                );
                break;
            }
            is_allowed |= matches!(other.action, RuleAction::Allow);
        }
    }
}

/// Whether an earlier rule ends all requests to which a later one would apply; `is_allowed`: whether a rule before both allows
/// some.
fn ends(earlier: &RuleConfig, later: &RuleConfig, is_allowed: bool) -> bool {
    let ends = match earlier.action {
        RuleAction::Respond(_) => true,
        // Allowed requests pass all rules that refuse, but further rules of other kinds apply to them.
        RuleAction::Deny(_) | RuleAction::Close => later.action.refuses() || !is_allowed,
        _ => false,
    };
    // A rule that refuses covers the paths below its pattern, too.
    let covers = match later.action.refuses() && !earlier.action.refuses() {
        true => covers_folder,
        false => covers,
    };
    // A repetition of the same action is harmless.
    let is_other = earlier.action != later.action;
    ends && is_other && earlier.conditions.is_empty() && covers(&earlier.pattern, &later.pattern)
}

/// The redirects of a site by globs; regular expressions are not compared.
fn ordered_redirects<'c>(site: &'c SiteConfig, marks: &'c SiteMarks) -> Vec<OrderedTable<'c>> {
    let redirects = site.redirects.iter().zip(&marks.redirects);
    let tables = redirects.filter_map(|(redirect, position)| match &redirect.from {
        PathSelector::Pattern(pattern) => Some(OrderedTable {
            pattern,
            table: position.offset,
            takes_all: redirect.conditions.is_empty(),
            position,
        }),
        PathSelector::Regex(_) => None,
    });
    tables.collect()
}

/// Warns of rules of a route's cache with paths outside of the route. `routes` are the patterns of one table.
fn warn_of_outside_patterns(source: &ConfigSource<'_>, routes: &[(&RouteConfig, &RouteMarks)]) {
    let Some((first, marks)) = routes.first() else {
        return;
    };
    for (rule, position) in first.caching.rules.iter().zip(&marks.caching.rules) {
        let is_outside = |pattern: &PathPattern| {
            routes
                .iter()
                .all(|(route, _)| are_disjoint(&route.pattern, pattern))
        };
        if let Some(pattern) = rule.patterns.iter().find(|it| is_outside(it)) {
            source.warn(
                position,
                format!(
                    "never applies to {pattern}: the route is for {}",
                    first.pattern
                ),
                "a pattern within that of the route",
            );
        }
    }
}

/// Whether surely no path matches both patterns.
fn are_disjoint(one: &PathPattern, other: &PathPattern) -> bool {
    let (first, second) = (one.front(), other.front());
    // The front of a pattern for a last segment is empty.
    if !(first.starts_with(second) || second.starts_with(first)) {
        return true;
    }
    one.is_literal() && !other.matches(first.as_bytes())
        || other.is_literal() && !one.matches(second.as_bytes())
}
