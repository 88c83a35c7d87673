//! Which forms of a path count for a pattern.
//!
//! A pattern of what is refused is for what it matches, and for whatever leads to that. A script gets what follows its name in
//! the path, a folder's path stands for its index file, and a file may be asked for by the name of its compressed sibling: none
//! of them is a way around a rule.

use crate::Pattern;
use crate::pattern::{Part, match_ends};

/// Endings of compressed siblings.
pub(super) const SIBLINGS: [&[u8]; 3] = [b".br", b".zst", b".gz"];

/// Which forms of a path a pattern is matched with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchScope {
    /// The path.
    Path,
    /// The path, by a caller who captures.
    Unverified,
    /// The path; for a pattern of file names also what ends before one of its slashes: `/a/index.php/b` is the script
    /// `/a/index.php` with the path `/b`.
    Script,
    /// The path, what it lies below, each with a slash at the end and without, the index files that it may stand for, and
    /// the file whose compressed sibling it names.
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
    pattern: Option<Pattern>,
    /// The parts of a pattern for whole paths that matches the same.
    parts: Vec<Part>,
    scope: MatchScope,
}

impl ScopedPattern {
    pub(super) fn new(pattern: &Pattern, scope: MatchScope) -> ScopedPattern {
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

    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    pub(super) fn scope(&self) -> MatchScope {
        self.scope
    }

    /// Whether it is for a decoded path.
    pub(super) fn is_for(&self, path: &[u8], indexes: &[Vec<u8>]) -> bool {
        let Some(pattern) = &self.pattern else {
            return true;
        };
        pattern.matches(path)
            || match self.scope {
                MatchScope::Path | MatchScope::Unverified => false,
                MatchScope::Script => !pattern.is_absolute() && self.has_script(path),
                MatchScope::Access => {
                    self.has_above(path)
                        || path.ends_with(b"/")
                            && indexes
                                .iter()
                                .any(|name| pattern.matches(&[path, name].concat()))
                }
            }
    }

    /// Whether it matches what ends before a slash.
    fn has_script(&self, path: &[u8]) -> bool {
        let ends = match_ends(&self.parts, path);
        slashes(path).any(|at| ends[at])
    }

    /// Whether it matches the path as a folder, one of those that it lies below, each with its slash and without, or the file
    /// whose compressed sibling it names.
    fn has_above(&self, path: &[u8]) -> bool {
        let folder = match path.ends_with(b"/") {
            true => path.to_vec(),
            false => [path, b"/"].concat(),
        };
        let ends = match_ends(&self.parts, &folder);
        let mut originals = SIBLINGS.iter().filter_map(|it| path.strip_suffix(*it));
        slashes(&folder).any(|at| ends[at] || ends[at + 1])
            || originals.any(|original| ends[original.len()])
    }
}

/// Where slashes are but the first byte.
fn slashes(path: &[u8]) -> impl Iterator<Item = usize> {
    let bytes = path.iter().enumerate().skip(1);
    bytes.filter_map(|(at, byte)| (*byte == b'/').then_some(at))
}
