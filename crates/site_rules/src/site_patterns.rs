//! The patterns of all rules of a site, which are matched together: once per request, and only if a rule depends on the
//! path.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use lowroad_config as config;
use lowroad_config::{MatchScope, PatternSet, PatternSetBuilder, RouteTo, slash_forms};

use crate::distinct_patterns::DistinctPatterns;
use crate::header_fields::request_dependent_patterns;
use crate::match_cache::{MatchCache, PatternsIdentity};

/// The kind of rule to which a pattern belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PatternKind {
    AccessRule,
    ClientCertificate,
    Redirect,
    Rewrite,
    Route,
    Alias,
    /// Rules for response fields that depend on the request.
    RequestField,
    Cors,
}

const KINDS: usize = 8;

/// All patterns of a site that are matched with the paths of requests.
pub struct SitePatterns {
    set: PatternSet,
    identity: PatternsIdentity,
    /// For each [`PatternKind`], the range of numbers of its patterns.
    ranges: [Range<u32>; KINDS],
    /// For each pattern of routes, whether it has a route that does not require the file to be missing.
    routed: Vec<bool>,
}

/// The patterns of a site that match a path, computed on first use.
pub struct PathMatches<'a> {
    patterns: &'a SitePatterns,
    path: &'a [u8],
    /// The path as the client sent it, if it contains encoded slashes or backslashes.
    raw_path: Option<&'a [u8]>,
    cache: Option<&'a PathMatchCache>,
    found: OnceCell<Arc<PatternMatches>>,
}

/// The matches of paths that a worker has matched before.
pub type PathMatchCache = MatchCache<PatternMatches>;

/// The patterns that match some form of a path.
#[derive(Default)]
pub struct PatternMatches {
    /// The numbers of the patterns, in ascending order.
    numbers: Vec<u32>,
    /// For each pattern in `numbers`, the forms that it matches; empty if the path has only one form.
    forms: Vec<FormSet>,
    /// One bit for each [`PatternKind`] with a pattern in `numbers`: most paths match none of most kinds.
    kinds: u8,
}

/// A set of forms of a path, one bit each. The first form is the decoded path, the others are those of [`slash_forms`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FormSet(u8);

impl FormSet {
    /// The decoded form, which is the only one unless the path contains encoded slashes or backslashes.
    const DECODED: FormSet = FormSet(1);

    fn from_index(index: usize) -> FormSet {
        FormSet(1 << index)
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The union of both sets.
    #[must_use]
    pub fn with(self, other: FormSet) -> FormSet {
        FormSet(self.0 | other.0)
    }

    /// The forms that are not in `other`.
    #[must_use]
    pub fn without(self, other: FormSet) -> FormSet {
        FormSet(self.0 & !other.0)
    }
}

impl SitePatterns {
    /// Collects the patterns of a site.
    pub fn new(site: &config::SiteConfig) -> SitePatterns {
        let mut builder = NumberedBuilder::default();
        let access = DistinctPatterns::from_rules(&site.access);
        for (pattern, scope) in &access.patterns {
            builder.patterns.add(pattern, *scope);
        }
        // The numbers of each kind are contiguous, so the patterns of one kind are added before those of the next.
        builder.end(PatternKind::AccessRule, access.patterns.len());
        let client_paths = site.tls.as_ref().map_or(&[][..], |tls| &tls.client_paths);
        for pattern in client_paths {
            // Like the pattern of a rule that refuses requests, `pattern` covers everything below its paths.
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
        let routes = DistinctPatterns::from_routes(&site.routes);
        for (pattern, scope) in &routes.patterns {
            builder.patterns.add(pattern, *scope);
        }
        builder.end(PatternKind::Route, routes.patterns.len());
        for alias in &site.aliases {
            builder.patterns.add_folder(&alias.path);
        }
        builder.end(PatternKind::Alias, site.aliases.len());
        // Rules for fields that are equal in all responses are applied when a file is loaded, so requests don't match them.
        let mut field_count = 0;
        for pattern in request_dependent_patterns(site) {
            builder.patterns.add(pattern, MatchScope::Path);
            field_count += 1;
        }
        builder.end(PatternKind::RequestField, field_count);
        for rule in &site.cors {
            builder.patterns.add(&rule.pattern, MatchScope::Path);
        }
        builder.end(PatternKind::Cors, site.cors.len());
        let mut routed = vec![false; routes.patterns.len()];
        for (route, index) in site.routes.iter().zip(&routes.index_of) {
            routed[*index] |= !route.missing;
        }
        SitePatterns {
            routed,
            identity: PatternsIdentity::default(),
            set: builder.patterns.build(indexes(site)),
            ranges: builder.ranges,
        }
    }

    /// Whether a pattern of routes (see [`PathMatches::routes`]) has a route that does not require the file to be
    /// missing.
    pub fn is_routed(&self, pattern: usize) -> bool {
        self.routed.get(pattern).is_some_and(|routed| *routed)
    }

    /// Matches a decoded path with all patterns; `raw_path` is passed if the path had encoded slashes or backslashes.
    #[inline]
    pub fn match_path<'a>(&'a self, path: &'a [u8], raw_path: Option<&'a [u8]>) -> PathMatches<'a> {
        PathMatches {
            patterns: self,
            path,
            raw_path,
            cache: None,
            found: OnceCell::new(),
        }
    }

