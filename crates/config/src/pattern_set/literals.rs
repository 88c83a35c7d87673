//! Required literals: texts that occur in every path that matches a pattern or a regular expression.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Hir, HirKind};

use crate::pattern::PatternPart;

/// The maximum number of alternatives. An expression with more gets no literals: it is a candidate for each path.
const ALTERNATIVES_MAX: usize = 16;

/// A literal of a glob, and the position at which it must occur.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RequiredLiteral {
    pub text: Vec<u8>,
    /// The literal must be at the start of the path.
    pub is_at_start: bool,
    /// The literal must be at the end of the path, or of another form of it (see [`super::MatchScope`]).
    pub is_at_end: bool,
}

/// The literals of a glob, except a lone `/`, which occurs in each path.
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
            PatternPart::OneOf(_) | PatternPart::Within | PatternPart::Across => None,
        });
    literals
        // The pattern `/` keeps its only literal.
        .filter(|literal| is_selective(&literal.text) || parts.len() == 1)
        .collect()
}

/// The alternatives of a glob without another literal: every matching path contains at least one of them. `None` if there
/// are none.
pub(super) fn collect_alternatives(parts: &[PatternPart]) -> Option<Vec<Vec<u8>>> {
    let alternatives = parts.iter().find_map(|part| match part {
        PatternPart::OneOf(texts) => Some(texts),
        PatternPart::Literal(_) | PatternPart::Within | PatternPart::Across => None,
    })?;
    let is_selective = alternatives.iter().all(|text| is_selective(text));
    is_selective.then(|| alternatives.clone())
}

/// Literals of an expression: every matching path contains at least one of them. `None` if none are known.
pub(super) fn collect_expression(text: &str) -> Option<Vec<Vec<u8>>> {
    // The parser must have the same options as the compiled expression in `paths.rs`.
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
        // A part that may be absent requires no literal.
        HirKind::Repetition(repetition) if repetition.min > 0 => collect_hir(&repetition.sub),
        HirKind::Concat(parts) => {
            let part_literals = parts.iter().filter_map(collect_hir);
            // The literals of one part are enough. The part with the longest shortest literal is the most selective.
            part_literals.max_by_key(|literals_of_part| literals_of_part.iter().map(Vec::len).min())
        }
        HirKind::Alternation(alternatives) if alternatives.len() <= ALTERNATIVES_MAX => {
            // Each alternative must have a literal: a path that matches an alternative without a literal would be
            // missed.
            let alternative_literals: Option<Vec<_>> =
                alternatives.iter().map(collect_hir).collect();
            let literals: Vec<Vec<u8>> = alternative_literals?.into_iter().flatten().collect();
            (literals.len() <= ALTERNATIVES_MAX).then_some(literals)
        }
        _ => None,
    }
}

fn is_selective(text: &[u8]) -> bool {
    // Every path contains these two texts.
    !matches!(text, b"" | b"/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regex_literals_are_longest_of_sequence_and_all_of_alternation() {
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
