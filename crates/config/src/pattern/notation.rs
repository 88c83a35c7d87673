//! Detects patterns in the notation of other servers and shells, and segments that normalized paths never contain. Such
//! patterns would match nothing and so protect no path.

use super::IGNORE_CASE;

/// Notation that patterns do not support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnsupportedNotation {
    /// `[ab]`
    Class,
    /// Regular expressions: `(a|b)`, `(.*)`, `.+`, `^`, `$`, `\`, `~`
    Expression,
    /// `*.sql,*.bak`
    List,
    /// `%63`
    Escape,
    /// `?`
    Query,
    /// `//`
    EmptySegment,
    /// A segment `.` or `..`
    DotSegment,
    /// A NUL byte
    Nul,
}

impl UnsupportedNotation {
    /// Returns unsupported notation in a pattern, if there is any. Patterns are compared with decoded paths, so `(`,
    /// `+` and a `$` in the middle are ordinary characters.
    pub(crate) fn find(text: &str) -> Option<UnsupportedNotation> {
        let text = text.strip_prefix(IGNORE_CASE).unwrap_or(text);
        let has_any_of = |chars: &[char]| text.contains(chars);
        let is_escape = |offset: usize| {
            let digits = text.as_bytes().get(offset + 1..offset + 3);
            digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
        };
        let is_expression = has_any_of(&['|', '\\'])
            || text.starts_with(['^', '~'])
            || text.ends_with('$')
            || text.contains(".+")
            || text.contains(".*)");
        // The first match determines the advice, so specific notations precede general ones.
        match () {
            () if is_expression => Some(UnsupportedNotation::Expression),
            () if has_any_of(&['[', ']']) => Some(UnsupportedNotation::Class),
            () if has_any_of(&['?']) => Some(UnsupportedNotation::Query),
            () if has_any_of(&['\0']) => Some(UnsupportedNotation::Nul),
            () if is_list(text) => Some(UnsupportedNotation::List),
            () if text.contains("//") => Some(UnsupportedNotation::EmptySegment),
            () if text.split('/').any(|segment| matches!(segment, "." | "..")) => {
                Some(UnsupportedNotation::DotSegment)
            }
            () => {
                // A `%` without two hexadecimal digits is an ordinary character.
                let mut escapes = text.match_indices('%');
                escapes
                    .any(|(offset, _)| is_escape(offset))
                    .then_some(UnsupportedNotation::Escape)
            }
        }
    }

    /// The suggestion for the operator.
    pub(crate) fn advice(self) -> &'static str {
        match self {
            UnsupportedNotation::Class => {
                "a pattern without [ ]: one for each choice, or * in place of a letter"
            }
            UnsupportedNotation::Expression => {
                "a pattern of * and **, not a regular expression: /config/**, *.sql"
            }
            UnsupportedNotation::Escape => {
                "the decoded path, without %XX; * in place of a segment with an encoded slash: /queues/*/x"
            }
            UnsupportedNotation::Query => {
                "a pattern without ?: the query is not matched; * in place of a letter"
            }
            UnsupportedNotation::EmptySegment => {
                "single slashes, since paths are compared with slashes merged: /a/b; * in place of a segment with an encoded slash: /queues/*/x"
            }
            UnsupportedNotation::DotSegment => {
                "a pattern without segments . and .., since paths with them are refused: the path that they lead to"
            }
            UnsupportedNotation::List => "one pattern, not a list in one text",
            UnsupportedNotation::Nul => "a pattern without NUL, since paths with it are refused",
        }
    }
}

/// Whether a pattern seems to follow a list separator.
fn is_list(text: &str) -> bool {
    text.match_indices([',', ';', ' ']).any(|(offset, _)| {
        // Commas separate the texts of `{/a,/b}`.
        let is_in_braces = text[..offset].rfind('{') > text[..offset].rfind('}');
        let rest = text.get(offset + 1..).unwrap_or_default().trim_start();
        // A space or comma within a file name is allowed.
        !is_in_braces && (rest.starts_with('/') || rest.starts_with("*."))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_notations_are_detected() {
        for (text, notation) in [
            ("/(config|data)/**", UnsupportedNotation::Expression),
            ("~ ^/config/", UnsupportedNotation::Expression),
            ("^/config/**", UnsupportedNotation::Expression),
            ("\\.(sql|bak)$", UnsupportedNotation::Expression),
            ("/config/.*$", UnsupportedNotation::Expression),
            ("*\\.sql", UnsupportedNotation::Expression),
            ("/api/(.*)", UnsupportedNotation::Expression),
            ("/(.*).sql", UnsupportedNotation::Expression),
            ("/config/.+", UnsupportedNotation::Expression),
            ("*.sql,*.bak", UnsupportedNotation::List),
            ("*.sql; *.bak", UnsupportedNotation::List),
            ("*.sql *.bak", UnsupportedNotation::List),
            ("/config/**, /data/**", UnsupportedNotation::List),
            ("*.[sS][qQ][lL]", UnsupportedNotation::Class),
            ("/%63onfig/**", UnsupportedNotation::Escape),
            ("/a%2Fb", UnsupportedNotation::Escape),
            ("/dump?.sql", UnsupportedNotation::Query),
            ("//", UnsupportedNotation::EmptySegment),
            ("/a//b", UnsupportedNotation::EmptySegment),
            ("/api/queues///secret", UnsupportedNotation::EmptySegment),
            ("/**//x", UnsupportedNotation::EmptySegment),
            (".", UnsupportedNotation::DotSegment),
            ("/..", UnsupportedNotation::DotSegment),
            ("/a/./b", UnsupportedNotation::DotSegment),
            ("/a/../**", UnsupportedNotation::DotSegment),
            ("/a\0", UnsupportedNotation::Nul),
        ] {
            assert_eq!(UnsupportedNotation::find(text), Some(notation), "{text}");
        }
        for text in [
            "/wiki/Rust_(language)",
            "/100%/x",
            "/a$b",
            "/a+b",
            "/c++/*",
            "/Smith, J./**",
            "/a b,c;d=e",
            "/a *",
            "/~user/**",
            "*.gz~",
            "/a^b",
            "/a/",
            "/.*/**",
            "/a/...",
            "..*",
            "/.well-known/**",
        ] {
            assert_eq!(UnsupportedNotation::find(text), None, "{text}");
        }
    }
}