    /// The patterns that match some form of a path with encoded slashes or backslashes.
    fn match_forms(&self, path: &[u8], raw_path: &[u8]) -> PatternMatches {
        let mut found: BTreeMap<u32, FormSet> = BTreeMap::new();
        // Handlers may or may not decode the encoded slashes, so each form of the path is matched.
        for (index, form) in path_forms(path, raw_path).enumerate() {
            for number in self.set.matches(&form) {
                let forms = found.entry(number).or_default();
                *forms = forms.with(FormSet::from_index(index));
            }
        }
        let (numbers, forms) = found.into_iter().unzip();
        self.with_kinds(numbers, forms)
    }

    fn with_kinds(&self, numbers: Vec<u32>, forms: Vec<FormSet>) -> PatternMatches {
        let has_any = |range: &Range<u32>| numbers.iter().any(|number| range.contains(number));
        let kinds = self.ranges.iter().enumerate();
        PatternMatches {
            kinds: kinds.fold(0, |kinds, (kind, range)| {
                kinds | u8::from(has_any(range)) << kind
            }),
            numbers,
            forms,
        }
    }
}

/// All forms of a path, in the order of the bits in a [`FormSet`].
fn path_forms<'p>(path: &'p [u8], raw_path: &'p [u8]) -> impl Iterator<Item = Vec<u8>> {
    std::iter::once(path.to_vec()).chain(slash_forms(raw_path, path))
}

impl<'a> PathMatches<'a> {
    /// Uses the results of earlier requests for the same path.
    #[must_use]
    pub fn with_cache(self, cache: Option<&'a PathMatchCache>) -> PathMatches<'a> {
        PathMatches { cache, ..self }
    }

    /// The matches of another decoded path of the site, with the same cache.
    #[must_use]
    pub fn of_path<'p>(&self, path: &'p [u8]) -> PathMatches<'p>
    where
        'a: 'p,
    {
        self.patterns.match_path(path, None).with_cache(self.cache)
    }

    /// The cache that these matches use.
    pub fn cache(&self) -> Option<&'a PathMatchCache> {
        self.cache
    }
}

