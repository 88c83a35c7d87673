//! Lexical analysis of SQL statements: the number of their values, and whether they only read. The rules are those of
//! the server's pages; independent of databases.

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
    Other,
}

fn first_word(sql: &str) -> &str {
    let is_filling = |c: char| c.is_whitespace() || c == '(';
    let start = pieces(sql)
        .filter(|(kind, _)| *kind == TokenKind::Code)
        .map(|(_, piece)| piece.trim_start_matches(is_filling))
        .find(|piece| !piece.is_empty())
        .unwrap_or_default();
    let end = start.find(|c: char| !c.is_ascii_alphabetic());
    &start[..end.unwrap_or(start.len())]
}

fn pieces(sql: &str) -> impl Iterator<Item = (TokenKind, &str)> {
    let mut rest = sql;
    core::iter::from_fn(move || {
        let (kind, len) = first_piece(rest)?;
        let (piece, after) = rest.split_at(len);
        rest = after;
        Some((kind, piece))
    })
}

fn first_piece(text: &str) -> Option<(TokenKind, usize)> {
    let first = text.chars().next()?;
    if first == '?' {
        return Some((TokenKind::Value, 1));
    }
    if text.starts_with("--") {
        return Some((TokenKind::Other, text.find('\n').unwrap_or(text.len())));
    }
    if text.starts_with("/*") {
        return Some((
            TokenKind::Other,
            text.find("*/").map_or(text.len(), |at| at + 2),
        ));
    }
    // A doubled quote ends one text and begins the next, which has the same effect.
    if matches!(first, '\'' | '"' | '`') {
        let end = text[1..].find(first);
        return Some((TokenKind::Other, end.map_or(text.len(), |at| at + 2)));
    }
    let stops = |at: usize, c: char| {
        matches!(c, '?' | '\'' | '"' | '`')
            || text[at..].starts_with("--")
            || text[at..].starts_with("/*")
    };
    let end = text.char_indices().skip(1).find(|(at, c)| stops(*at, *c));
    Some((TokenKind::Code, end.map_or(text.len(), |(at, _)| at)))
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
