//! Lexical analysis of SQL statements: the number of their values, and whether they only read. The rules are those of
//! MariaDB and MySQL, the databases of images; for other databases the server checks a statement again.

/// Whether a statement begins like a read.
pub fn reads(sql: &str) -> bool {
    const READING: &[&str] = &[
        "SELECT", "VALUES", "SHOW", "DESCRIBE", "TABLE", "WITH", "EXPLAIN",
    ];
    let word = first_word(sql);
    READING.iter().any(|known| known.eq_ignore_ascii_case(word))
}

/// The number of values of a statement.
pub fn values(sql: &str) -> usize {
    pieces(sql)
        .filter(|(kind, _)| *kind == TokenKind::Value)
        .count()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TokenKind {
    Code,
    Value,
    /// The beginning of an executable comment; its content follows as code.
    Executable,
    /// The end of an executable comment.
    ExecutableEnd,
    Other,
}

/// The first word; empty if an executable comment is before it: by its version a server skips or executes the comment,
/// and so has one of two first words.
fn first_word(sql: &str) -> &str {
    let is_filling = |c: char| c.is_whitespace() || c == '(';
    let start = pieces(sql)
        .filter(|(kind, _)| matches!(kind, TokenKind::Code | TokenKind::Executable))
        .map(|(kind, piece)| (kind, piece.trim_start_matches(is_filling)))
        .find(|(_, piece)| !piece.is_empty())
        .filter(|(kind, _)| *kind == TokenKind::Code)
        .map_or("", |(_, piece)| piece);
    let end = start.find(|c: char| !c.is_ascii_alphabetic());
    &start[..end.unwrap_or(start.len())]
}

fn pieces(sql: &str) -> impl Iterator<Item = (TokenKind, &str)> {
    let mut rest = sql;
    let mut is_executable = false;
    core::iter::from_fn(move || {
        let (kind, len) = first_piece(rest, is_executable)?;
        is_executable = match kind {
            TokenKind::Executable => true,
            TokenKind::ExecutableEnd => false,
            _ => is_executable,
        };
        let (piece, after) = rest.split_at(len);
        rest = after;
        Some((kind, piece))
    })
}

fn first_piece(text: &str, is_executable: bool) -> Option<(TokenKind, usize)> {
    let first = text.chars().next()?;
    if first == '?' {
        return Some((TokenKind::Value, 1));
    }
    if begins_line_comment(text) {
        return Some((TokenKind::Other, text.find('\n').unwrap_or(text.len())));
    }
    if is_executable && text.starts_with("*/") {
        return Some((TokenKind::ExecutableEnd, 2));
    }
    if let Some(begin) = ["/*!", "/*M!"].iter().find(|it| text.starts_with(**it)) {
        // The lowest version of the server that executes it may follow.
        let content = text[begin.len()..].trim_start_matches(|c: char| c.is_ascii_digit());
        return Some((TokenKind::Executable, text.len() - content.len()));
    }
    if let Some(comment) = text.strip_prefix("/*") {
        let end = comment.find("*/");
        return Some((TokenKind::Other, end.map_or(text.len(), |at| at + 4)));
    }
    if matches!(first, '\'' | '"' | '`') {
        return Some((TokenKind::Other, quoted_len(text, first)));
    }
    let stops = |at: usize, c: char| {
        let rest = &text[at..];
        matches!(c, '?' | '\'' | '"' | '`')
            || begins_line_comment(rest)
            || rest.starts_with("/*")
            || is_executable && rest.starts_with("*/")
    };
    let end = text.char_indices().skip(1).find(|(at, c)| stops(*at, *c));
    Some((TokenKind::Code, end.map_or(text.len(), |(at, _)| at)))
}

fn begins_line_comment(text: &str) -> bool {
    // Without a space `5--1` is a difference.
    text.starts_with('#')
        || text.strip_prefix("--").is_some_and(|rest| {
            let next = rest.chars().next();
            next.is_none_or(|c| c.is_whitespace() || c.is_control())
        })
}

/// The length of a text or name with its quotes. A doubled quote ends one text and begins the next, which has the same
/// effect.
fn quoted_len(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    let end = text.char_indices().skip(1).find(|(_, c)| {
        let ends = *c == quote && !is_escaped;
        // Backslashes in quoted names are plain characters.
        is_escaped = quote != '`' && *c == '\\' && !is_escaped;
        ends
    });
    end.map_or(text.len(), |(at, _)| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_outside_of_texts_names_and_comments() {
        let sql = "SELECT '?' , \"a?\", `b?` -- ?\n, /* ? */ x FROM t WHERE a = ? AND b = 'it''s ?' AND c=?";
        assert_eq!(values(sql), 2);
        for sql in ["'?", "/* ?", "-- ?", "`?", "é", ""] {
            assert_eq!(values(sql), 0, "{sql}");
        }
    }

    #[test]
    fn texts_and_comments_end_as_in_mariadb() {
        let sql = r#"SELECT 'it\'s ?', "\"?", `\` FROM t WHERE a = ? AND b = '\\' AND c = ?"#;
        assert_eq!(values(sql), 2);
        assert_eq!(values("SELECT /*! ? */ /* ? */ 2*/*M!3*/? /*!"), 2);
        assert_eq!(values("SELECT ? # it's ?\n, 5--? --\tis it ?"), 2);
        for sql in [r"'\", r"'\'", r"'\é'", "/*!", "*/"] {
            assert_eq!(values(sql), 0, "{sql}");
        }
    }

    #[test]
    fn executable_comments_before_the_first_word_are_no_reads() {
        assert!(reads("SELECT 1 /*!50000 + 1 */"));
        // A server older than 9.99.99 would delete.
        assert!(!reads("/*!99999 SELECT */ DELETE FROM t"));
        assert!(!reads("/*!40101 DELETE */ FROM t"));
        assert!(!reads("/*! DELETE */ SELECT"));
    }

    #[test]
    fn the_first_word_tells_what_reads() {
        for sql in [
            "select 1",
            " \n(SELECT 1)",
            "-- x\nSELECT",
            "/* a */ WITH x",
        ] {
            assert!(reads(sql), "{sql}");
        }
        for sql in ["INSERT INTO t", "", "/* SELECT */ DELETE", "selection"] {
            assert!(!reads(sql), "{sql}");
        }
    }
}
