//! Match scope: the forms of a request path that are compared with a pattern.
//!
//! A rule that denies a path must also deny other request paths that lead to the same content. PATH_INFO may follow a
//! script's name; a folder's path stands for its index file; and `/a.html.gz` is a precompressed form of `/a.html`.

use crate::PathPattern;
use crate::pattern::{PatternPart, match_ends};

/// Suffixes of precompressed files: the sibling of `a.html` is `a.html.gz`.
pub(super) const PRECOMPRESSED_SUFFIXES: [&[u8]; 3] = [b".br", b".zst", b".gz"];

/// The forms of a request path that are compared with a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatchScope {
    /// The request path only.
    Path,
    /// The request path only. The set does not verify the match; the caller verifies it when it extracts captures.
    Unverified,
    /// The request path; if the pattern has no leading slash (`*.php`), also each part of the path that ends before a
    /// slash: `/a/index.php/b` is the script `/a/index.php` with the PATH_INFO `/b`.
    Script,
    /// The request path; each folder above it, with and without a final slash; the path itself with and without a final
    /// slash; its index files, if the path ends in a slash; and the path without a suffix for precompressed files.
    Access,
}

impl MatchScope {
    /// Whether the scope includes other forms than the request path.
    pub(super) fn is_wide(self) -> bool {
        matches!(self, MatchScope::Script | MatchScope::Access)
    }
}

/// A pattern and its scope.
pub(super) struct ScopedPattern {
    /// `None` if the caller verifies the match.
    pattern: Option<PathPattern>,
    /// The parts of an equivalent pattern for whole paths; empty for regular expressions and folders.
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

    /// A regular expression or a folder: the caller verifies the match.
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

    /// Whether the pattern matches a form of a decoded path that the scope includes.
    pub(super) fn applies_to(&self, path: &[u8], indexes: &[Vec<u8>]) -> bool {
        let Some(pattern) = &self.pattern else {
            // The set reports the candidate unverified: the caller verifies the match.
            return true;
        };
        let lower;
        let path = match pattern.ignores_case() {
            true => {
                lower = path.to_ascii_lowercase();
                &lower
            }
            false => path,
        };
        pattern.matches(path)
            || match self.scope {
                MatchScope::Path | MatchScope::Unverified => false,
                // A pattern with a leading slash specifies where PATH_INFO may follow.
                MatchScope::Script => !pattern.is_absolute() && self.matches_script(path),
                MatchScope::Access => {
                    self.matches_folder_or_original(path)
                        || path.ends_with(b"/")
                            // The folder's path also stands for each index file.
                            && indexes
                                .iter()
                                .any(|name| pattern.matches(&[path, name].concat()))
                }
            }
    }

    /// Whether the pattern matches the part of the path before one of its slashes.
    fn matches_script(&self, path: &[u8]) -> bool {
        let ends = match_ends(&self.parts, path);
        slashes(path).any(|offset| ends[offset])
    }

    /// Whether the pattern matches the path or a folder above it, each with and without a final slash, or the path
    /// without a suffix for precompressed files.
    fn matches_folder_or_original(&self, path: &[u8]) -> bool {
        let folder = match path.ends_with(b"/") {
            true => path.to_vec(),
            false => [path, b"/"].concat(),
        };
        // One pass over the longest form gives the results for all of its prefixes.
        let ends = match_ends(&self.parts, &folder);
        let mut originals = PRECOMPRESSED_SUFFIXES
            .iter()
            .filter_map(|it| path.strip_suffix(*it));
        // `/a` and `/a/` are the same folder.
        slashes(&folder).any(|offset| ends[offset] || ends[offset + 1])
            || originals.any(|original| ends[original.len()])
    }
}

/// The positions of slashes, except the first byte of the path.
fn slashes(path: &[u8]) -> impl Iterator<Item = usize> {
    let bytes = path.iter().enumerate().skip(1);
    bytes.filter_map(|(offset, byte)| (*byte == b'/').then_some(offset))
}
