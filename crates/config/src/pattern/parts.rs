//! The parts of a pattern: literals, alternatives and wildcards.

use super::PathPatternError;

/// The maximum number of alternatives in one place of a pattern, after adjacent ones are multiplied.
const ALTERNATIVES_MAX: usize = 64;

/// A literal or a wildcard of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PatternPart {
    /// Text that matches itself.
    Literal(Vec<u8>),
    /// `{a,b}`, with the literals before and after it: one of these texts.
    OneOf(Vec<Vec<u8>>),
    /// `*`: any bytes within a segment.
    Within,
    /// `**`: any bytes, across segments.
    Across,
}

impl PatternPart {
    pub(super) fn is_wildcard(&self) -> bool {
        matches!(self, PatternPart::Within | PatternPart::Across)
    }

    /// The texts of a part that is no wildcard.
    pub(crate) fn texts(&self) -> &[Vec<u8>] {
        match self {
            PatternPart::Literal(text) => std::slice::from_ref(text),
            PatternPart::OneOf(texts) => texts,
            PatternPart::Within | PatternPart::Across => &[],
        }
    }

    /// Whether this part alone matches all of `bytes`.
    pub(super) fn spans(&self, bytes: &[u8]) -> bool {
        match self {
            PatternPart::Literal(_) | PatternPart::OneOf(_) => {
                self.texts().iter().any(|text| text == bytes)
            }
            // `*` does not match a slash.
            PatternPart::Within => !bytes.contains(&b'/'),
            PatternPart::Across => true,
        }
    }

    /// A literal or alternatives.
    fn from_texts(mut texts: Vec<Vec<u8>>) -> PatternPart {
        match texts.len() {
            1 => PatternPart::Literal(texts.pop().unwrap_or_default()),
            _ => PatternPart::OneOf(texts),
        }
    }
}

/// Splits a pattern into parts. Two or more stars are one `**`. Between two wildcards there is one part: adjacent
/// literals and alternatives are multiplied, so `a{b,c}` becomes `ab` or `ac`.
pub(super) fn split(text: &str) -> Result<Vec<PatternPart>, PathPatternError> {
    let mut parts = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let stars = rest.bytes().take_while(|&byte| byte == b'*').count();
        if stars > 0 {
            parts.push(match stars {
                1 => PatternPart::Within,
                // Three or more stars mean the same as two.
                _ => PatternPart::Across,
            });
            rest = &rest[stars..];
            continue;
        }
        let (texts, len) = texts_at_start(rest)?;
        parts.push(PatternPart::from_texts(texts));
        rest = &rest[len..];
    }
    Ok(parts)
}

/// The texts that the pattern matches up to its first wildcard, and the length of that part of the pattern.
fn texts_at_start(text: &str) -> Result<(Vec<Vec<u8>>, usize), PathPatternError> {
    let mut texts = vec![Vec::new()];
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let choices: Vec<&str> = match rest.find(['*', '{', '}']) {
            Some(0) if rest.starts_with('*') => break,
            Some(0) => {
                let inner = rest.strip_prefix('{').ok_or(PathPatternError::Braces)?;
                let end = inner.find('}').ok_or(PathPatternError::Braces)?;
                let inner = &inner[..end];
                // A wildcard or a nested brace in alternatives would need backtracking.
                if inner.contains(['{', '*']) || !inner.contains(',') {
                    return Err(PathPatternError::Braces);
                }
                at += inner.len() + 2;
                inner.split(',').collect()
            }
            found => {
                let len = found.unwrap_or(rest.len());
                at += len;
                vec![&rest[..len]]
            }
        };
        // Several braces multiply their alternatives, so the product is limited before it is built.
        if texts.len() * choices.len() > ALTERNATIVES_MAX {
            return Err(PathPatternError::TooLong);
        }
        let with_choice = |text: &Vec<u8>| {
            let choices = choices.iter();
            choices
                .map(|choice| [text, choice.as_bytes()].concat())
                .collect::<Vec<_>>()
        };
        texts = texts.iter().flat_map(with_choice).collect();
    }
    Ok((texts, at))
}
