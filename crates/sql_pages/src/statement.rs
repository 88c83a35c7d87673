//! Analyzes SQL statements: finds their parameters, and decides whether they only read. The crate `page` splits
//! statements into pieces.

use std::borrow::Cow;

pub use lowroad_page::statement_lexer::SqlDialect;
use lowroad_page::statement_lexer::{PieceKind, StatementPieces};

/// The effect of a statement on the database, as far as its text shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementEffect {
    /// The statement only reads, apart from the effects of functions that it calls.
    Reads,
    /// The statement seems to read but may write; only the database can tell.
    MayWrite,
    /// The statement writes.
    Writes,
}

/// Determines the effect of a statement by its first word. `WITH` and `EXPLAIN` may precede a write, `INTO` may create
/// a table or a file, and a second statement may follow a semicolon.
pub fn effect(sql: &str, dialect: SqlDialect) -> StatementEffect {
    const READING: &[&str] = &["SELECT", "VALUES", "SHOW", "DESCRIBE", "TABLE"];
    const UNSURE: &[&str] = &["WITH", "EXPLAIN"];
    let word = first_word(sql, dialect);
    let matches_word = |keyword: &&str| keyword.eq_ignore_ascii_case(word);
    // The word after WITH's subqueries decides, and EXPLAIN ANALYZE executes its statement.
    if UNSURE.iter().any(matches_word) {
        return StatementEffect::MayWrite;
    }
    match READING.iter().any(matches_word) {
        true if may_have_effects(sql, dialect) => StatementEffect::MayWrite,
        true => StatementEffect::Reads,
        false => StatementEffect::Writes,
    }
}

/// Whether the statement contains the word INTO, a semicolon, or an executable comment, which a server executes or
/// skips depending on its version.
fn may_have_effects(sql: &str, dialect: SqlDialect) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    StatementPieces::new(sql, dialect).any(|(kind, piece)| match kind {
        PieceKind::Code => {
            let mut words = piece.split(|c| !is_word(c));
            piece.contains(';') || words.any(|word| word.eq_ignore_ascii_case("INTO"))
        }
        kind => kind == PieceKind::Executable,
    })
}

fn first_word(sql: &str, dialect: SqlDialect) -> &str {
    let start = StatementPieces::new(sql, dialect)
        .find(|(kind, piece)| {
            *kind == PieceKind::Code && !piece.trim_matches([' ', '(']).is_empty()
        })
        .map_or("", |(_, piece)| piece);
    let start = start.trim_start_matches(|c: char| c.is_whitespace() || c == '(');
    let end = start.find(|c: char| !c.is_ascii_alphabetic());
    &start[..end.unwrap_or(start.len())]
}

/// The number of parameters in a statement.
pub fn parameters(sql: &str, dialect: SqlDialect) -> usize {
    StatementPieces::new(sql, dialect)
        .filter(|(kind, _)| *kind == PieceKind::Parameter)
        .count()
}

/// The statement with `$1`, `$2`, … as parameters. `??` becomes PostgreSQL's operator `?`.
pub fn numbered(sql: &str) -> Cow<'_, str> {
    if !sql.contains('?') {
        return Cow::Borrowed(sql);
    }
    let mut out = String::with_capacity(sql.len() + 8);
    let mut number = 0;
    for (kind, piece) in StatementPieces::new(sql, SqlDialect::PostgreSql) {
        match kind {
            PieceKind::Parameter => {
                number += 1;
                out.push_str(&format!("${number}"));
            }
            PieceKind::Operator => out.push('?'),
            PieceKind::Code | PieceKind::Quoted | PieceKind::Comment | PieceKind::Executable => {
                out.push_str(piece)
            }
        }
    }
    Cow::Owned(out)
}

