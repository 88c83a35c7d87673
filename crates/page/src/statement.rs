//! Analyzes SQL statements: the number of their parameters, and whether they only read. The rules are those of MariaDB
//! and MySQL, the databases used by unikernel images; for other databases the server checks a statement again.

use crate::statement_lexer::{PieceKind, SqlDialect, StatementPieces};

/// Whether the first word of a statement is that of a reading statement.
pub fn is_read(sql: &str) -> bool {
    const READING: &[&str] = &[
        "SELECT", "VALUES", "SHOW", "DESCRIBE", "TABLE", "WITH", "EXPLAIN",
    ];
    let word = first_word(sql);
    READING
        .iter()
        .any(|keyword| keyword.eq_ignore_ascii_case(word))
}

/// The number of parameter values of a statement.
pub fn values(sql: &str) -> usize {
    let count = |(kind, _)| match kind {
        PieceKind::Parameter => 1,
        // `??`, an operator in PostgreSQL, is two parameters in MariaDB and MySQL.
        PieceKind::Operator => 2,
        _ => 0,
    };
    pieces(sql).map(count).sum()
}

/// The first word; empty if it is preceded by an executable comment. Depending on its version, a server executes or
/// ignores such a comment, so the first word is ambiguous.
fn first_word(sql: &str) -> &str {
    let is_skipped = |c: char| c.is_whitespace() || c == '(';
    let start = pieces(sql)
        .filter(|(kind, _)| matches!(kind, PieceKind::Code | PieceKind::Executable))
        .map(|(kind, piece)| (kind, piece.trim_start_matches(is_skipped)))
        .find(|(_, piece)| !piece.is_empty())
        .filter(|(kind, _)| *kind == PieceKind::Code)
        .map_or("", |(_, piece)| piece);
    let end = start.find(|c: char| !c.is_ascii_alphabetic());
    &start[..end.unwrap_or(start.len())]
}

fn pieces(sql: &str) -> StatementPieces<'_> {
    StatementPieces::new(sql, SqlDialect::MySql)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_in_strings_names_and_comments_are_not_counted() {
        let sql = "SELECT '?' , \"a?\", `b?` -- ?\n, /* ? */ x FROM t WHERE a = ? AND b = 'it''s ?' AND c=?";
        assert_eq!(values(sql), 2);
        for sql in ["'?", "/* ?", "-- ?", "`?", "é", ""] {
            assert_eq!(values(sql), 0, "{sql}");
        }
    }

    #[test]
    fn strings_and_comments_end_as_in_mariadb() {
        let sql = r#"SELECT 'it\'s ?', "\"?", `\` FROM t WHERE a = ? AND b = '\\' AND c = ?"#;
        assert_eq!(values(sql), 2);
        assert_eq!(values("SELECT /*! ? */ /* ? */ 2*/*M!3*/? /*!"), 2);
        assert_eq!(values("SELECT ? # it's ?\n, 5--? --\tis it ?"), 2);
        for sql in [r"'\", r"'\'", r"'\é'", "/*!", "*/"] {
            assert_eq!(values(sql), 0, "{sql}");
        }
    }

    #[test]
    fn statement_beginning_with_executable_comment_is_not_a_read() {
        assert!(is_read("SELECT 1 /*!50000 + 1 */"));
        // A server older than 9.99.99 would execute the DELETE.
        assert!(!is_read("/*!99999 SELECT */ DELETE FROM t"));
        assert!(!is_read("/*!40101 DELETE */ FROM t"));
        assert!(!is_read("/*! DELETE */ SELECT"));
    }

    #[test]
    fn first_word_determines_whether_a_statement_reads() {
        for sql in [
            "select 1",
            " \n(SELECT 1)",
            "-- x\nSELECT",
            "/* a */ WITH x",
        ] {
            assert!(is_read(sql), "{sql}");
        }
        for sql in ["INSERT INTO t", "", "/* SELECT */ DELETE", "selection"] {
            assert!(!is_read(sql), "{sql}");
        }
    }
}
