//! Patterns as other servers and shells write them. Here they would match themselves only, and so protect nothing.

/// Notation of other servers and shells that is not part of a pattern here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notation {
    /// `{a,b}`
    Braces,
    /// `[ab]`
    Class,
    /// `(a|b)`, `^`, `$`, `\`, `~`: of regular expressions.
    Expression,
    /// `%63`
    Escape,
    /// `?`
    Query,
}

impl Notation {
    /// Of a text that has any. Patterns are of decoded paths, so `(`, `+` and a `$` within one are letters as others.
    pub(crate) fn find(text: &str) -> Option<Notation> {
        let has = |any: &[char]| text.contains(any);
        let is_escape = |at: usize| {
            let digits = text.as_bytes().get(at + 1..at + 3);
            digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
        };
        let is_expression =
            has(&['|', '\\']) || text.starts_with(['^', '~']) || text.ends_with('$');
        match () {
            () if is_expression => Some(Notation::Expression),
            () if has(&['{', '}']) => Some(Notation::Braces),
            () if has(&['[', ']']) => Some(Notation::Class),
            () if has(&['?']) => Some(Notation::Query),
            () => {
                let mut escapes = text.match_indices('%');
                escapes
                    .any(|(at, _)| is_escape(at))
                    .then_some(Notation::Escape)
            }
        }
    }

    /// What to write in place of it.
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
            Notation::Escape => "the decoded path: / and letters, without %XX",
            Notation::Query => {
                "a pattern without ?: the query is not matched; * in place of a letter"
            }
        }
    }
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
            ("*.[sS][qQ][lL]", Notation::Class),
            ("/%63onfig/**", Notation::Escape),
            ("/a%2Fb", Notation::Escape),
            ("/dump?.sql", Notation::Query),
        ] {
            assert_eq!(Notation::find(text), Some(notation), "{text}");
        }
        for text in [
            "/wiki/Rust_(language)",
            "/100%/x",
            "/a$b",
            "/a+b",
            "/~user/**",
            "*.gz~",
            "/a^b",
        ] {
            assert_eq!(Notation::find(text), None, "{text}");
        }
    }
}
