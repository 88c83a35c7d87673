//! Matches a path with many patterns at once.
//!
//! Literal prefilter, as in Hyperscan and RE2's FilteredRE2: each pattern is represented by its literal that is rarest
//! among all patterns, and one pass of an automaton over the path finds the literals that the path contains. Only
//! patterns with a found literal are then matched, each once and in a time linear in the path, whatever forms of the
//! path its scope includes. So a pattern costs nothing while its literal is absent from the path. In the worst case, a
//! path that contains the literals of all patterns, each pattern costs one pass over the path for each of its parts.
//!
//! Patterns without a literal (`/**`, `*`), and expressions without a known one, are matched with each path.

mod automaton;
mod literals;
mod scope;

use std::collections::BTreeMap;

use crate::{PathExpression, PathPattern, PathSelector};
use automaton::{LiteralAutomaton, ROOT};
use literals::RequiredLiteral;
pub use scope::MatchScope;
use scope::ScopedPattern;

#[cfg(test)]
mod tests;

/// Patterns that are matched together. They are numbered in the order in which they were added.
#[derive(Default)]
pub struct PatternSet {
    patterns: Vec<ScopedPattern>,
    /// Names of index files, which the path of a folder may stand for.
    indexes: Vec<Vec<u8>>,
    /// Whether some pattern has a scope wider than the path itself.
    has_wide_scopes: bool,
    prefilter: Option<LiteralPrefilter>,
    /// Patterns that are matched with each path.
    unfiltered: Vec<u32>,
}

/// Collects the patterns of a [`PatternSet`].
#[derive(Default)]
pub struct PatternSetBuilder {
    patterns: Vec<ScopedPattern>,
    /// For each pattern: the literals that it requires, all of them (globs) or one (expressions).
    required: Vec<LiteralRequirement>,
}

enum LiteralRequirement {
    All(Vec<RequiredLiteral>),
    Any(Vec<Vec<u8>>),
}

/// Finds the candidates for a path: the patterns with a literal that occurs in it.
struct LiteralPrefilter {
    automaton: LiteralAutomaton,
    /// By the number of the literal in the automaton.
    literals: Vec<FilterLiteral>,
}

struct FilterLiteral {
    len: usize,
    anchors: Vec<AnchoredPatterns>,
}

/// Patterns that need a literal at a position.
struct AnchoredPatterns {
    /// The index among all [`AnchoredPatterns`].
    number: usize,
    is_at_start: bool,
    is_at_end: bool,
    patterns: Vec<u32>,
}

impl PatternSetBuilder {
    /// Adds a glob.
    pub fn add(&mut self, pattern: &PathPattern, scope: MatchScope) {
        let pattern = ScopedPattern::new(pattern, scope);
        self.required
            .push(LiteralRequirement::All(literals::collect_parts(
                pattern.parts(),
            )));
        self.patterns.push(pattern);
    }

    /// Adds a glob or an expression with captures. The set reports it for every path that it matches, and perhaps for
    /// others: the caller, which needs the captured text anyway, verifies the match.
    pub fn add_capturing(&mut self, paths: &PathSelector) {
        match paths {
            PathSelector::Pattern(pattern) => self.add(pattern, MatchScope::Unverified),
            PathSelector::Regex(expression) => self.add_expression(expression),
        }
    }

    /// Adds the path of a folder. The set reports it for the folder and everything below, and perhaps for other paths.
    pub fn add_folder(&mut self, path: &str) {
        // A slash or the end of the path follows.
        self.required
            .push(LiteralRequirement::All(vec![RequiredLiteral {
                text: path.as_bytes().to_vec(),
                is_at_start: true,
                is_at_end: true,
            }]));
        self.patterns.push(ScopedPattern::unverified());
    }

    fn add_expression(&mut self, expression: &PathExpression) {
        let alternatives = literals::collect_expression(expression.text());
        self.required
            .push(LiteralRequirement::Any(alternatives.unwrap_or_default()));
        self.patterns.push(ScopedPattern::unverified());
    }

