//! Negative look-aheads of PCRE, which the expressions of Lowroad don't have.
//!
//! `^/(?!api|static)(.*)$` finds the paths that `^/(.*)$` finds, but not `^/(?:api|static)`. This holds if the text before
//! the look-ahead can match in one way only: it is anchored, and each of its elements is a single character.

use crate::request_selector::split_flag;

/// An expression without its look-aheads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitExpression {
    /// The expression, which finds more texts.
    pub expression: String,
    /// Expressions of the texts that the look-aheads exclude.
    pub exceptions: Vec<String>,
}

impl SplitExpression {
    /// Splits an expression. `None` if it has a look-around that is no exception of the whole text.
    pub fn parse(regex: &str) -> Option<SplitExpression> {
        let mut split = SplitExpression {
            expression: regex.to_string(),
            exceptions: Vec::new(),
        };
        while let Some(look_ahead) = LookAround::find(&split.expression, &["(?!"]) {
            split.exceptions.push(look_ahead.exception()?);
            split.expression = look_ahead.rest();
        }
        // A look-ahead in another one, or a look-around of another kind, has no equal.
        let is_plain = |text: &String| LookAround::find(text, &LOOK_AROUNDS).is_none();
        let mut texts = std::iter::once(&split.expression).chain(&split.exceptions);
        texts.all(is_plain).then_some(split)
    }
}

/// The beginnings of look-arounds.
const LOOK_AROUNDS: [&str; 4] = ["(?!", "(?=", "(?<!", "(?<="];

/// The expression without its look-arounds, which finds the same texts and perhaps more.
pub fn without_look_arounds(regex: &str) -> String {
    let mut rest = regex.to_string();
    while let Some(look_around) = LookAround::find(&rest, &LOOK_AROUNDS) {
        rest = look_around.rest();
    }
    rest
}

/// The first look-around of an expression.
struct LookAround<'r> {
    before: &'r str,
    inner: &'r str,
    after: &'r str,
}

impl<'r> LookAround<'r> {
    fn find(regex: &'r str, kinds: &[&str]) -> Option<LookAround<'r>> {
        let (start, kind) = kinds
            .iter()
            .filter_map(|kind| Some((regex.find(kind)?, kind)))
            .min()?;
        let rest = &regex[start + kind.len()..];
        let len = group_len(rest)?;
        Some(LookAround {
            before: &regex[..start],
            inner: &rest[..len],
            after: &rest[len + 1..],
        })
    }

    /// The expression without it.
    fn rest(&self) -> String {
        format!("{}{}", self.before, self.after)
    }

    /// The expression of the texts that it excludes.
    fn exception(&self) -> Option<String> {
        let front = FixedFront::parse(self.before)?;
        let is_whole = is_outside_alternatives(self.after, front.open_groups);
        is_whole.then(|| format!("{}(?:{})", front.text, self.inner))
    }
}

/// The length of a group up to its closing parenthesis. `rest` begins after the opening one.
fn group_len(rest: &str) -> Option<usize> {
    let mut depth = 1;
    for token in tokens(rest) {
        match token.text {
            "(" => depth += 1,
            ")" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(token.start);
        }
    }
    None
}

/// The anchored text before a look-ahead, each element of which is one character.
struct FixedFront {
    /// The text without the groups that are still open.
    text: String,
    /// The number of these groups.
    open_groups: usize,
}

impl FixedFront {
    fn parse(before: &str) -> Option<FixedFront> {
        let (flags, elements) = split_flag(before);
        let elements = elements.strip_prefix('^')?;
        let mut front = FixedFront {
            text: format!("{flags}^"),
            open_groups: 0,
        };
        let mut rest = elements;
        while let Some(token) = tokens(rest).next() {
            let mut len = token.text.len();
            match token.text {
                // The group ends after the look-ahead, so its parenthesis would stay open in the exception.
                "(" => {
                    len += group_kind_len(&rest[1..]);
                    front.open_groups += 1;
                }
                ")" => front.open_groups = front.open_groups.checked_sub(1)?,
                "*" | "+" | "?" | "{" | "|" | "^" | "$" => return None,
                text if is_class_of_texts(text) => return None,
                text => front.text.push_str(text),
            }
            rest = &rest[len..];
        }
        Some(front)
    }
}

/// The length of `?:` or `?<name>` after an opening parenthesis.
fn group_kind_len(rest: &str) -> usize {
    match rest.as_bytes() {
        [b'?', b':', ..] => 2,
        [b'?', ..] => rest.find('>').map_or(0, |end| end + 1),
        _ => 0,
    }
}

/// Whether an escape is no single character: an anchor such as `\b`, or a back-reference.
fn is_class_of_texts(token: &str) -> bool {
    let escaped = token.strip_prefix('\\');
    let is_single = |it: char| !it.is_ascii_alphanumeric() || "dDwWsS".contains(it);
    escaped.is_some_and(|text| !text.starts_with(is_single))
}

/// Whether the text after a look-ahead in `open_groups` groups has no alternative at their level, and repeats none of them.
fn is_outside_alternatives(after: &str, open_groups: usize) -> bool {
    // `inner_depth` counts the groups that also begin after the look-ahead: their alternatives don't concern it.
    let (mut inner_depth, mut open_groups) = (0_usize, open_groups);
    let is_repeated = |rest: &str| rest.starts_with(['*', '+', '?', '{']);
    if is_repeated(after) {
        return false;
    }
    for token in tokens(after) {
        match token.text {
            "(" => inner_depth += 1,
            "|" if inner_depth == 0 => return false,
            ")" if inner_depth > 0 => inner_depth -= 1,
            ")" if open_groups == 0 || is_repeated(&after[token.start + 1..]) => return false,
            ")" => open_groups -= 1,
            _ => {}
        }
    }
    true
}

/// A character of an expression, an escape or a class in brackets.
struct ExpressionToken<'r> {
    start: usize,
    text: &'r str,
}

