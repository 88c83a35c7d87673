//! The words of a Caddyfile.

/// A word, or the end of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// A word; quoted ones are never braces or matchers.
    Word(Word),
    /// The end of a line.
    LineEnd,
}

/// A word with its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// The text, without quotes.
    pub text: String,
    /// Whether it was quoted.
    pub is_quoted: bool,
    /// Its line, counted from 1.
    pub line: usize,
}

/// Splits a text into words.
///
/// # Errors
/// The line of a quote or heredoc that does not end, with a message.
pub fn tokenize(text: &str) -> Result<Vec<Token>, (usize, String)> {
    let mut lexer = Lexer {
        rest: text,
        line: 1,
        tokens: Vec::new(),
    };
    lexer.run()?;
    Ok(lexer.tokens)
}

struct Lexer<'t> {
    rest: &'t str,
    line: usize,
    tokens: Vec<Token>,
}

impl Lexer<'_> {
    fn run(&mut self) -> Result<(), (usize, String)> {
        while let Some(first) = self.rest.chars().next() {
            match first {
                '\n' => {
                    self.tokens.push(Token::LineEnd);
                    self.skip(1);
                }
                // The backslash and the end of its line are a space.
                '\\' if self.rest[1..].starts_with(['\n', '\r']) => self.skip_line(),
                it if it.is_whitespace() => self.skip(first.len_utf8()),
                // A number sign inside of a word is a part of it, so only the start of a word is looked at.
                '#' => self.skip(self.rest.find('\n').unwrap_or(self.rest.len())),
                '"' | '`' => self.quoted(first)?,
                _ if self.rest.starts_with("<<") && self.marker().is_some() => self.heredoc()?,
                _ => self.plain(),
            }
        }
        // The last line may lack its end.
        self.tokens.push(Token::LineEnd);
        Ok(())
    }

    fn skip(&mut self, len: usize) {
        self.line += self.rest[..len].matches('\n').count();
        self.rest = &self.rest[len..];
    }

    /// Skips the end of a line that a backslash continues.
    fn skip_line(&mut self) {
        self.skip(self.rest.find('\n').map_or(self.rest.len(), |end| end + 1));
    }

    fn push(&mut self, text: String, is_quoted: bool, line: usize) {
        self.tokens.push(Token::Word(Word {
            text,
            is_quoted,
            line,
        }));
    }

    fn plain(&mut self) {
        let end = self.rest.find(char::is_whitespace);
        let len = end.unwrap_or(self.rest.len());
        let (text, line) = (self.rest[..len].to_string(), self.line);
        self.skip(len);
        self.push(text, false, line);
    }

    fn quoted(&mut self, quote: char) -> Result<(), (usize, String)> {
        let line = self.line;
        let mut text = String::new();
        let mut characters = self.rest.char_indices().skip(1);
        while let Some((index, character)) = characters.next() {
            match character {
                it if it == quote => {
                    self.skip(index + 1);
                    self.push(text, true, line);
                    return Ok(());
                }
                // Only a quote can be escaped; other backslashes stay.
                '\\' if quote == '"' && self.rest[index + 1..].starts_with('"') => {
                    text.push('"');
                    characters.next();
                }
                it => text.push(it),
            }
        }
        Err((line, "a quote is not closed".to_string()))
    }

    /// The marker of a heredoc.
    fn marker(&self) -> Option<&str> {
        let line = self.rest.lines().next()?.strip_prefix("<<")?.trim_end();
        let is_marker = |it: char| it.is_ascii_alphanumeric() || it == '_' || it == '-';
        (!line.is_empty() && line.chars().all(is_marker)).then_some(line)
    }

    fn heredoc(&mut self) -> Result<(), (usize, String)> {
        let line = self.line;
        let marker = self.marker().unwrap_or_default().to_string();
        let mut lines: Vec<String> = Vec::new();
        let mut len = 0;
        for (index, text) in self.rest.split_inclusive('\n').enumerate() {
            len += text.len();
            let text = text.trim_end_matches(['\n', '\r']);
            // The first line has the marker.
            if index == 0 {
                continue;
            }
            // The text before the marker is the margin of all lines.
            if let Some(margin) = text
                .strip_suffix(&*marker)
                .filter(|it| it.trim().is_empty())
            {
                let without = lines.iter().map(|it| it.strip_prefix(margin).unwrap_or(it));
                let content = without.collect::<Vec<_>>().join("\n");
                // The end of the line ends the directive.
                let newline = usize::from(self.rest[..len].ends_with('\n'));
                self.skip(len - newline);
                self.push(content, true, line);
                return Ok(());
            }
            lines.push(text.to_string());
        }
        Err((line, format!("the heredoc {marker} is not closed")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let tokens = tokenize(text).expect("words");
        let texts = tokens.into_iter().map(|token| match token {
            Token::Word(word) => word.text,
            Token::LineEnd => "|".to_string(),
        });
        texts.collect()
    }

    #[test]
    fn words_are_split_as_caddy_does() {
        assert_eq!(words("a b # c\nd"), ["a", "b", "|", "d", "|"]);
        assert_eq!(
            words("a \"b \\\" \\n\" `c \"`"),
            ["a", "b \" \\n", "c \"", "|"]
        );
        assert_eq!(words("a \\\n  b"), ["a", "b", "|"]);
        assert_eq!(words("a#b"), ["a#b", "|"]);
        assert_eq!(
            words("x <<END\n  one\n    two\n  END\ny"),
            ["x", "one\n  two", "|", "y", "|"]
        );
        assert_eq!(tokenize("a\n\"b").map_err(|error| error.0), Err(2));
    }
}
