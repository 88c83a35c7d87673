//! Matches a path against many patterns in one pass.
//!
//! Literal prefilter, as in Hyperscan and RE2's FilteredRE2. Each pattern is represented by one of its literals, the
//! one that the fewest patterns share. An Aho-Corasick automaton finds all of these literals in one pass over the path.
//! Only candidates (patterns with a literal that was found) are then verified, each once and in a time linear in the
//! path, for all path forms of its scope. A pattern costs nothing if its literal is absent. In the worst case, a path
//! that contains the literals of all patterns, each pattern costs one pass over the path per part.
//!
//! Patterns without a literal (`/**`, `*`), and regular expressions without a known literal, are candidates for each
//! path.

mod automaton;
mod literals;
mod scope;

use std::collections::BTreeMap;

use crate::pattern::PatternPart;
use crate::{PathExpression, PathPattern, PathSelector};
use automaton::{LiteralAutomaton, ROOT};
use literals::RequiredLiteral;
pub use scope::MatchScope;
use scope::ScopedPattern;

#[cfg(test)]
mod tests;

/// Patterns that are matched together. Their numbers are the order in which they were added.
#[derive(Default)]
pub struct PatternSet {
    patterns: Vec<ScopedPattern>,
    /// Names of index files, for which the path of a folder may stand.
    indexes: Vec<Vec<u8>>,
    /// Whether the scope of any pattern includes other forms of the path.
    has_wide_scopes: bool,
    prefilter: Option<LiteralPrefilter>,
    /// Patterns without a literal: candidates for each path.
    unfiltered: Vec<u32>,
}

/// Collects the patterns of a [`PatternSet`].
#[derive(Default)]
pub struct PatternSetBuilder {
    patterns: Vec<ScopedPattern>,
    /// For each pattern, its required literals: a path that matches a glob contains all of them; a path that matches an
    /// expression contains at least one.
    required: Vec<LiteralRequirement>,
}

enum LiteralRequirement {
    All(Vec<RequiredLiteral>),
    Any(Vec<Vec<u8>>),
}

/// Finds the candidates for a path: the patterns with a literal that occurs in it.
struct LiteralPrefilter {
    automaton: LiteralAutomaton,
    /// The literals, indexed by their number in the automaton.
    literals: Vec<FilterLiteral>,
    /// Whether all literals must be at the start of the path.
    is_at_start: bool,
}

struct FilterLiteral {
    len: usize,
    anchors: Vec<AnchoredPatterns>,
}

