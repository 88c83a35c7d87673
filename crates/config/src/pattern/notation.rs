//! Detects patterns that could never match and so would protect no path: the notation of other servers and shells, and
//! segments that normalized paths do not contain.

/// Notation that patterns do not support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notation {
    /// `{a,b}`
    Braces,
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

impl Notation {
    /// Finds unsupported notation. Patterns match decoded paths, so `(`, `+` and a `$` in the middle are ordinary
    /// characters.
    pub(crate) fn find(text: &str) -> Option<Notation> {
        let has = |any: &[char]| text.contains(any);
        let is_escape = |at: usize| {
            let digits = text.as_bytes().get(at + 1..at + 3);
            digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
        };
        let is_expression = has(&['|', '\\'])
            || text.starts_with(['^', '~'])
            || text.ends_with('$')
            || text.contains(".+")
            || text.contains(".*)");
        // The first that applies gives the advice, so the more specific notations come first.
        match () {
            () if is_expression => Some(Notation::Expression),
            () if has(&['{', '}']) => Some(Notation::Braces),
            () if has(&['[', ']']) => Some(Notation::Class),
            () if has(&['?']) => Some(Notation::Query),
            () if has(&['\0']) => Some(Notation::Nul),
            () if is_list(text) => Some(Notation::List),
            () if text.contains("//") => Some(Notation::EmptySegment),
            () if text.split('/').any(|segment| matches!(segment, "." | "..")) => {
                Some(Notation::DotSegment)
            }
            () => {
                // A lone `%` is an ordinary character of a decoded path.
                let mut escapes = text.match_indices('%');
                escapes
                    .any(|(at, _)| is_escape(at))
                    .then_some(Notation::Escape)
            }
        }
    }

    /// A suggestion for the operator.
    pub(crate) fn advice(self) -> &'static str {
        match self {
            Notation::Braces => {
                "a pattern without { }: one for each choice, or * in place of a letter"
            }
            Notation::Class => {
                "a pattern without [ ]: one for each choice, or * in place of a letter"
            }
            Notation::Expression => {
                "a pattern of * and **, not a regular expression: /config/**, *.sql"
            }
            Notation::Escape => {
                "the decoded path, without %XX; * in place of a segment with an encoded slash: /queues/*/x"
            }
            Notation::Query => {
                "a pattern without ?: the query is not matched; * in place of a letter"
            }
            Notation::EmptySegment => {
                "single slashes, since paths are compared with slashes merged: /a/b; * in place of a segment with an encoded slash: /queues/*/x"
            }
            Notation::DotSegment => {
                "a pattern without segments . and .., since paths with them are refused: the path that they lead to"
            }
            Notation::List => "one pattern, not a list in one text",
            Notation::Nul => "a pattern without NUL, since paths with it are refused",
        }
    }
}

/// Whether a list separator is followed by the start of another pattern.
fn is_list(text: &str) -> bool {
    text.match_indices([',', ';', ' ']).any(|(at, _)| {
        let after = text.get(at + 1..).unwrap_or_default().trim_start();
        // A space or comma within a name is allowed.
        after.starts_with('/') || after.starts_with("*.")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_notations_are_found() {
        for (text, notation) in [
            ("*.{sql,bak}", Notation::Braces),
            ("/(config|data)/**", Notation::Expression),
            ("~ ^/config/", Notation::Expression),
            ("^/config/**", Notation::Expression),
            ("\\.(sql|bak)$", Notation::Expression),
            ("/config/.*$", Notation::Expression),
            ("*\\.sql", Notation::Expression),
            ("/api/(.*)", Notation::Expression),
            ("/(.*).sql", Notation::Expression),
            ("/config/.+", Notation::Expression),
            ("*.sql,*.bak", Notation::List),
            ("*.sql; *.bak", Notation::List),
            ("*.sql *.bak", Notation::List),
            ("/config/**, /data/**", Notation::List),
            ("*.[sS][qQ][lL]", Notation::Class),
            ("/%63onfig/**", Notation::Escape),
            ("/a%2Fb", Notation::Escape),
            ("/dump?.sql", Notation::Query),
            ("//", Notation::EmptySegment),
            ("/a//b", Notation::EmptySegment),
            ("/api/queues///secret", Notation::EmptySegment),
            ("/**//x", Notation::EmptySegment),
            (".", Notation::DotSegment),
            ("/..", Notation::DotSegment),
            ("/a/./b", Notation::DotSegment),
            ("/a/../**", Notation::DotSegment),
            ("/a\0", Notation::Nul),
        ] {
            assert_eq!(Notation::find(text), Some(notation), "{text}");
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
            assert_eq!(Notation::find(text), None, "{text}");
        }
    }
}
