//! The patterns of all rules of a site, matched with a path together: once per request, and only if a rule of its site
//! depends on the path.

use std::cell::OnceCell;
use std::ops::Range;

use lowroad_config as config;
use lowroad_config::{MatchScope, PatternSet, PatternSetBuilder, RouteTo, slash_forms};

use crate::guard::RulePatterns;
use crate::programs::route_index::RoutePatterns;

/// The kind of rule that a pattern belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PatternKind {
    AccessRule,
    ClientCertificate,
    Redirect,
    Rewrite,
    Route,
    Alias,
}

const KINDS: usize = 6;

/// The patterns of a site that decide about a request.
pub struct SitePatterns {
    set: PatternSet,
    /// For each [`PatternKind`]: the numbers of its patterns.
    ranges: [Range<u32>; KINDS],
    /// The numbers of the patterns of rules that allow, in ascending order.
    allowing: Vec<u32>,
}

/// The patterns of a site that match a path, computed on first use.
pub struct PathMatches<'a> {
    patterns: &'a SitePatterns,
    path: &'a [u8],
    /// The path as it was sent, if it has encoded slashes or backslashes.
    raw_path: Option<&'a [u8]>,
    found: OnceCell<Vec<u32>>,
}

/// The patterns that select the fields of a site's responses.
pub struct HeaderPatterns {
    set: PatternSet,
    /// The patterns of `cache_control` come first.
    cache_control_count: usize,
}

impl SitePatterns {
    /// Collects the patterns of a site.
    pub fn new(site: &config::Site) -> SitePatterns {
        let mut builder = NumberedBuilder::default();
        let access = RulePatterns::new(&site.access);
        for (pattern, scope) in &access.patterns {
            builder.patterns.add(pattern, *scope);
        }
        builder.end(PatternKind::AccessRule, access.patterns.len());
        let client_paths = site.tls.as_ref().map_or(&[][..], |tls| &tls.client_paths);
        for pattern in client_paths {
            builder.patterns.add(pattern, MatchScope::Access);
        }
        builder.end(PatternKind::ClientCertificate, client_paths.len());
        for redirect in &site.redirects {
            builder.patterns.add_capturing(&redirect.from);
        }
        builder.end(PatternKind::Redirect, site.redirects.len());
        for rewrite in &site.rewrites {
            builder.patterns.add_capturing(&rewrite.from);
        }
        builder.end(PatternKind::Rewrite, site.rewrites.len());
        let routes = RoutePatterns::new(&site.routes).patterns;
        for pattern in &routes {
            builder.patterns.add(pattern, MatchScope::Script);
        }
        builder.end(PatternKind::Route, routes.len());
        for alias in &site.aliases {
            builder.patterns.add_folder(&alias.path);
        }
        builder.end(PatternKind::Alias, site.aliases.len());
        SitePatterns {
            set: builder.patterns.build(indexes(site)),
            ranges: builder.ranges,
            allowing: access.allowing(&site.access),
        }
    }

