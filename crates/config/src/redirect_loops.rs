//! Refuses redirects that lead to themselves. Warns of redirects that lead from one to another and back, or to the
//! address from which the canonical host and the slash at the end lead back.
//!
//! Samples of paths are followed as a browser would. Redirects with conditions, and values of maps, are not followed:
//! they may end the loop.

use lowroad_variables::{Template, TemplatePart, Variable};

use crate::reader::{ConfigSource, ConfigValue};
use crate::rules;
use crate::site_marks::SiteMarks;
use crate::{
    PathPattern, PathSelector, PatternSet, PatternSetBuilder, RedirectConfig, SiteConfig, SiteName,
    TrailingSlash,
};

/// The maximum number of redirects that are followed.
const HOPS_MAX: usize = 20;

/// The paths that are tried with regular expressions: the general ones match one of them.
const EXPRESSION_SAMPLES: [&str; 5] = ["/x", "/x/", "/x/x", "/x/x/", "/x.html"];

/// The start of the warning of an endless loop.
pub const ENDLESS_LOOP: &str = "leads into an endless loop";

/// A URL of a site, without its host.
#[derive(Clone, PartialEq, Eq)]
struct SiteUrl {
    is_https: bool,
    path: String,
}

/// Warns of redirects in endless loops.
pub(crate) fn check(source: &ConfigSource<'_>, sites: &[(SiteConfig, SiteMarks)]) {
    for (site, marks) in sites {
        let mut patterns = PatternSetBuilder::default();
        for redirect in &site.redirects {
            patterns.add_capturing(&redirect.from);
        }
        let patterns = patterns.build([]);
        for (index, position) in marks.redirects.iter().enumerate() {
            let redirect = site.redirects.get(index);
            let samples = redirect
                .map(|it| sample_paths(&it.from))
                .unwrap_or_default();
            let mut loops = samples
                .into_iter()
                .filter_map(|path| find_loop(site, &patterns, index, path));
            if let Some(urls) = loops.next() {
                source.warn(
                    position,
                    format!("{ENDLESS_LOOP}: {}", urls.join(" to ")),
                    "a destination that no rule of the site redirects back",
                );
            }
        }
    }
}

/// Reports a redirect with a destination that matches the same redirect: a loop. Conditions may end it: the next request
/// can have another query or method.
pub(crate) fn check_own_path(redirect: &RedirectConfig, to: &ConfigValue<'_>) {
    if !redirect.conditions.is_empty() {
        return;
    }
    // The values of a map are not known, and paths without an entry are not redirected.
    if redirect.to.whole_map().is_some() {
        return;
    }
    let sample = rules::sample(&redirect.to);
    let path = sample.split(['?', '#']).next().unwrap_or_default();
    // Destinations on other hosts might lead back as well, but this cannot be checked here.
    if path.starts_with('/') && redirect.from.capture(path.as_bytes()).is_some() {
        to.report(
            format!(
                "{} is redirected by the same rule again, in an endless loop",
                to.to_display()
            ),
            format!("a destination that {} does not match", redirect.from),
        );
    }
}

/// The loop that begins at a path of a redirect, if no earlier redirect is in it. `patterns` are those of the site's redirects.
fn find_loop(
    site: &SiteConfig,
    patterns: &PatternSet,
    index: usize,
    path: String,
) -> Option<Vec<String>> {
    let first = SiteUrl {
        is_https: site.tls.is_some(),
        path,
    };
    // Each URL is kept with the redirect that left it, to find the rules of the loop.
    let mut visited: Vec<(SiteUrl, Option<usize>)> = Vec::new();
    let mut url = first;
    for _ in 0..HOPS_MAX {
        if let Some(start) = visited.iter().position(|(it, _)| *it == url) {
            let in_loop = &visited[start..];
            // The other redirects of the loop need no further warning.
            let smallest = in_loop.iter().filter_map(|(_, redirect)| *redirect).min();
            let paths = in_loop.iter().map(|(it, _)| it).chain([&url]);
            return (smallest == Some(index)).then(|| paths.map(|it| it.path.clone()).collect());
        }
        let (redirect, next) = next_url(site, patterns, &url)?;
        visited.push((url, redirect));
        url = next;
    }
    None
}

