//! Match scope: the forms of a path that a pattern is matched with.
//!
//! A rule that refuses a path also applies to every other path that leads to the same content: a script gets the text
//! after its name in the path (PATH_INFO), the path of a folder stands for its index file, and a client may request a
//! file by the name of its compressed sibling. None of them bypasses a rule.

use crate::PathPattern;
use crate::pattern::{PatternPart, match_ends};

/// Suffixes of compressed siblings.
pub(super) const SIBLINGS: [&[u8]; 3] = [b".br", b".zst", b".gz"];

/// The forms of a path that a pattern is matched with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatchScope {
    /// The path.
    Path,
    /// The path; the caller verifies the match when it captures.
    Unverified,
    /// The path; for a pattern of file names also the text before each of its slashes: `/a/index.php/b` is the script
    /// `/a/index.php` with the path `/b`.
    Script,
    /// The path, each folder above it, each with and without a slash at the end, the index files that it may stand for,
    /// and the original of a compressed sibling.
    Access,
}

impl MatchScope {
    pub(super) fn is_wide(self) -> bool {
        matches!(self, MatchScope::Script | MatchScope::Access)
    }
}

/// A pattern with its scope.
pub(super) struct ScopedPattern {
    /// `None` where the caller verifies.
    pattern: Option<PathPattern>,
    /// The parts of an equivalent pattern for whole paths.
    parts: Vec<PatternPart>,
    scope: MatchScope,
}

impl ScopedPattern {
    pub(super) fn new(pattern: &PathPattern, scope: MatchScope) -> ScopedPattern {
        ScopedPattern {
            pattern: (scope != MatchScope::Unverified).then(|| pattern.clone()),
            parts: pattern.absolute_parts(),
            scope,
        }
    }

    pub(super) fn unverified() -> ScopedPattern {
        ScopedPattern {
            pattern: None,
            parts: Vec::new(),
            scope: MatchScope::Unverified,
        }
    }

    pub(super) fn parts(&self) -> &[PatternPart] {
        &self.parts
    }

    pub(super) fn scope(&self) -> MatchScope {
        self.scope
    }

    /// Whether the pattern applies to a decoded path.
    pub(super) fn applies_to(&self, path: &[u8], indexes: &[Vec<u8>]) -> bool {
        let Some(pattern) = &self.pattern else {
            // The caller verifies the match.
            return true;
        };
        pattern.matches(path)
            || match self.scope {
                MatchScope::Path | MatchScope::Unverified => false,
                // An absolute pattern already states where PATH_INFO may follow.
                MatchScope::Script => !pattern.is_absolute() && self.has_script(path),
                MatchScope::Access => {
                    self.has_above(path)
                        || path.ends_with(b"/")
                            // The folder's path also stands for its index files.
                            && indexes
                                .iter()
                                .any(|name| pattern.matches(&[path, name].concat()))
                }
            }
    }

    /// Whether the pattern matches the text before one of the slashes.
    fn has_script(&self, path: &[u8]) -> bool {
        let ends = match_ends(&self.parts, path);
        slashes(path).any(|offset| ends[offset])
    }

    /// Whether the pattern matches the path as a folder or a folder above it, each with and without its slash, or the
    /// original of a compressed sibling.
    fn has_above(&self, path: &[u8]) -> bool {
        let folder = match path.ends_with(b"/") {
            true => path.to_vec(),
            false => [path, b"/"].concat(),
        };
        // One pass over the longest form answers for all prefixes.
        let ends = match_ends(&self.parts, &folder);
        let mut originals = SIBLINGS.iter().filter_map(|it| path.strip_suffix(*it));
        // With and without the slash: `/a` and `/a/` are the same folder.
        slashes(&folder).any(|offset| ends[offset] || ends[offset + 1])
            || originals.any(|original| ends[original.len()])
    }
}

/// The positions of slashes, except the first byte.
fn slashes(path: &[u8]) -> impl Iterator<Item = usize> {
    let bytes = path.iter().enumerate().skip(1);
    bytes.filter_map(|(offset, byte)| (*byte == b'/').then_some(offset))
}
