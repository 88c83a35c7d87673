//! Warns of rules that no request can meet: conditions on a scheme, host or certificate that the site does not have, patterns
//! outside of their route, and rules after one that ends all requests for their paths or exempts them.

use std::collections::HashSet;

use crate::contradictions::{OrderedTable, covers, covers_folder, warn_of_hidden};
use crate::reader::{ConfigSource, KeyPosition};
use crate::site_marks::{RouteMarks, SiteMarks};
use crate::{
    ClientAuthConfig, PathPattern, PathSelector, RequestConditions, RouteConfig, RuleAction,
    RuleConfig, SiteConfig, SiteName,
};

/// Warns of rules of sites that never apply.
pub(crate) fn check(source: &ConfigSource<'_>, sites: &[(SiteConfig, SiteMarks)]) {
    for (site, marks) in sites {
        warn_of_conditions(source, site, marks);
        warn_of_ended_rules(source, site, marks);
        warn_of_hidden(source, "site.redirect", &ordered_redirects(site, marks));
        let routes: Vec<_> = site.routes.iter().zip(&marks.routes).collect();
        for table in routes.chunk_by(|(_, one), (_, other)| one.table == other.table) {
            warn_of_outside_patterns(source, table);
        }
    }
}

/// Warns of conditions that no request to the site meets.
fn warn_of_conditions(source: &ConfigSource<'_>, site: &SiteConfig, marks: &SiteMarks) {
    let mut warned = HashSet::new();
    for (conditions, position) in all_conditions(site, marks) {
        let unmet = unmet_scheme(site, conditions)
            .or_else(|| unmet_host(site, conditions))
            .or_else(|| unmet_certificate(site, conditions));
        // Several patterns of a table have the same conditions.
        if let Some((reason, allowed)) = unmet.filter(|_| warned.insert(position.offset)) {
            source.warn(position, format!("never applies: {reason}"), allowed);
        }
    }
}

/// The conditions of a site's rules, redirects, rewrites, routes, headers and caches.
fn all_conditions<'c>(
    site: &'c SiteConfig,
    marks: &'c SiteMarks,
) -> impl Iterator<Item = (&'c RequestConditions, &'c KeyPosition)> {
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
    rules
        .zip(&marks.access)
        .chain(redirects.zip(&marks.redirects))
        .chain(rewrites.zip(&marks.rewrites))
        .chain(routes.zip(marks.routes.iter().map(|it| &it.handler)))
        .chain(headers)
        .chain(cache_rules)
}

/// Why no request has the scheme, and the allowed values.
fn unmet_scheme(
    site: &SiteConfig,
    conditions: &RequestConditions,
) -> Option<(String, &'static str)> {
    // A trusted proxy may report any scheme.
    if !site.trusted_proxies.addresses.is_empty() {
        return None;
    }
    match (conditions.is_https?, &site.tls) {
        (true, None) => Some((
            "scheme = \"https\", but the site is without TLS".to_string(),
            "[site.tls], or trusted_proxies if a proxy ends TLS",
        )),
        (false, Some(_)) if site.listen.is_empty() => Some((
            "scheme = \"http\", but the site is without a listener without TLS".to_string(),
            "listen, or no such rule",
        )),
        _ => None,
    }
}

/// Why no request has one of the hosts, and the allowed values.
fn unmet_host(site: &SiteConfig, conditions: &RequestConditions) -> Option<(String, &'static str)> {
    // A trusted proxy selects the site by another host than it reports.
    if conditions.hosts.is_empty() || !site.trusted_proxies.addresses.is_empty() {
        return None;
    }
    let is_served = |host: &SiteName| site.names.iter().any(|name| may_overlap(name, host));
    (!conditions.hosts.iter().any(is_served)).then(|| {
        (
            "the site has none of the names in host".to_string(),
            "hosts among the names of the site",
        )
    })
}

/// Whether a host may have both names.
pub(crate) fn may_overlap(name: &SiteName, other: &SiteName) -> bool {
    let includes = |name: &SiteName, other: &SiteName| match other {
        SiteName::Exact(host) => name.includes(host.as_bytes()),
        // A host below the other domain stands for all of them.
        SiteName::Wildcard(domain) => name.includes(format!("x.{domain}").as_bytes()),
        SiteName::Default => true,
    };
    includes(name, other) || includes(other, name)
}

/// Why no client has a certificate, and the allowed values.
fn unmet_certificate(
    site: &SiteConfig,
    conditions: &RequestConditions,
) -> Option<(String, &'static str)> {
    let clients = site.tls.as_ref().map(|tls| &tls.clients);
    let is_requested = clients.is_some_and(|it| *it != ClientAuthConfig::None);
    (conditions.has_certificate == Some(true) && !is_requested).then(|| {
        (
            "client_certificate = true, but the site requests no certificates".to_string(),
            "client = \"request\" or \"require\" in [site.tls]",
        )
    })
}

/// Warns of access rules after one that ends all requests for their paths, or exempts them, and of exemptions from no rule.
fn warn_of_ended_rules(source: &ConfigSource<'_>, site: &SiteConfig, marks: &SiteMarks) {
    for (index, (rule, position)) in site.access.iter().zip(&marks.access).enumerate() {
        let mut earlier = site.access[..index].iter().zip(&marks.access);
        let mut is_allowed = false;
        let ending = earlier.find(|(other, other_position)| {
            // Several patterns of a table have the same action.
            let is_other_table = other_position.offset != position.offset;
            let ends = is_other_table && ends(other, rule, is_allowed);
            is_allowed |= matches!(other.action, RuleAction::Allow);
            ends
        });
        if let Some((other, _)) = ending {
            let effect = match other.action {
                RuleAction::Allow => "allows",
                _ => "ends",
            };
            source.warn(
                position,
                format!(
                    "never applies to {}: an earlier site.rule with {} and without conditions {effect} these requests",
                    rule.pattern, other.pattern
                ),
                "this rule first, or conditions in the earlier one",
            );
        } else if matches!(rule.action, RuleAction::Allow)
            && !site.access[index + 1..].iter().any(|it| exempts(rule, it))
        {
            source.warn(
                position,
                format!(
                    "has no effect for {}: no later site.rule refuses these requests",
                    rule.pattern
                ),
                "the rule before those from which it exempts, or no such rule",
            );
        }
    }
}

/// Whether a rule that allows requests may exempt some from a later rule.
fn exempts(rule: &RuleConfig, later: &RuleConfig) -> bool {
    // All paths that a pattern matches begin with its front.
    let (front, later_front) = (rule.pattern.front(), later.pattern.front());
    later.action.refuses() && (front.starts_with(later_front) || later_front.starts_with(front))
}

/// Whether an earlier rule ends all requests to which a later one would apply; `is_allowed`: whether a rule before both allows
/// some.
fn ends(earlier: &RuleConfig, later: &RuleConfig, is_allowed: bool) -> bool {
    let ends = match earlier.action {
        RuleAction::Respond(_) => true,
        RuleAction::Allow => later.action.refuses(),
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
