//! Lexical analysis of SQL statements: the places of their parameters, and whether they only read. Database-independent
//! except for PostgreSQL's numbered parameters.

use std::borrow::Cow;

/// A statement's effect on its database, as far as its text shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementEffect {
    /// It reads, and changes nothing except through functions that it calls.
    Reads,
    /// It looks like a read, but may write: only the database can decide.
    Unsure,
    /// It writes.
    Writes,
}

/// A statement's effect by its first word. `WITH` and `EXPLAIN` may introduce a write, `INTO` creates a table of the
/// result, and a second statement may follow a semicolon.
pub fn effect(sql: &str) -> StatementEffect {
    const READING: &[&str] = &["SELECT", "VALUES", "SHOW", "DESCRIBE", "TABLE"];
    const UNSURE: &[&str] = &["WITH", "EXPLAIN"];
    let word = first_word(sql);
    let is = |known: &&str| known.eq_ignore_ascii_case(word);
    if UNSURE.iter().any(is) {
        return StatementEffect::Unsure;
    }
    match READING.iter().any(is) {
        true if has_more(sql) => StatementEffect::Unsure,
        true => StatementEffect::Reads,
        false => StatementEffect::Writes,
    }
}

/// Whether it contains the word INTO or a semicolon.
fn has_more(sql: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    StatementPieces::new(sql)
        .filter(|(kind, _)| *kind == PieceKind::Code)
        .any(|(_, piece)| {
            let mut words = piece.split(|c| !is_word(c));
            piece.contains(';') || words.any(|word| word.eq_ignore_ascii_case("INTO"))
        })
}

fn first_word(sql: &str) -> &str {
    let start = StatementPieces::new(sql)
        .find(|(kind, piece)| {
            *kind == PieceKind::Code && !piece.trim_matches([' ', '(']).is_empty()
        })
        .map_or("", |(_, piece)| piece);
    let start = start.trim_start_matches(|c: char| c.is_whitespace() || c == '(');
    let end = start.find(|c: char| !c.is_ascii_alphabetic());
    &start[..end.unwrap_or(start.len())]
}

/// The number of parameters of a statement.
pub fn parameters(sql: &str) -> usize {
    StatementPieces::new(sql)
        .filter(|(kind, _)| *kind == PieceKind::Parameter)
        .count()
}

/// The statement with `$1`, `$2`, … for its parameters; `??` is PostgreSQL's operator `?`.
pub fn numbered(sql: &str) -> Cow<'_, str> {
    if !sql.contains('?') {
        return Cow::Borrowed(sql);
    }
    let mut out = String::with_capacity(sql.len() + 8);
    let mut number = 0;
    for (kind, piece) in StatementPieces::new(sql) {
        match kind {
            PieceKind::Parameter => {
                number += 1;
                out.push_str(&format!("${number}"));
            }
            PieceKind::Operator => out.push('?'),
            PieceKind::Code | PieceKind::Quoted | PieceKind::Comment => out.push_str(piece),
        }
    }
    Cow::Owned(out)
}

/// The statement with one `?` for each value of a list parameter; `lists` has pairs `(parameter, count)`. An empty list
/// becomes NULL, which equals no value.
///
/// # Errors
/// The parameter of a list that is not alone in the parentheses of an `IN`.
pub fn spread<'s>(sql: &'s str, lists: &[(usize, usize)]) -> Result<Cow<'s, str>, usize> {
    if lists.is_empty() {
        return Ok(Cow::Borrowed(sql));
    }
    let mut out = String::with_capacity(sql.len() + 64);
    let mut at = 0;
    let mut pieces = StatementPieces::new(sql).peekable();
    while let Some((kind, piece)) = pieces.next() {
        if kind != PieceKind::Parameter {
            out.push_str(piece);
            continue;
        }
        let list = lists.iter().find(|(known, _)| *known == at);
        match list {
            None => out.push_str(piece),
            Some((_, count)) => {
                let after = pieces.peek().map_or("", |(_, piece)| piece);
                if !ends_with_in(&out) || !after.trim_start().starts_with(')') {
                    return Err(at);
                }
                match count {
                    0 => out.push_str("NULL"),
                    count => out.push_str(&vec!["?"; *count].join(", ")),
                }
            }
        }
        at += 1;
    }
    Ok(Cow::Owned(out))
}