/// Patterns that require a literal at the same position.
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
        let scoped = ScopedPattern::new(pattern, scope);
        self.required.push(match pattern.ignores_case() {
            // The automaton distinguishes case.
            true => LiteralRequirement::All(Vec::new()),
            false => LiteralRequirement::from_parts(scoped.parts()),
        });
        self.patterns.push(scoped);
    }

    /// Adds a glob or an expression with captures. The set reports it for every matching path, and possibly for others:
    /// the caller verifies the match when it extracts the captures.
    pub fn add_capturing(&mut self, paths: &PathSelector) {
        match paths {
            PathSelector::Pattern(pattern) => self.add(pattern, MatchScope::Unverified),
            PathSelector::Regex(expression) => self.add_expression(expression),
        }
    }

    /// Adds the path of a folder. The set reports it for the folder and all paths below, and possibly for others.
    pub fn add_folder(&mut self, path: &str) {
        // `is_at_end` also holds before a slash, see `can_end`.
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

    /// Builds the set. `indexes` are names of index files, for which the path of a folder may stand.
    pub fn build<'n>(self, indexes: impl IntoIterator<Item = &'n str>) -> PatternSet {
        // Counts the patterns that require each literal; the rarest literal of a pattern is chosen.
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
            // One literal of a glob is enough. A pattern without literals is a candidate for every path.
            let literals = required.choose(&uses);
            // Patterns like `/**` have no literal besides the slash.
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
    fn from_parts(parts: &[PatternPart]) -> LiteralRequirement {
        let literals = literals::collect_parts(parts);
        match literals::collect_alternatives(parts) {
            Some(alternatives) if literals.is_empty() => LiteralRequirement::Any(alternatives),
            _ => LiteralRequirement::All(literals),
        }
    }

    fn texts(&self) -> impl Iterator<Item = &[u8]> {
        let (all_literals, any_literals) = match self {
            LiteralRequirement::All(all_literals) => (all_literals.as_slice(), [].as_slice()),
            LiteralRequirement::Any(any_literals) => ([].as_slice(), any_literals.as_slice()),
        };
        let all_texts = all_literals.iter().map(|literal| literal.text.as_slice());
        all_texts.chain(any_literals.iter().map(Vec::as_slice))
    }

    /// The literals to search for. For a glob: the rarest literal, and if several are equally rare, the longest of
    /// them. For an expression: the literals of all alternatives.
    fn choose(&self, uses: &BTreeMap<&[u8], usize>) -> Vec<RequiredLiteral> {
        match self {
            // The rarest literal gives the fewest candidates; of equally rare ones, the longest is the most selective.
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
    /// Whether the set has no patterns.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// The numbers of the patterns that match a decoded path, in ascending order. The path begins with `/`.
    #[must_use]
    pub fn matches(&self, path: &[u8]) -> Vec<u32> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut matching = self.candidates(path);
        if matching.is_empty() {
            return matching;
        }
        // The prefilter finds literals, not matches, so each candidate is verified.
        matching.retain(|number| {
            let pattern = &self.patterns[*number as usize];
            pattern.applies_to(path, &self.indexes)
        });
        matching
    }

    /// The candidates for a path: patterns with a literal that occurs in the path, and patterns without a literal.
    fn candidates(&self, path: &[u8]) -> Vec<u32> {
        let Some(prefilter) = &self.prefilter else {
            return self.unfiltered.clone();
        };
        let mut scan = FilterScan::new(prefilter);
        let end = scan.walk(ROOT, path, 0);
        // Wide scopes also match a folder's index files and a folder's path with a final slash, so the scan continues
        // with these endings.
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
            // The map is sorted by text: equal literals with different positions are adjacent and share one automaton
            // state.
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
        let mut anchors = literals.iter().flat_map(|literal| &literal.anchors);
        let is_at_start = anchors.all(|anchor| anchor.is_at_start);
        (!texts.is_empty()).then(|| LiteralPrefilter {
            automaton: LiteralAutomaton::new(&texts),
            literals,
            is_at_start,
        })
    }

    fn anchors_count(&self) -> usize {
        let last = self.literals.last().and_then(|it| it.anchors.last());
        last.map_or(0, |anchor| anchor.number + 1)
    }
}

/// The state of one prefilter pass over a path.
struct FilterScan<'s> {
    prefilter: &'s LiteralPrefilter,
    /// One bit for each [`AnchoredPatterns`], set once found, so that repeated literals add no cost. Empty until the
    /// first literal is found.
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

    /// Continues the scan from `state` with `text`, which begins at `offset` of the path; returns the new state.
    #[inline]
    fn walk(&mut self, mut state: u32, text: &[u8], offset: usize) -> u32 {
        let automaton = &self.prefilter.automaton;
        let mut index = 0;
        while let Some(rest) = text.get(index..).filter(|rest| !rest.is_empty()) {
            if state == ROOT {
                // Behind the start, no literal can begin that must be at the start.
                if self.prefilter.is_at_start && offset + index > 0 {
                    break;
                }
                // Most bytes begin no literal, and leave the automaton at its root.
                match rest.iter().position(|byte| !automaton.stays_at_root(*byte)) {
                    Some(skipped) => index += skipped,
                    None => break,
                }
            }
            state = automaton.next(state, text[index]);
            index += 1;
            if automaton.is_ending(state) {
                self.add_ending(state, offset + index, can_end(text, index));
            }
        }
        state
    }

    /// Adds the patterns of all literals that end in `state`, at position `end` of the path.
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
        // The bits are allocated when the first literal is found: most paths contain none.
        if self.seen.is_empty() {
            self.seen = vec![0; self.prefilter.anchors_count().div_ceil(64)];
        }
        let (word, bit) = (&mut self.seen[number / 64], 1 << (number % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    fn finish(mut self, unfiltered: &[u32]) -> Vec<u32> {
        if self.found.is_empty() {
            return unfiltered.to_vec();
        }
        self.found.extend_from_slice(unfiltered);
        // The numbers are returned in ascending order: callers apply rules in the order of the configuration.
        self.found.sort_unstable();
        // Several literals of one expression may have been found.
        self.found.dedup();
        self.found
    }
}

/// Whether a path form that some scope includes may end at a position.
fn can_end(text: &[u8], end: usize) -> bool {
    let rest = &text[end..];
    // Wide scopes also match folders above the path and the original of a precompressed sibling.
    matches!(rest, [] | [b'/', ..])
        || text[..end].ends_with(b"/")
        || scope::PRECOMPRESSED_SUFFIXES.contains(&rest)
}