    /// Builds the set. `indexes` are names of index files, which the path of a folder may stand for.
    pub fn build<'n>(self, indexes: impl IntoIterator<Item = &'n str>) -> PatternSet {
        // How many patterns require each literal, to choose the rarest.
        let mut uses: BTreeMap<&[u8], usize> = BTreeMap::new();
        for required in &self.required {
            for text in required.texts() {
                *uses.entry(text).or_default() += 1;
            }
        }
        let mut chosen: BTreeMap<RequiredLiteral, Vec<u32>> = BTreeMap::new();
        let mut unfiltered = Vec::new();
        for (number, required) in self.required.iter().enumerate() {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            // A pattern needs one literal only; without any, it is a candidate for every path.
            let literals = required.choose(&uses);
            // Patterns like `/**` have no literal except the slash.
            if literals.is_empty() {
                unfiltered.push(number);
            }
            for literal in literals {
                chosen.entry(literal).or_default().push(number);
            }
        }
        PatternSet {
            has_wide_scopes: self.patterns.iter().any(|it| it.scope().is_wide()),
            patterns: self.patterns,
            indexes: indexes
                .into_iter()
                .map(|name| name.as_bytes().to_vec())
                .collect(),
            prefilter: LiteralPrefilter::new(chosen),
            unfiltered,
        }
    }
}

impl LiteralRequirement {
    fn texts(&self) -> impl Iterator<Item = &[u8]> {
        let (all_literals, any_literals) = match self {
            LiteralRequirement::All(all_literals) => (all_literals.as_slice(), [].as_slice()),
            LiteralRequirement::Any(any_literals) => ([].as_slice(), any_literals.as_slice()),
        };
        let all_texts = all_literals.iter().map(|literal| literal.text.as_slice());
        all_texts.chain(any_literals.iter().map(Vec::as_slice))
    }

    /// The literals to search for: one of a glob, the rarest and of these the longest; all alternatives of an
    /// expression.
    fn choose(&self, uses: &BTreeMap<&[u8], usize>) -> Vec<RequiredLiteral> {
        match self {
            // The rarest literal yields the fewest candidates; of equally rare ones the longest is the most selective.
            LiteralRequirement::All(literals) => {
                let use_count = |literal: &RequiredLiteral| uses.get(literal.text.as_slice());
                let rarest = literals.iter().min_by_key(|literal| {
                    let len = literal.text.len();
                    (use_count(literal), std::cmp::Reverse(len))
                });
                rarest.cloned().into_iter().collect()
            }
            LiteralRequirement::Any(alternatives) => {
                let anywhere = |text: &Vec<u8>| RequiredLiteral {
                    text: text.clone(),
                    is_at_start: false,
                    is_at_end: false,
                };
                alternatives.iter().map(anywhere).collect()
            }
        }
    }
}

impl PatternSet {
    /// Whether it has no patterns.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// The numbers of the patterns that match a decoded path, which begins with `/`, in ascending order.
    #[must_use]
    pub fn matches(&self, path: &[u8]) -> Vec<u32> {
        if self.is_empty() {
            return Vec::new();
        }
        // The prefilter has false positives, so candidates are verified.
        let mut matching = self.candidates(path);
        // The prefilter finds literals, not matches.
        matching.retain(|number| {
            let pattern = &self.patterns[*number as usize];
            pattern.applies_to(path, &self.indexes)
        });
        matching
    }

    /// The candidates: patterns with a literal that occurs in the path, and patterns without a literal.
    fn candidates(&self, path: &[u8]) -> Vec<u32> {
        let Some(prefilter) = &self.prefilter else {
            return self.unfiltered.clone();
        };
        let mut scan = FilterScan::new(prefilter);
        let end = scan.walk(ROOT, path, 0);
        // A wide scope also matches the index files of a folder, and a folder's path without its slash.
        if self.has_wide_scopes && path.ends_with(b"/") {
            for index in &self.indexes {
                scan.walk(end, index, path.len());
            }
        } else if self.has_wide_scopes {
            scan.walk(end, b"/", path.len());
        }
        scan.finish(&self.unfiltered)
    }
}

