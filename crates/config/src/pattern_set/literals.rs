//! Required literals: texts that a path must contain for a pattern or a regular expression to match it.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Hir, HirKind};

use crate::pattern::PatternPart;

/// An expression with more alternatives is matched with each path.
const ALTERNATIVES_MAX: usize = 16;

/// A literal of a glob, and its required position.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RequiredLiteral {
    pub text: Vec<u8>,
    /// At the start of the path.
    pub is_at_start: bool,
    /// At the end of the path, or of another form that is matched in its place.
    pub is_at_end: bool,
}

/// All literals of a glob except lone slashes, which each path has.
pub(super) fn collect_parts(parts: &[PatternPart]) -> Vec<RequiredLiteral> {
    let literals = parts
        .iter()
        .enumerate()
        .filter_map(|(index, part)| match part {
            PatternPart::Literal(text) => Some(RequiredLiteral {
                text: text.clone(),
                is_at_start: index == 0,
                is_at_end: index + 1 == parts.len(),
            }),
            PatternPart::Within | PatternPart::Across => None,
        });
    literals
        // The pattern `/` has no other literal.
        .filter(|literal| is_selective(&literal.text) || parts.len() == 1)
        .collect()
}

/// Literals of which every matching path contains at least one; `None` if none are known.
pub(super) fn collect_expression(text: &str) -> Option<Vec<Vec<u8>>> {
    // The same options as for the compiled expression.
    let mut parser = ParserBuilder::new()
        .unicode(false)
        .utf8(false)
        .dot_matches_new_line(true)
        .build();
    collect_hir(&parser.parse(text).ok()?)
}

fn collect_hir(hir: &Hir) -> Option<Vec<Vec<u8>>> {
    match hir.kind() {
        HirKind::Literal(literal) => is_selective(&literal.0).then(|| vec![literal.0.to_vec()]),
        HirKind::Capture(capture) => collect_hir(&capture.sub),
        // Zero repetitions require no literal.
        HirKind::Repetition(repetition) if repetition.min > 0 => collect_hir(&repetition.sub),
        HirKind::Concat(parts) => {
            let part_literals = parts.iter().filter_map(collect_hir);
            // One part is enough: the one with the longest shortest literal is the most selective.
            part_literals.max_by_key(|literals_of_part| literals_of_part.iter().map(Vec::len).min())
        }
        HirKind::Alternation(alternatives) if alternatives.len() <= ALTERNATIVES_MAX => {
            // Each alternative must have a literal, or a match without any of them would be missed.
            let alternative_literals: Option<Vec<_>> =
                alternatives.iter().map(collect_hir).collect();
            let literals: Vec<Vec<u8>> = alternative_literals?.into_iter().flatten().collect();
            (literals.len() <= ALTERNATIVES_MAX).then_some(literals)
        }
        _ => None,
    }
}

fn is_selective(text: &[u8]) -> bool {
    // Every path contains these.
    !matches!(text, b"" | b"/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_has_the_longest_literal_of_a_sequence_and_all_of_alternatives() {
        for (text, expected) in [
            ("^/blog/([0-9]+)$", Some(vec!["/blog/"])),
            ("^/([a-z]+)/archive/x([0-9]+)$", Some(vec!["/archive/x"])),
            ("^/(en|de)/", Some(vec!["en", "de"])),
            ("^/(en|.*)/", None),
            ("\\.php$", Some(vec![".php"])),
            ("(ab)+", Some(vec!["ab"])),
            ("(ab)*", None),
            ("(?i)ab", None),
            ("^/", None),
            ("", None),
        ] {
            let found = collect_expression(text);
            let expected =
                expected.map(|all| all.iter().map(|it| it.as_bytes().to_vec()).collect());
            assert_eq!(found, expected, "{text}");
        }
    }
}
