//! Splits SQL statements into code, quoted strings, comments and parameters, by the rules of a database.

/// The rules of a database for comments and quoted strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqlDialect {
    /// MariaDB and MySQL in their default mode: backslash is an escape character; `#` begins a comment, `--` only
    /// before a space; executable comments (`/*! … */`) are code.
    MySql,
    /// PostgreSQL.
    PostgreSql,
    /// SQLite.
    Sqlite,
}

/// The kind of a piece of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceKind {
    /// Words, numbers and operators.
    Code,
    /// A quoted string or name.
    Quoted,
    /// A comment, or the end of an executable comment.
    Comment,
    /// The start of an executable comment; its content follows as code.
    Executable,
    /// `?`
    Parameter,
    /// `??`
    Operator,
}

/// Splits a statement into pieces; concatenated, they are the whole statement.
pub struct StatementPieces<'a> {
    rest: &'a str,
    dialect: SqlDialect,
    /// Whether the current position is within an executable comment.
    is_executable: bool,
}

impl StatementPieces<'_> {
    /// Splits a statement by the rules of its database.
    pub fn new(rest: &str, dialect: SqlDialect) -> StatementPieces<'_> {
        StatementPieces {
            rest,
            dialect,
            is_executable: false,
        }
    }

    fn first_piece(&mut self) -> (PieceKind, usize) {
        let text = self.rest;
        if text.starts_with("??") {
            return (PieceKind::Operator, 2);
        }
        if text.starts_with('?') {
            return (PieceKind::Parameter, 1);
        }
        if self.begins_line_comment(text) {
            return (PieceKind::Comment, text.find('\n').unwrap_or(text.len()));
        }
        if self.is_executable && text.starts_with("*/") {
            self.is_executable = false;
            return (PieceKind::Comment, 2);
        }
        if let Some(comment) = text.strip_prefix("/*") {
            let executable = ["/*!", "/*M!"]
                .into_iter()
                .find(|prefix| text.starts_with(prefix));
            if let Some(begin) = executable.filter(|_| self.dialect == SqlDialect::MySql) {
                self.is_executable = true;
                // The lowest server version that executes the comment may follow.
                let content = text[begin.len()..].trim_start_matches(|c: char| c.is_ascii_digit());
                return (PieceKind::Executable, text.len() - content.len());
            }
            let end = comment.find("*/").map_or(text.len(), |at| at + 4);
            return (PieceKind::Comment, end);
        }
        if let Some(quote) = text.chars().next().filter(|c| "'\"`".contains(*c)) {
            // Backslashes in quoted names are ordinary characters.
            let has_escapes = self.dialect == SqlDialect::MySql && quote != '`';
            return (PieceKind::Quoted, quoted_len(text, quote, has_escapes));
        }
        (PieceKind::Code, self.code_len(text))
    }

    fn begins_line_comment(&self, text: &str) -> bool {
        if self.dialect != SqlDialect::MySql {
            return text.starts_with("--");
        }
        // `5--1` is a subtraction.
        text.starts_with('#')
            || text.strip_prefix("--").is_some_and(|rest| {
                let next = rest.chars().next();
                next.is_none_or(|c| c.is_whitespace() || c.is_control())
            })
    }

    /// The length of the code up to the next quote, comment or parameter; at least one character.
    fn code_len(&self, text: &str) -> usize {
        let stops = |at: usize, c: char| {
            let rest = &text[at..];
            matches!(c, '?' | '\'' | '"' | '`')
                || self.begins_line_comment(rest)
                || rest.starts_with("/*")
                || self.is_executable && rest.starts_with("*/")
        };
        let end = text.char_indices().skip(1).find(|(at, c)| stops(*at, *c));
        end.map_or(text.len(), |(at, _)| at)
    }
}

impl<'a> Iterator for StatementPieces<'a> {
    type Item = (PieceKind, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let (kind, len) = self.first_piece();
        let (piece, rest) = self.rest.split_at(len);
        self.rest = rest;
        Some((kind, piece))
    }
}

/// The length of a quoted string or name, including its quotes. A doubled quote ends one string and begins the next,
/// which has the same effect.
fn quoted_len(text: &str, quote: char, has_escapes: bool) -> usize {
    let mut is_escaped = false;
    let end = text.char_indices().skip(1).find(|(_, c)| {
        let ends = *c == quote && !is_escaped;
        is_escaped = has_escapes && *c == '\\' && !is_escaped;
        ends
    });
    end.map_or(text.len(), |(at, _)| at + 1)
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use super::*;

    const DIALECTS: [SqlDialect; 3] = [
        SqlDialect::MySql,
        SqlDialect::PostgreSql,
        SqlDialect::Sqlite,
    ];

    /// Checks all sequences of these texts, up to a length.
    fn check_sequences(texts: &[&str], prefix: &mut String, len: usize) {
        for dialect in DIALECTS {
            let mut whole = String::new();
            for (_, piece) in StatementPieces::new(prefix, dialect) {
                assert!(!piece.is_empty(), "{prefix:?} as {dialect:?}");
                whole.push_str(piece);
            }
            assert_eq!(whole, *prefix, "{dialect:?}");
        }
        if len == 0 {
            return;
        }
        for text in texts {
            prefix.push_str(text);
            check_sequences(texts, prefix, len - 1);
            prefix.truncate(prefix.len() - text.len());
        }
    }

    #[test]
    fn concatenated_pieces_are_the_whole_statement() {
        let texts = [
            "'", "\"", "`", "\\", "?", "/*", "/*!", "*/", "*", "/", "--", "-", " ", "#", "\n", "é",
            "1",
        ];
        check_sequences(&texts, &mut String::new(), 4);
    }
}
