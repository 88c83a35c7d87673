//! Splits the text of an nginx configuration into words, `;`, `{` and `}`.
//!
//! The rules are those of nginx' own reader: quotes count at the start of a word only, a backslash escapes quotes and
//! itself, `${name}` does not begin a block, and `#` begins a comment at the start of a word.

/// A position in a file; line and column count from 1, the column in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextPosition {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

/// An element of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// A name or an argument, without its quotes.
    Word(String),
    /// `;`
    End,
    /// `{`
    Open,
    /// `}`
    Close,
}

/// The reason why a text has no further token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LexError {
    /// A quote is never closed.
    OpenQuote,
    /// A character follows a closing quote directly.
    AfterQuote,
    /// A word has bytes that are not UTF-8.
    OtherEncoding,
}

/// Reads tokens one after the other.
pub struct Lexer<'t> {
    rest: std::str::Chars<'t>,
    position: TextPosition,
}

impl<'t> Lexer<'t> {
    /// Starts at the beginning of a text.
    pub fn new(text: &'t str) -> Lexer<'t> {
        // Some editors begin a file with a byte order mark, which nginx skips.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        Lexer {
            rest: text.chars(),
            position: TextPosition { line: 1, column: 1 },
        }
    }

    /// The position of the next character.
    pub fn position(&self) -> TextPosition {
        self.position
    }

    /// The next token with its position; none at the end of the text.
    ///
    /// # Errors
    /// See [`LexError`]; the position is that of the word.
    pub fn next_token(
        &mut self,
    ) -> Result<Option<(Token, TextPosition)>, (LexError, TextPosition)> {
        self.skip_blanks();
        let start = self.position;
        let Some(first) = self.peek() else {
            return Ok(None);
        };
        let token = match first {
            ';' => self.single(Token::End),
            '{' => self.single(Token::Open),
            '}' => self.single(Token::Close),
            '"' | '\'' => self.quoted(first).map_err(|error| (error, start))?,
            _ => self.bare(),
        };
        // The bytes are lost, so the word would protect other paths.
        match &token {
            Token::Word(word) if word.contains(char::REPLACEMENT_CHARACTER) => {
                Err((LexError::OtherEncoding, start))
            }
            _ => Ok(Some((token, start))),
        }
    }

    /// Skips the content of a block in another language, up to and with its closing brace. Returns false at the end of
    /// the text.
    pub fn skip_foreign_block(&mut self) -> bool {
        // Lua has other quotes and comments than nginx, so only braces are counted.
        let mut depth = 1;
        while let Some(character) = self.bump() {
            match character {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return true;
            }
        }
        false
    }

    fn single(&mut self, token: Token) -> Token {
        self.bump();
        token
    }

    fn skip_blanks(&mut self) {
        while let Some(character) = self.peek() {
            if character == '#' {
                while self.peek().is_some_and(|it| it != '\n') {
                    self.bump();
                }
            } else if !character.is_ascii_whitespace() {
                return;
            }
            self.bump();
        }
    }

    fn quoted(&mut self, quote: char) -> Result<Token, LexError> {
        self.bump();
        let mut word = String::new();
        loop {
            match self.bump().ok_or(LexError::OpenQuote)? {
                '\\' => self.escape(&mut word),
                it if it == quote => break,
                it => word.push(it),
            }
        }
        let ends = |it: char| it.is_ascii_whitespace() || matches!(it, ';' | '{' | ')');
        if self.peek().is_some_and(|it| !ends(it)) {
            return Err(LexError::AfterQuote);
        }
        // `if ($a = "b")`: the parenthesis belongs to the condition, which is put together from words.
        if self.peek() == Some(')') {
            self.bump();
            word.push(')');
        }
        Ok(Token::Word(word))
    }

    fn bare(&mut self) -> Token {
        let mut word = String::new();
        while let Some(character) = self.peek() {
            let is_variable = character == '{' && word.ends_with('$');
            if character.is_ascii_whitespace()
                || character == ';'
                || (character == '{' && !is_variable)
            {
                break;
            }
            self.bump();
            if character == '\\' {
                self.escape(&mut word);
            } else {
                word.push(character);
            }
        }
        Token::Word(word)
    }

    /// Adds the character after a backslash, as nginx reads it: regular expressions keep their backslashes.
    fn escape(&mut self, word: &mut String) {
        match self.bump() {
            Some(it @ ('"' | '\'' | '\\')) => {
                // A backslash before a backslash stays one in nginx; `\\.` is therefore `\.`.
                word.push(it);
            }
            Some('t') => word.push('\t'),
            Some('r') => word.push('\r'),
            Some('n') => word.push('\n'),
            Some(it) => word.extend(['\\', it]),
            None => word.push('\\'),
        }
    }

    fn peek(&self) -> Option<char> {
        self.rest.clone().next()
    }

    fn bump(&mut self) -> Option<char> {
        let character = self.rest.next()?;
        if character == '\n' {
            self.position.line += 1;
            self.position.column = 1;
        } else {
            self.position.column += 1;
        }
        Some(character)
    }
}