impl PathMatches<'_> {
    /// The indexes of access rule patterns that match, as in [`DistinctPatterns::from_rules`].
    pub fn access_patterns(&self) -> impl Iterator<Item = usize> {
        self.matches(PatternKind::AccessRule)
    }

    /// The forms of the path that match an access rule pattern; `index` is an element of
    /// [`PathMatches::access_patterns`].
    pub fn access_forms(&self, index: usize) -> FormSet {
        self.forms(PatternKind::AccessRule, index)
    }

    /// The number of the first CORS rule for the decoded path.
    pub fn cors(&self) -> Option<usize> {
        // The rule's pattern may match another form of the path only, and responses are for the decoded one.
        let mut found = self.matches(PatternKind::Cors);
        let is_decoded = |index: &usize| {
            let forms = self.forms(PatternKind::Cors, *index);
            FormSet::DECODED.without(forms).is_empty()
        };
        found.find(is_decoded)
    }

    fn forms(&self, kind: PatternKind, index: usize) -> FormSet {
        // For a path with one form, no forms are recorded.
        if self.raw_path.is_none() {
            return FormSet::DECODED;
        }
        let first = self.patterns.ranges[kind as usize].start as usize;
        let found = self.found();
        let number_of = |number: &u32| *number as usize;
        let position = found
            .numbers
            .binary_search_by_key(&(first + index), number_of);
        let forms = position.ok().and_then(|position| found.forms.get(position));
        forms.copied().unwrap_or_default()
    }

    /// The texts of some forms of the path.
    pub fn form_texts(&self, forms: FormSet) -> Vec<Vec<u8>> {
        let all = path_forms(self.path, self.raw_path.unwrap_or(self.path)).enumerate();
        let selected =
            all.filter(|(index, _)| FormSet::from_index(*index).without(forms).is_empty());
        selected.map(|(_, form)| form).collect()
    }

    /// Whether the path requires a client certificate.
    pub fn wants_certificate(&self) -> bool {
        let mut found = self.matches(PatternKind::ClientCertificate);
        found.next().is_some()
    }

    /// The numbers of the redirects that may match, in the configured order.
    pub fn redirects(&self) -> impl Iterator<Item = usize> {
        self.matches(PatternKind::Redirect)
    }

    /// The numbers of the rewrites that may match, in the configured order.
    pub fn rewrites(&self) -> impl Iterator<Item = usize> {
        self.matches(PatternKind::Rewrite)
    }

    /// The indexes of route patterns that match, as in [`DistinctPatterns::from_routes`].
    pub fn routes(&self) -> impl Iterator<Item = usize> {
        self.matches(PatternKind::Route)
    }

    /// The numbers of the aliases that may match, in the configured order.
    pub fn aliases(&self) -> impl Iterator<Item = usize> {
        self.matches(PatternKind::Alias)
    }

    /// Whether a rule for response fields that depend on the request may apply. It applies to the decoded path and to its
    /// form without backslashes; the pattern may match another form.
    pub fn may_have_request_fields(&self) -> bool {
        self.matches(PatternKind::RequestField).next().is_some()
    }

    /// Whether the fields of responses may depend on the request: by a rule for fields, or by the conditions of a redirect or
    /// rewrite, which caches in front must know.
    pub fn may_change_fields(&self) -> bool {
        self.has_any_of(&[
            PatternKind::RequestField,
            PatternKind::Redirect,
            PatternKind::Rewrite,
        ])
    }

    /// Whether a redirect, a rewrite or an internal alias may replace the target of the request.
    #[inline]
    pub fn may_replace_target(&self) -> bool {
        self.has_any_of(&[
            PatternKind::Redirect,
            PatternKind::Rewrite,
            PatternKind::Alias,
        ])
    }

    #[inline]
    fn has_any_of(&self, kinds: &[PatternKind]) -> bool {
        let bits = kinds.iter().fold(0, |bits, kind| bits | 1 << *kind as u8);
        !self.patterns.set.is_empty() && self.found().kinds & bits != 0
    }

    #[inline]
    fn matches(&self, kind: PatternKind) -> impl Iterator<Item = usize> {
        let Range { start, end } = self.patterns.ranges[kind as usize];
        // Without patterns of this kind, the path is not matched at all.
        let found = match start == end || !self.has_any_of(&[kind]) {
            true => &[],
            false => self.found().numbers.as_slice(),
        };
        // The numbers are in ascending order, so those of one kind are adjacent.
        let first = found.partition_point(|number| ((*number) as usize) < start as usize);
        let found = found[first..]
            .iter()
            .take_while(move |number| **number < end);
        found.map(move |number| (number - start) as usize)
    }

    fn found(&self) -> &PatternMatches {
        let patterns = self.patterns;
        let of_path = || patterns.with_kinds(patterns.set.matches(self.path), Vec::new());
        self.found
            .get_or_init(|| match (self.raw_path, self.cache) {
                (None, Some(cache)) => cache.find(&patterns.identity, self.path, of_path),
                (None, None) => Arc::new(of_path()),
                // Paths with encoded slashes are too rare to keep them.
                (Some(raw_path), _) => Arc::new(patterns.match_forms(self.path, raw_path)),
            })
    }
}

/// Assigns a range of numbers to the patterns of each kind.
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

/// The names of index files, for which the path of a folder may stand.
pub fn indexes(site: &config::SiteConfig) -> impl Iterator<Item = &str> {
    let program_indexes = site.routes.iter().filter_map(|route| match &route.to {
        RouteTo::FastCgi(fastcgi) => Some(fastcgi.index.as_str()),
        _ => None,
    });
    site.index.iter().map(String::as_str).chain(program_indexes)
}