/// The URL to which a site redirects, and the redirect; none for the canonical URL.
fn next_url(
    site: &SiteConfig,
    patterns: &PatternSet,
    url: &SiteUrl,
) -> Option<(Option<usize>, SiteUrl)> {
    let tls_only = site.tls.as_ref().is_some_and(|tls| tls.redirect);
    if tls_only && !url.is_https {
        // The scheme changes before any rule of the site applies.
        let path = url.path.clone();
        return Some((
            None,
            SiteUrl {
                is_https: true,
                path,
            },
        ));
    }
    // The set may contain patterns that do not match.
    let candidates = patterns.matches(url.path.as_bytes()).into_iter();
    let mut redirects = candidates.filter_map(|number| {
        let number = usize::try_from(number).ok()?;
        Some((number, site.redirects.get(number)?))
    });
    let found = redirects.find(|(_, it)| it.from.capture(url.path.as_bytes()).is_some());
    if let Some((number, redirect)) = found {
        // Another request might meet the conditions.
        let is_followed = redirect.conditions.is_empty();
        let next = is_followed.then(|| destination(site, redirect, url));
        return Some((Some(number), next??));
    }
    // As in the server, redirects precede the canonical form of the path.
    let path = slash_path(site, &url.path)?;
    let is_https = url.is_https;
    Some((None, SiteUrl { is_https, path }))
}

/// The destination of a redirect for a URL, if it is one of the site.
fn destination(site: &SiteConfig, redirect: &RedirectConfig, url: &SiteUrl) -> Option<SiteUrl> {
    let text = expand(site, &redirect.to, redirect, &url.path)?;
    let (is_https, rest) = match text.split_once("://") {
        None => (url.is_https, text.as_str()),
        Some((scheme, rest)) => {
            let host_len = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            let (host, path) = rest.split_at(host_len);
            // A host with a port may be another server.
            let is_own = |name: &SiteName| matches!(name, SiteName::Exact(name) if name == host);
            let is_https = scheme == "https";
            let is_served = match is_https {
                true => site.tls.is_some(),
                false => !site.listen.is_empty(),
            };
            if !is_served || host != OWN_HOST && !site.names.iter().any(is_own) {
                return None;
            }
            (is_https, path)
        }
    };
    let path = rest.split(['?', '#']).next().unwrap_or_default();
    let path = match path {
        "" => "/".to_owned(),
        path => path.to_owned(),
    };
    Some(SiteUrl { is_https, path })
}

/// The host of the request in samples.
const OWN_HOST: &str = "host.invalid";

fn expand(
    site: &SiteConfig,
    to: &Template,
    redirect: &RedirectConfig,
    path: &str,
) -> Option<String> {
    let captures = redirect.from.capture(path.as_bytes())?;
    let mut text = String::new();
    for part in to.parts() {
        text.push_str(match part {
            TemplatePart::Text(text) => text,
            TemplatePart::Variable(Variable::Capture(number)) => {
                path.get(captures.get(number.wrapping_sub(1))?.clone())?
            }
            TemplatePart::Variable(Variable::Path | Variable::RequestUri) => path,
            TemplatePart::Variable(Variable::Host | Variable::Authority) => OWN_HOST,
            TemplatePart::Variable(Variable::Scheme) if site.tls.is_some() => "https",
            TemplatePart::Variable(Variable::Scheme) => "http",
            // Its value is not known.
            TemplatePart::Variable(_) => return None,
        });
    }
    Some(text)
}

/// The path with the canonical form of its end, if a route takes it.
fn slash_path(site: &SiteConfig, path: &str) -> Option<String> {
    let last = path.rsplit('/').next().unwrap_or_default();
    let changed = match site.trailing_slash {
        TrailingSlash::Add if !last.is_empty() && !last.contains('.') => format!("{path}/"),
        TrailingSlash::Remove if path.len() > 1 => path.strip_suffix('/')?.to_owned(),
        _ => return None,
    };
    let mut routes = site.routes.iter().filter(|route| !route.missing);
    let is_routed = routes.any(|route| route.pattern.matches(changed.as_bytes()));
    is_routed.then_some(changed)
}

/// Examples of paths that a redirect matches; empty if none is known.
fn sample_paths(from: &PathSelector) -> Vec<String> {
    let PathSelector::Pattern(pattern) = from else {
        let samples = EXPRESSION_SAMPLES.map(str::to_owned).into_iter();
        let matching = samples.filter(|it| from.capture(it.as_bytes()).is_some());
        return matching.collect();
    };
    // A pattern without a slash is matched against the last segment.
    let sample = match pattern.is_absolute() {
        true => sample_of(pattern),
        false => format!("/{}", sample_of(pattern)),
    };
    let is_matched = pattern.matches(sample.as_bytes());
    is_matched.then_some(sample).into_iter().collect()
}

/// The text of a pattern with a letter in place of each wildcard.
fn sample_of(pattern: &PathPattern) -> String {
    let text = pattern.to_string();
    text.replace("**", "x").replace('*', "x")
}