fn tokens(regex: &str) -> impl Iterator<Item = ExpressionToken<'_>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let rest = regex.get(start..).filter(|rest| !rest.is_empty())?;
        let len = token_len(rest);
        let token = ExpressionToken {
            start,
            text: &rest[..len],
        };
        start += len;
        Some(token)
    })
}

fn token_len(rest: &str) -> usize {
    let mut characters = rest.char_indices();
    let (_, first) = characters.next().unwrap_or_default();
    let end = match first {
        '\\' => characters.next().map(|(at, it)| at + it.len_utf8()),
        '[' => class_len(rest),
        _ => None,
    };
    end.unwrap_or(first.len_utf8())
}

/// The length of a class in brackets, in which a bracket may come first and others are escaped.
fn class_len(rest: &str) -> Option<usize> {
    let inner = rest[1..].trim_start_matches('^');
    let start = rest.len() - inner.len();
    let mut is_escaped = false;
    for (index, byte) in inner.bytes().enumerate() {
        if byte == b']' && index > 0 && !is_escaped {
            return Some(start + index + 1);
        }
        is_escaped = byte == b'\\' && !is_escaped;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_aheads_become_exceptions() {
        let cases: &[(&str, &str, &[&str])] = &[
            ("^/a", "^/a", &[]),
            (r"^/(?!api|x\/y)", "^/", &[r"^/(?:api|x\/y)"][..]),
            (r"^/((?!api).*)$", "^/(.*)$", &["^/(?:api)"]),
            (
                r"(?i)^/(?!a)(?!b$)c",
                "(?i)^/c",
                &["(?i)^/(?:a)", "(?i)^/(?:b$)"],
            ),
            (r"^/(x)[)(]\.(?!a)", r"^/(x)[)(]\.", &[r"^/x[)(]\.(?:a)"]),
            (
                r"^/(?<n>(?:(?!a\)(b|c))d))f",
                r"^/(?<n>(?:d))f",
                &[r"^/(?:a\)(b|c))"],
            ),
        ];
        for (regex, expression, exceptions) in cases {
            let split = SplitExpression::parse(regex).expect(regex);
            assert_eq!(split.expression, *expression, "{regex}");
            assert_eq!(split.exceptions, *exceptions, "{regex}");
        }
    }

    #[test]
    fn exceptions_of_a_part_are_refused() {
        for regex in [
            "/(?!a)",
            "^/.*(?!a)",
            "^/a?(?!b)",
            "^((?!a).)*$",
            "^/(?!a)|^/b",
            "^/(?:(?!a)b|c)",
            "^/(?=a)b",
            "^/b(?<!a)c",
            r"^/\b(?!a)",
            "^/(?!a(?!b))",
            "^/(?!a)*b",
        ] {
            assert_eq!(SplitExpression::parse(regex), None, "{regex}");
        }
    }

    #[test]
    fn look_arounds_can_be_left_out() {
        assert_eq!(without_look_arounds("^/.*(?!a(b))c(?<=d)e"), "^/.*ce");
    }

    #[test]
    fn split_expressions_select_the_same_paths() {
        let split = SplitExpression::parse(r"^/(?!index|a[0-9])(.+)$").expect("split");
        let compile = |text: &str| lowroad_config::PathExpression::parse(text).expect(text);
        let all = compile(&split.expression);
        let without: Vec<_> = split.exceptions.iter().map(|it| compile(it)).collect();
        for (path, expected) in [
            ("/x", true),
            ("/index", false),
            ("/index.php", false),
            ("/a", true),
            ("/a1b", false),
            ("/x/index", true),
            ("/", false),
        ] {
            let bytes = path.as_bytes();
            let is_selected = all.is_match(bytes) && !without.iter().any(|it| it.is_match(bytes));
            assert_eq!(is_selected, expected, "{path}");
        }
    }
}
