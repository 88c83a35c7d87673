//! Warns of valid settings that have no effect: tables behind others, maps without a use, lifetimes without a cache.

use std::collections::HashMap;

use crate::reader::{ConfigSource, KeyPosition};
use crate::site_marks::{CacheMarks, SiteMarks};
use crate::{
    ClientAuthConfig, InterceptedErrors, PathPattern, ProcessConfig, ResponseStorage, RouteConfig,
    SiteConfig,
};

/// A table with a pattern, among several of which the first that matches applies.
pub(crate) struct OrderedTable<'c> {
    pub pattern: &'c PathPattern,
    /// Identifies the table; several patterns may belong to one.
    pub table: usize,
    /// Whether it applies to all requests for its paths.
    pub takes_all: bool,
    pub position: &'c KeyPosition,
}

/// Warns of settings of sites that have no effect.
pub(crate) fn check(
    source: &ConfigSource<'_>,
    sites: &[(SiteConfig, SiteMarks)],
    server: &ProcessConfig,
) {
    for (site, marks) in sites {
        // Conditions do not exist in CORS tables, so each takes all requests for its paths.
        let cors = site.cors.iter().zip(&marks.cors);
        let cors: Vec<_> = cors
            .map(|(cors, (table, position))| OrderedTable {
                pattern: &cors.pattern,
                table: *table,
                takes_all: true,
                position,
            })
            .collect();
        warn_of_hidden(source, "site.cors", &cors);
        // A route for missing files leaves the existing ones to later routes.
        let routes = site.routes.iter().zip(&marks.routes);
        let routes: Vec<_> = routes
            .map(|(route, marks)| OrderedTable {
                pattern: &route.pattern,
                table: marks.table,
                takes_all: route.conditions.is_empty() && !route.missing && !route.internal,
                position: &marks.handler,
            })
            .collect();
        warn_of_hidden(source, "site.route", &routes);
        warn_of_missing_certificates(source, site, marks);
        for (route, marks) in site.routes.iter().zip(&marks.routes) {
            warn_of_missing_pages(source, site, route, &marks.handler);
        }
        let mut tables = site.routes.iter().zip(&marks.routes).collect::<Vec<_>>();
        // Several patterns of a table have the same cache.
        tables.dedup_by_key(|(_, marks)| marks.table);
        for (route, marks) in tables {
            warn_of_unused_caching(source, route, &marks.caching, server);
        }
    }
}

/// Warns of a listener at which clients need no certificate, although they need one over TLS.
fn warn_of_missing_certificates(source: &ConfigSource<'_>, site: &SiteConfig, marks: &SiteMarks) {
    let is_bypassed = site
        .tls
        .as_ref()
        .is_some_and(|tls| matches!(tls.clients, ClientAuthConfig::Require(_)) && !tls.redirect);
    if let (true, Some(position)) = (is_bypassed, marks.listen.first()) {
        source.warn(
            position,
            "clients need no certificate here: client = \"require\" in [site.tls] applies to TLS only",
            "redirect = true in [site.tls], or no listener without TLS",
        );
    }
}

/// Warns of lifetimes and rules of a cache that stores nothing.
fn warn_of_unused_caching(
    source: &ConfigSource<'_>,
    route: &RouteConfig,
    marks: &CacheMarks,
    server: &ProcessConfig,
) {
    let reason = match route.keep {
        ResponseStorage::Never => "keep = \"never\" of the route",
        _ if server.cache_len_max == 0 => "server.cache = 0",
        _ => return,
    };
    let ttl = marks
        .ttl
        .iter()
        .map(|position| (position, "gets this lifetime"));
    let rules = marks.rules.iter().map(|position| (position, "is stored"));
    for (position, effect) in ttl.chain(rules) {
        source.warn(
            position,
            format!("no response {effect}, because of {reason}"),
            "either of both",
        );
    }
}

/// Warns of errors that become successes without a page.
fn warn_of_missing_pages(
    source: &ConfigSource<'_>,
    site: &SiteConfig,
    route: &RouteConfig,
    position: &KeyPosition,
) {
    let InterceptedErrors::Listed(listed) = &route.intercepted_errors else {
        return;
    };
    for (range, _) in listed.iter().filter(|(_, status)| *status < 400) {
        if !site.error_pages.keys().any(|page| range.contains(*page)) {
            source.warn(
                position,
                format!("intercept_errors: the site has no page for {range}"),
                "error_pages with the status",
            );
        }
    }
}

/// Warns of tables without effect: an earlier table has all their paths.
pub(crate) fn warn_of_hidden(source: &ConfigSource<'_>, name: &str, tables: &[OrderedTable<'_>]) {
    // A literal pattern covers only an equal one, so a site may have thousands of them.
    let mut literals: HashMap<&str, usize> = HashMap::new();
    let mut others: Vec<usize> = Vec::new();
    for (index, table) in tables.iter().enumerate() {
        let hides = |other: &usize| {
            let other = &tables[*other];
            other.table != table.table && covers(other.pattern, table.pattern)
        };
        let literal = literals.get(table.pattern.text()).copied().filter(hides);
        let other = others.iter().copied().find(hides);
        if let Some(other) = literal.into_iter().chain(other).min() {
            let other = &tables[other];
            source.warn(
                table.position,
                format!(
                    "never applies to {}: an earlier {name} with {} precedes it",
                    table.pattern, other.pattern
                ),
                "the table with the narrower pattern first",
            );
        }
        match (table.takes_all, table.pattern.is_literal()) {
            (true, true) => {
                literals.entry(table.pattern.text()).or_insert(index);
            }
            (true, false) => others.push(index),
            (false, _) => {}
        }
    }
}

/// Whether a pattern surely matches all paths of another one, and all below them.
pub(crate) fn covers_folder(pattern: &PathPattern, other: &PathPattern) -> bool {
    let text = pattern.text();
    let folder = text.strip_suffix("**").filter(|it| it.ends_with('/'));
    text == "/**"
        || !other.ignores_case()
            && folder.is_some_and(|it| it == pattern.front() && other.front().starts_with(it))
}

/// Whether a pattern surely matches all paths of another one.
pub(crate) fn covers(pattern: &PathPattern, other: &PathPattern) -> bool {
    // Other cases stay without a warning: a wrong one would be worse than none.
    let text = pattern.text();
    if pattern == other || text == "/**" {
        return true;
    }
    // All paths of a pattern begin with its front, which is cheap to compare.
    let has_front = other.front().starts_with(pattern.front());
    if !has_front || !other.is_absolute() || other.ignores_case() {
        return false;
    }
    // The front of the other pattern with anything behind it.
    let folder = text.strip_suffix("**");
    let is_folder = folder.is_some_and(|it| !it.is_empty() && it == pattern.front());
    is_folder || other.is_literal() && pattern.matches(other.front().as_bytes())
}

/// Warns of maps to which no text refers.
pub(crate) fn check_maps(source: &ConfigSource<'_>, maps: &[(String, KeyPosition)]) {
    for (name, position) in maps.iter().filter(|(name, _)| !source.is_map_used(name)) {
        source.warn(
            position,
            "no text refers to the map",
            format!("$map_{name} in a text, or no map"),
        );
    }
}