/// Whether a text ends with `IN (`.
fn ends_with_in(sql: &str) -> bool {
    let Some(before) = sql.trim_end().strip_suffix('(') else {
        return false;
    };
    let mut words = before.trim_end().rsplit(|c: char| !c.is_ascii_alphabetic());
    words
        .next()
        .is_some_and(|word| word.eq_ignore_ascii_case("IN"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PieceKind {
    Code,
    /// A text or a quoted name.
    Quoted,
    Comment,
    /// `?`
    Parameter,
    /// `??`
    Operator,
}

/// Splits a statement into pieces, which together are the whole text.
struct StatementPieces<'a> {
    rest: &'a str,
}

impl StatementPieces<'_> {
    fn new(rest: &str) -> StatementPieces<'_> {
        StatementPieces { rest }
    }
}

impl<'a> Iterator for StatementPieces<'a> {
    type Item = (PieceKind, &'a str);

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

fn first_piece(text: &str) -> (PieceKind, usize) {
    if text.starts_with("??") {
        return (PieceKind::Operator, 2);
    }
    if text.starts_with('?') {
        return (PieceKind::Parameter, 1);
    }
    if text.starts_with("--") {
        return (PieceKind::Comment, text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        let end = text.find("*/").map_or(text.len(), |at| at + 2);
        return (PieceKind::Comment, end);
    }
    if let Some(quote) = text.chars().next().filter(|c| "'\"`".contains(*c)) {
        let end = text[1..].find(quote).map_or(text.len(), |at| at + 2);
        return (PieceKind::Quoted, end);
    }
    (PieceKind::Code, code_len(text))
}

/// The length of the code up to the next quote, comment or parameter; at least one character.
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
    fn lists_are_spread_in_the_parentheses_of_in() {
        let sql = "SELECT '?' FROM t WHERE a = ? AND b in ( ? ) AND c NOT IN (?)";
        let spread = |lists: &[(usize, usize)]| spread(sql, lists).map(Cow::into_owned);
        assert_eq!(spread(&[]), Ok(sql.to_owned()));
        assert_eq!(
            spread(&[(1, 2), (2, 0)]),
            Ok("SELECT '?' FROM t WHERE a = ? AND b in ( ?, ? ) AND c NOT IN (NULL)".to_owned())
        );
        assert_eq!(spread(&[(0, 2)]), Err(0));
        for sql in [
            "VALUES (?)",
            "x IN (?, 1)",
            "MIN(?)",
            "x IN ?",
            "x IN (1, ?)",
        ] {
            assert_eq!(super::spread(sql, &[(0, 2)]), Err(0), "{sql}");
        }
    }

    #[test]
    fn the_first_word_tells_what_reads() {
        for sql in [
            "select 1",
            " \n(SELECT 1)",
            "-- x\nSELECT",
            "VALUES (1)",
            "SELECT into_x, 'INTO ;' FROM t -- ; INTO",
        ] {
            assert_eq!(effect(sql), StatementEffect::Reads, "{sql}");
        }
        for sql in [
            "/* a */ WITH x",
            "explain analyze DELETE FROM t",
            "SELECT a into b FROM t",
            "SELECT 1; DELETE FROM t",
        ] {
            assert_eq!(effect(sql), StatementEffect::Unsure, "{sql}");
        }
        for sql in [
            "INSERT INTO t",
            "",
            "/* SELECT */ DELETE",
            "selection",
            "PRAGMA x = 1",
        ] {
            assert_eq!(effect(sql), StatementEffect::Writes, "{sql}");
        }
    }

    #[test]
    fn unfinished_texts_end_with_the_statement() {
        for sql in ["'?", "/* ?", "-- ?", "`?", "é?é'"] {
            let all: String = StatementPieces::new(sql).map(|(_, piece)| piece).collect();
            assert_eq!(all, sql);
        }
    }
}
