//! SQL texts as far as pages have to understand them: where their parameters are, and whether they
//! only read. Knows no database but for the way PostgreSQL numbers its parameters.

use std::borrow::Cow;

/// Whether a statement surely changes nothing but by what it calls, judged by its first word. `WITH`
/// counts as reading, though PostgreSQL lets it do more.
pub fn reads(sql: &str) -> bool {
    const READING: &[&str] = &[
        "SELECT", "WITH", "VALUES", "SHOW", "EXPLAIN", "DESCRIBE", "TABLE",
    ];
    let word = first_word(sql);
    READING.iter().any(|known| known.eq_ignore_ascii_case(word))
}

fn first_word(sql: &str) -> &str {
    let start = Pieces::new(sql)
        .find(|(kind, piece)| *kind == Kind::Code && !piece.trim_matches([' ', '(']).is_empty())
        .map_or("", |(_, piece)| piece);
    let start = start.trim_start_matches(|c: char| c.is_whitespace() || c == '(');
    let end = start.find(|c: char| !c.is_ascii_alphabetic());
    &start[..end.unwrap_or(start.len())]
}

/// How many parameters a statement has.
pub fn parameters(sql: &str) -> usize {
    Pieces::new(sql)
        .filter(|(kind, _)| *kind == Kind::Parameter)
        .count()
}

/// The statement with `$1`, `$2`, … for its parameters; `??` is PostgreSQL's operator `?`.
pub fn numbered(sql: &str) -> Cow<'_, str> {
    if !sql.contains('?') {
        return Cow::Borrowed(sql);
    }
    let mut out = String::with_capacity(sql.len() + 8);
    let mut number = 0;
    for (kind, piece) in Pieces::new(sql) {
        match kind {
            Kind::Parameter => {
                number += 1;
                out.push_str(&format!("${number}"));
            }
            Kind::Operator => out.push('?'),
            Kind::Code | Kind::Quoted | Kind::Comment => out.push_str(piece),
        }
    }
    Cow::Owned(out)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Code,
    /// A text or a quoted name.
    Quoted,
    Comment,
    /// `?`
    Parameter,
    /// `??`
    Operator,
}

/// A statement cut into its pieces; together they are the whole text.
struct Pieces<'a> {
    rest: &'a str,
}

impl Pieces<'_> {
    fn new(rest: &str) -> Pieces<'_> {
        Pieces { rest }
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = (Kind, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let (kind, len) = first_piece(self.rest);
        let (piece, rest) = self.rest.split_at(len);
        self.rest = rest;
        Some((kind, piece))
    }
}

fn first_piece(text: &str) -> (Kind, usize) {
    if text.starts_with("??") {
        return (Kind::Operator, 2);
    }
    if text.starts_with('?') {
        return (Kind::Parameter, 1);
    }
    if text.starts_with("--") {
        return (Kind::Comment, text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        let end = text.find("*/").map_or(text.len(), |at| at + 2);
        return (Kind::Comment, end);
    }
    if let Some(quote) = text.chars().next().filter(|c| "'\"`".contains(*c)) {
        let end = text[1..].find(quote).map_or(text.len(), |at| at + 2);
        return (Kind::Quoted, end);
    }
    (Kind::Code, code_len(text))
}

/// How much of the text is neither quoted, nor a comment, nor a parameter; at least one character.
fn code_len(text: &str) -> usize {
    let stops = |at: usize, c: char| {
        matches!(c, '?' | '\'' | '"' | '`')
            || text[at..].starts_with("--")
            || text[at..].starts_with("/*")
    };
    let end = text.char_indices().skip(1).find(|(at, c)| stops(*at, *c));
    end.map_or(text.len(), |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_found_outside_of_texts_names_and_comments() {
        let sql = "SELECT '?' , \"a?\", `b?` -- ?\n, /* ? */ x FROM t WHERE a = ? AND b = 'it''s ?' AND c=?";
        assert_eq!(parameters(sql), 2);
        let numbered = numbered(sql);
        assert!(numbered.contains("a = $1") && numbered.ends_with("c=$2"));
        assert!(numbered.contains("'it''s ?'"), "{numbered}");
    }

    #[test]
    fn a_doubled_mark_is_an_operator() {
        assert_eq!(parameters("SELECT a ?? ?"), 1);
        assert_eq!(numbered("SELECT a ?? ?"), "SELECT a ? $1");
        assert_eq!(numbered("SELECT 1"), "SELECT 1");
    }

    #[test]
    fn the_first_word_tells_what_reads() {
        for sql in [
            "select 1",
            " \n(SELECT 1)",
            "-- x\nSELECT",
            "/* a */ WITH x",
            "VALUES (1)",
        ] {
            assert!(reads(sql), "{sql}");
        }
        for sql in [
            "INSERT INTO t",
            "",
            "/* SELECT */ DELETE",
            "selection",
            "PRAGMA x = 1",
        ] {
            assert!(!reads(sql), "{sql}");
        }
    }

    #[test]
    fn unfinished_texts_end_with_the_statement() {
        for sql in ["'?", "/* ?", "-- ?", "`?", "é?é'"] {
            let all: String = Pieces::new(sql).map(|(_, piece)| piece).collect();
            assert_eq!(all, sql);
        }
    }
}