    /// Matches a decoded path with the patterns; `raw_path` is given if slashes or backslashes in it were encoded.
    #[inline]
    pub fn of<'a>(&'a self, path: &'a [u8], raw_path: Option<&'a [u8]>) -> PathMatches<'a> {
        PathMatches {
            patterns: self,
            path,
            raw_path,
            found: OnceCell::new(),
        }
    }

    /// The patterns for a path whose slashes may be read in several ways: those that match one of its forms, but to pass
    /// other rules it has to match in all.
    fn match_forms(&self, path: &[u8], raw_path: &[u8]) -> Vec<u32> {
        let mut found = self.set.matches(path);
        let allows = |number: &u32| self.allowing.binary_search(number).is_ok();
        for form in slash_forms(raw_path, path) {
            let others = self.set.matches(&form);
            found.retain(|number| !allows(number) || others.contains(number));
            found.extend(others.iter().filter(|number| !allows(number)));
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

impl PathMatches<'_> {
    /// The indexes of the access rules' patterns, as [`RulePatterns`] lists them.
    pub fn access_patterns(&self) -> impl Iterator<Item = usize> {
        self.of_kind(PatternKind::AccessRule)
    }

    /// Whether the path requires a client certificate.
    pub fn wants_certificate(&self) -> bool {
        let mut found = self.of_kind(PatternKind::ClientCertificate);
        found.next().is_some()
    }

    /// The numbers of the candidate redirects, in their order.
    pub fn redirects(&self) -> impl Iterator<Item = usize> {
        self.of_kind(PatternKind::Redirect)
    }

    /// The numbers of the candidate rewrites, in their order.
    pub fn rewrites(&self) -> impl Iterator<Item = usize> {
        self.of_kind(PatternKind::Rewrite)
    }

    /// The indexes of the routes' patterns, as [`RoutePatterns`] lists them.
    pub fn routes(&self) -> impl Iterator<Item = usize> {
        self.of_kind(PatternKind::Route)
    }

    /// The numbers of the candidate aliases, in their order.
    pub fn aliases(&self) -> impl Iterator<Item = usize> {
        self.of_kind(PatternKind::Alias)
    }

    #[inline]
    fn of_kind(&self, kind: PatternKind) -> impl Iterator<Item = usize> {
        let Range { start, end } = self.patterns.ranges[kind as usize];
        let found = match start == end {
            true => &[],
            false => self.found().as_slice(),
        };
        let first = found.partition_point(|number| ((*number) as usize) < start as usize);
        let found = found[first..]
            .iter()
            .take_while(move |number| **number < end);
        found.map(move |number| (number - start) as usize)
    }

    fn found(&self) -> &Vec<u32> {
        self.found.get_or_init(|| match self.raw_path {
            None => self.patterns.set.matches(self.path),
            Some(raw_path) => self.patterns.match_forms(self.path, raw_path),
        })
    }
}

impl HeaderPatterns {
    /// Collects the patterns of a site.
    pub fn new(site: &config::Site) -> HeaderPatterns {
        let mut patterns = PatternSetBuilder::default();
        for rule in &site.cache_control {
            patterns.add(&rule.pattern, MatchScope::Path);
        }
        for rule in &site.headers {
            patterns.add(&rule.pattern, MatchScope::Path);
        }
        HeaderPatterns {
            set: patterns.build([]),
            cache_control_count: site.cache_control.len(),
        }
    }

    /// The numbers of the first `cache_control` and of all header rules for a decoded path.
    pub fn of(&self, path: &[u8]) -> (Option<usize>, Vec<usize>) {
        let found = self.set.matches(path);
        let numbers = found.iter().map(|number| *number as usize);
        let (cache_control, headers): (Vec<usize>, Vec<usize>) =
            numbers.partition(|number| *number < self.cache_control_count);
        let headers = headers.into_iter().map(|it| it - self.cache_control_count);
        (cache_control.first().copied(), headers.collect())
    }
}

/// Records the range of numbers for the patterns of each kind.
#[derive(Default)]
struct NumberedBuilder {
    patterns: PatternSetBuilder,
    ranges: [Range<u32>; KINDS],
    next: u32,
}

impl NumberedBuilder {
    fn end(&mut self, kind: PatternKind, count: usize) {
        let end = self.next + u32::try_from(count).unwrap_or(0);
        self.ranges[kind as usize] = self.next..end;
        self.next = end;
    }
}

/// Names of index files, which the path of a folder may stand for.
pub fn indexes(site: &config::Site) -> impl Iterator<Item = &str> {
    let of_programs = site.routes.iter().filter_map(|route| match &route.to {
        RouteTo::FastCgi(fastcgi) => Some(fastcgi.index.as_str()),
        _ => None,
    });
    site.index.iter().map(String::as_str).chain(of_programs)
}
