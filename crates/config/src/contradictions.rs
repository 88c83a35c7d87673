//! Warns of valid settings that have no effect: tables behind others, maps without a use, lifetimes without a cache.

use crate::reader::{ConfigSource, KeyPosition};
use crate::site_marks::SiteMarks;
use crate::{
    InterceptedErrors, PathPattern, ProcessConfig, ResponseStorage, RouteConfig, SiteConfig,
};

/// A table with a pattern, among several of which the first that matches applies.
struct OrderedTable<'c> {
    pattern: &'c PathPattern,
    /// The number of the table; several patterns may belong to one.
    table: usize,
    /// Whether it applies to all requests for its paths.
    takes_all: bool,
    position: &'c KeyPosition,
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
        for (route, marks) in site.routes.iter().zip(&marks.routes) {
            warn_of_missing_pages(source, site, route, &marks.handler);
            let Some(position) = &marks.caching.ttl else {
                continue;
            };
            let reason = match route.keep {
                ResponseStorage::Never => "keep = \"never\" of the route",
                _ if server.cache_len_max == 0 => "server.cache = 0",
                _ => continue,
            };
            source.warn(
                position,
                format!("no response gets this lifetime, because of {reason}"),
                "either of both",
            );
        }
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
fn warn_of_hidden(source: &ConfigSource<'_>, name: &str, tables: &[OrderedTable<'_>]) {
    for (index, table) in tables.iter().enumerate() {
        let hides = |other: &&OrderedTable<'_>| {
            other.takes_all && other.table != table.table && covers(other.pattern, table.pattern)
        };
        if let Some(other) = tables[..index].iter().find(hides) {
            source.warn(
                table.position,
                format!(
                    "never applies to {}: an earlier {name} with {} precedes it",
                    table.pattern, other.pattern
                ),
                "the table with the narrower pattern first",
            );
        }
    }
}

/// Whether a pattern surely matches all paths of another one.
fn covers(pattern: &PathPattern, other: &PathPattern) -> bool {
    // Other cases stay without a warning: a wrong one would be worse than none.
    let text = pattern.to_string();
    if pattern == other || text == "/**" {
        return true;
    }
    if !other.is_absolute() || other.ignores_case() {
        return false;
    }
    // Without wildcards and alternatives, the other pattern matches one path.
    let is_literal = other.front() == other.to_string();
    // The front of the other pattern with anything behind it.
    let folder = text.strip_suffix("**");
    let is_folder = folder.is_some_and(|it| !it.is_empty() && it == pattern.front());
    is_literal && pattern.matches(other.front().as_bytes())
        || is_folder && other.front().starts_with(pattern.front())
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
