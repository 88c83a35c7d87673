//! Checks that arguments which a cache key leaves out don't decide about the response.
//!
//! One stored response would answer requests that lead to different responses. The whole query in a field of a request
//! to an origin does not count: the origin gets the query in any case, and the operator has stated that it ignores the
//! arguments.

use lowroad_variables::{Template, Variable};

use crate::reader::ConfigSource;
use crate::site_marks::SiteMarks;
use crate::{RequestConditions, RouteConfig, RuleAction, SiteConfig};

/// A part of the query on which a response depends.
struct QueryUse<'c> {
    /// The decoded name of the argument; `None`: the whole query.
    argument: Option<&'c str>,
    /// The rule that depends on it.
    rule: String,
}

/// Reports ignored and sorted arguments on which routes, rewrites, maps or requests to handlers depend.
pub(crate) fn check(source: &ConfigSource<'_>, sites: &[(SiteConfig, SiteMarks)]) {
    for (site, marks) in sites {
        for (route, marks) in site.routes.iter().zip(&marks.routes) {
            let caching = &route.caching;
            // Few routes have such keys.
            if caching.ignored_arguments.is_empty() && !caching.sorts_arguments {
                continue;
            }
            // Conditions of other routes count, too: they decide whether this one answers.
            let uses = uses(site, route);
            for (ignored, position) in caching.ignored_arguments.iter().zip(&marks.caching.ignored)
            {
                let Some(found) = uses.iter().find(|it| it.is_in(ignored)) else {
                    continue;
                };
                let part = found.argument.unwrap_or("the whole query");
                source.report(
                    position,
                    format!(
                        "{ignored:?} is not in cache keys, but {} depends on {part}",
                        found.rule
                    ),
                    "arguments on which no condition, variable or map of the site depends",
                );
            }
            let whole = uses.iter().find(|it| it.argument.is_none());
            if let (true, Some(found), Some(position)) =
                (caching.sorts_arguments, whole, &marks.caching.sorted)
            {
                source.report(
                    position,
                    format!("{} depends on the order of the arguments", found.rule),
                    "conditions on arguments, or $arg_NAME, in place of the whole query",
                );
            }
        }
    }
}

/// The parts of the query on which a response of a route depends.
fn uses<'c>(site: &'c SiteConfig, route: &'c RouteConfig) -> Vec<QueryUse<'c>> {
    let mut uses = Vec::new();
    // The conditions of all routes select the one that answers.
    for other in &site.routes {
        let rule = format!("the route {}", other.pattern);
        add(&mut uses, &rule, condition_parts(&other.conditions));
    }
    for access in &site.access {
        if let RuleAction::Fallback(path) = &access.action {
            let rule = format!("the fallback {path}");
            add(&mut uses, &rule, condition_parts(&access.conditions));
        }
    }
    // The responses to paths of rewrites with conditions are not stored.
    for rewrite in &site.rewrites {
        let rule = format!("the rewrite to {}", rewrite.to);
        add(&mut uses, &rule, value_parts(&rewrite.to));
    }
    let env = route.to.env();
    let lines = route.request.set.iter().chain(&route.request.append);
    for (name, value) in lines.chain(env) {
        let rule = format!("{name} of the request to the handler");
        add(&mut uses, &rule, value_parts(value));
    }
    for rule in &route.caching.rules {
        add(
            &mut uses,
            "a rule of the cache",
            condition_parts(&rule.conditions),
        );
    }
    let host = route.request.host.iter();
    host.for_each(|it| add(&mut uses, "the Host of the origin", value_parts(it)));
    uses
}

fn add<'c>(
    uses: &mut Vec<QueryUse<'c>>,
    rule: &str,
    arguments: impl IntoIterator<Item = Option<&'c str>>,
) {
    let found = arguments.into_iter().map(|argument| QueryUse {
        argument,
        rule: rule.to_owned(),
    });
    uses.extend(found);
}

/// The arguments on which conditions depend; `None` is the whole query.
fn condition_parts(conditions: &RequestConditions) -> Vec<Option<&str>> {
    let sets = std::iter::once(conditions).chain(&conditions.exceptions);
    let parts = sets.flat_map(|set| {
        let arguments = set.arguments.iter().map(|it| Some(it.name.as_str()));
        let variables = set.variables.iter().flat_map(|it| it.text.variables());
        arguments.chain(variables.flat_map(variable_parts))
    });
    parts.collect()
}

/// The arguments on which the text of a template depends, other than as a copy of the query.
fn value_parts(value: &Template) -> Vec<Option<&str>> {
    let is_copy = |it: &&Variable| matches!(it, Variable::Query | Variable::RequestUri);
    let variables = value.variables().filter(|it| !is_copy(it));
    variables.flat_map(variable_parts).collect()
}

fn variable_parts(variable: &Variable) -> Vec<Option<&str>> {
    match variable {
        Variable::Argument(name) => vec![Some(name)],
        Variable::Query | Variable::RequestUri => vec![None],
        // `from` contains no maps.
        Variable::Map(map) => map.0.from.variables().flat_map(variable_parts).collect(),
        _ => Vec::new(),
    }
}

impl QueryUse<'_> {
    /// Whether an ignored name, perhaps with a `*` at its end, includes the argument.
    fn is_in(&self, ignored: &str) -> bool {
        let Some(argument) = self.argument else {
            return true;
        };
        match ignored.strip_suffix('*') {
            Some(front) => argument.starts_with(front),
            None => argument == ignored,
        }
    }
}