impl LiteralPrefilter {
    fn new(chosen: BTreeMap<RequiredLiteral, Vec<u32>>) -> Option<LiteralPrefilter> {
        let mut texts: Vec<Vec<u8>> = Vec::new();
        let mut literals: Vec<FilterLiteral> = Vec::new();
        for (number, (literal, patterns)) in chosen.into_iter().enumerate() {
            // Sorted by text: equal literals with different anchors are adjacent and share one automaton state.
            if texts.last() != Some(&literal.text) {
                literals.push(FilterLiteral {
                    len: literal.text.len(),
                    anchors: Vec::new(),
                });
                texts.push(literal.text);
            }
            literals.last_mut()?.anchors.push(AnchoredPatterns {
                number,
                is_at_start: literal.is_at_start,
                is_at_end: literal.is_at_end,
                patterns,
            });
        }
        let texts: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
        (!texts.is_empty()).then(|| LiteralPrefilter {
            automaton: LiteralAutomaton::new(&texts),
            literals,
        })
    }

    fn anchors_count(&self) -> usize {
        let last = self.literals.last().and_then(|it| it.anchors.last());
        last.map_or(0, |anchor| anchor.number + 1)
    }
}

/// The literals found in one pass over a path.
struct FilterScan<'s> {
    prefilter: &'s LiteralPrefilter,
    /// A bit for each [`AnchoredPatterns`] that was found, so repeated literals add no cost. Empty until the first is
    /// found.
    seen: Vec<u64>,
    found: Vec<u32>,
}

impl<'s> FilterScan<'s> {
    fn new(prefilter: &'s LiteralPrefilter) -> FilterScan<'s> {
        FilterScan {
            prefilter,
            seen: Vec::new(),
            found: Vec::new(),
        }
    }

    /// Continues from a state with text that begins at `offset`; returns the state after it.
    #[inline]
    fn walk(&mut self, mut state: u32, text: &[u8], offset: usize) -> u32 {
        for (index, byte) in text.iter().enumerate() {
            state = self.prefilter.automaton.next(state, *byte);
            if self.prefilter.automaton.is_ending(state) {
                self.add_ending(state, offset + index + 1, can_end(text, index + 1));
            }
        }
        state
    }

    /// Adds the patterns of all literals that end in a state, reached at this position of the path.
    #[inline(never)]
    fn add_ending(&mut self, state: u32, end: usize, is_at_end: bool) {
        for number in self.prefilter.automaton.ending(state) {
            let literal = &self.prefilter.literals[number];
            for anchor in &literal.anchors {
                let is_at_anchor =
                    (!anchor.is_at_start || end == literal.len) && (!anchor.is_at_end || is_at_end);
                if is_at_anchor && self.is_new(anchor.number) {
                    // A literal may occur many times in a path; its patterns are added once.
                    self.found.extend_from_slice(&anchor.patterns);
                }
            }
        }
    }

    fn is_new(&mut self, number: usize) -> bool {
        // Allocated at the first literal that is found: most paths contain none.
        if self.seen.is_empty() {
            self.seen = vec![0; self.prefilter.anchors_count().div_ceil(64)];
        }
        let (word, bit) = (&mut self.seen[number / 64], 1 << (number % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    fn finish(mut self, unfiltered: &[u32]) -> Vec<u32> {
        self.found.extend_from_slice(unfiltered);
        // In ascending order: callers apply rules in the order of the configuration.
        self.found.sort_unstable();
        // Several literals of an expression may have matched.
        self.found.dedup();
        self.found
    }
}

/// Whether a form of the path that is matched may end at a position.
fn can_end(text: &[u8], end: usize) -> bool {
    let rest = &text[end..];
    // Wide scopes match below a path, and its precompressed siblings.
    matches!(rest, [] | [b'/', ..])
        || text[..end].ends_with(b"/")
        || scope::SIBLINGS.contains(&rest)
}