/// The statement with one `?` for each value of a list parameter. `lists` contains pairs of parameter index and number
/// of values. An empty list becomes NULL, which equals no value.
///
/// # Errors
/// The index of a list parameter that is not alone in the parentheses of an `IN`.
pub fn expand_lists<'s>(
    sql: &'s str,
    lists: &[(usize, usize)],
    dialect: SqlDialect,
) -> Result<Cow<'s, str>, usize> {
    if lists.is_empty() {
        return Ok(Cow::Borrowed(sql));
    }
    let mut out = String::with_capacity(sql.len() + 64);
    let mut index = 0;
    let mut pieces = StatementPieces::new(sql, dialect).peekable();
    while let Some((kind, piece)) = pieces.next() {
        if kind != PieceKind::Parameter {
            out.push_str(piece);
            continue;
        }
        let list = lists.iter().find(|(parameter, _)| *parameter == index);
        match list {
            None => out.push_str(piece),
            Some((_, count)) => {
                let next_piece = pieces.peek().map_or("", |(_, piece)| piece);
                // Anywhere but alone in the parentheses of an `IN`, several values would change the meaning of the
                // statement.
                if !ends_with_in(&out) || !next_piece.trim_start().starts_with(')') {
                    return Err(index);
                }
                match count {
                    0 => out.push_str("NULL"),
                    count => out.push_str(&vec!["?"; *count].join(", ")),
                }
            }
        }
        index += 1;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_in_literals_names_and_comments_are_ignored() {
        let sql = "SELECT '?' , \"a?\", `b?` -- ?\n, /* ? */ x FROM t WHERE a = ? AND b = 'it''s ?' AND c=?";
        assert_eq!(parameters(sql, SqlDialect::MySql), 2);
        let numbered = numbered(sql);
        assert!(numbered.contains("a = $1") && numbered.ends_with("c=$2"));
        assert!(numbered.contains("'it''s ?'"), "{numbered}");
    }

    #[test]
    fn double_question_mark_is_an_operator() {
        assert_eq!(parameters("SELECT a ?? ?", SqlDialect::PostgreSql), 1);
        assert_eq!(numbered("SELECT a ?? ?"), "SELECT a ? $1");
        assert_eq!(numbered("SELECT 1"), "SELECT 1");
    }

    #[test]
    fn lists_are_expanded_inside_in() {
        let sql = "SELECT '?' FROM t WHERE a = ? AND b in ( ? ) AND c NOT IN (?)";
        let spread = |lists: &[(usize, usize)]| {
            expand_lists(sql, lists, SqlDialect::Sqlite).map(Cow::into_owned)
        };
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
            assert_eq!(
                super::expand_lists(sql, &[(0, 2)], SqlDialect::Sqlite),
                Err(0),
                "{sql}"
            );
        }
    }

    #[test]
    fn effect_depends_on_first_word() {
        for sql in [
            "select 1",
            " \n(SELECT 1)",
            "-- x\nSELECT",
            "VALUES (1)",
            "SELECT into_x, 'INTO ;' FROM t -- ; INTO",
        ] {
            assert_eq!(
                effect(sql, SqlDialect::MySql),
                StatementEffect::Reads,
                "{sql}"
            );
        }
        for sql in [
            "/* a */ WITH x",
            "explain analyze DELETE FROM t",
            "SELECT a into b FROM t",
            "SELECT 1; DELETE FROM t",
        ] {
            assert_eq!(
                effect(sql, SqlDialect::MySql),
                StatementEffect::MayWrite,
                "{sql}"
            );
        }
        for sql in [
            "INSERT INTO t",
            "",
            "/* SELECT */ DELETE",
            "selection",
            "PRAGMA x = 1",
        ] {
            assert_eq!(
                effect(sql, SqlDialect::MySql),
                StatementEffect::Writes,
                "{sql}"
            );
        }
    }

    #[test]
    fn string_literals_end_as_in_the_dialect() {
        let escaped = r#"SELECT 'it\'s ?', "\"?" FROM t WHERE a = ? AND b = '\\' AND c = ?"#;
        assert_eq!(parameters(escaped, SqlDialect::MySql), 2);
        // In the other dialects, and in quoted names, a backslash is an ordinary character.
        let plain = r"SELECT '\', ? FROM t WHERE a = '?'";
        assert_eq!(parameters(plain, SqlDialect::Sqlite), 1);
        assert_eq!(parameters(plain, SqlDialect::PostgreSql), 1);
        assert_eq!(parameters(r"SELECT `a\`, ?", SqlDialect::MySql), 1);
        let hidden = r"SELECT 'a\'' INTO OUTFILE '/x'";
        assert_eq!(effect(hidden, SqlDialect::MySql), StatementEffect::MayWrite);
        for sql in [r"'\", r"'\'", r"'\é'", r"'é\'?"] {
            let pieces = StatementPieces::new(sql, SqlDialect::MySql);
            let all: String = pieces.map(|(_, piece)| piece).collect();
            assert_eq!(all, sql);
        }
    }

    #[test]
    fn executable_comments_are_code_in_mysql() {
        for sql in [
            "SELECT 1 /*! INTO OUTFILE '/x' */",
            "SELECT 1 /*M!100100 INTO OUTFILE '/x' */",
            // A server executes either of the two words, depending on its version.
            "/*!99999 SELECT */ DELETE FROM t",
        ] {
            let of = |dialect| effect(sql, dialect);
            assert_eq!(of(SqlDialect::MySql), StatementEffect::MayWrite, "{sql}");
            assert_ne!(of(SqlDialect::Sqlite), StatementEffect::MayWrite, "{sql}");
        }
        let sql = "/*!40101 DELETE */ FROM t";
        assert_eq!(effect(sql, SqlDialect::MySql), StatementEffect::Writes);
        let sql = "SELECT /*! ? */ /* ? */ 2*/*!3*/? /*!";
        assert_eq!(parameters(sql, SqlDialect::MySql), 2);
        assert_eq!(parameters(sql, SqlDialect::Sqlite), 1);
        let pieces = StatementPieces::new(sql, SqlDialect::MySql);
        assert_eq!(pieces.map(|(_, piece)| piece).collect::<String>(), sql);
    }

    #[test]
    fn line_comments_begin_as_in_the_dialect() {
        // MySQL: 5 minus (minus 1).
        let sql = "SELECT 5--1 INTO OUTFILE '/x'";
        assert_eq!(effect(sql, SqlDialect::MySql), StatementEffect::MayWrite);
        assert_eq!(effect(sql, SqlDialect::Sqlite), StatementEffect::Reads);
        let sql = "SELECT ? # it's ?\n, ? --\tis it ?";
        assert_eq!(parameters(sql, SqlDialect::MySql), 2);
        assert_eq!(parameters("SELECT a # ?", SqlDialect::PostgreSql), 1);
    }

    #[test]
    fn unterminated_literals_end_with_the_statement() {
        for sql in ["'?", "/* ?", "-- ?", "`?", "é?é'"] {
            let all: String = StatementPieces::new(sql, SqlDialect::MySql)
                .map(|(_, piece)| piece)
                .collect();
            assert_eq!(all, sql);
        }
    }
}
