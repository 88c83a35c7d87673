//! The tree of directives of an nginx configuration, without knowledge of their meaning.

use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::lexer::{LexError, Lexer, TextPosition, Token};

#[cfg(test)]
mod tests;

/// The deepest nesting of blocks.
const DEPTH_MAX: usize = 32;

/// The place of a directive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePlace {
    /// The file.
    pub file: Rc<Path>,
    /// Line and column of the directive's name.
    pub position: TextPosition,
}

impl fmt::Display for SourcePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.position.line)
    }
}

/// One directive, with its block if it has one.
#[derive(Clone, Debug)]
pub struct Directive {
    /// The name: `proxy_pass`.
    pub name: String,
    /// The arguments, without quotes.
    pub args: Vec<String>,
    /// The directives of its block; empty for a block in another language.
    pub block: Option<Vec<Directive>>,
    /// Where it is.
    pub place: SourcePlace,
    /// Its index in the report, once it has one.
    pub id: usize,
}

impl Directive {
    /// The argument with this index, counted from 0; empty if there is none.
    pub fn arg(&self, index: usize) -> &str {
        self.args.get(index).map_or("", String::as_str)
    }

    /// The directives of the block.
    pub fn children(&self) -> &[Directive] {
        self.block.as_deref().unwrap_or_default()
    }

    /// The directive as text, without its block.
    pub fn to_text(&self) -> String {
        let mut text = self.name.clone();
        for arg in &self.args {
            text.push(' ');
            let is_plain = !arg.is_empty()
                && !arg.contains(|it: char| it.is_whitespace() || ";{".contains(it));
            if is_plain {
                text.push_str(arg);
            } else {
                text.extend(["\"", &arg.replace('\n', " "), "\""]);
            }
        }
        text
    }
}

/// A text that nginx would not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// The file.
    pub file: PathBuf,
    /// The position of the mistake.
    pub position: TextPosition,
    /// The mistake.
    pub message: String,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TextPosition { line, column } = self.position;
        write!(
            f,
            "{}:{line}:{column}: {}",
            self.file.display(),
            self.message
        )
    }
}

impl std::error::Error for SyntaxError {}

/// Reads the directives of one file. Includes stay directives.
///
/// # Errors
/// The first mistake of the syntax.
pub fn parse(text: &str, file: &Path) -> Result<Vec<Directive>, SyntaxError> {
    let mut parser = TreeParser {
        lexer: Lexer::new(text),
        file: file.into(),
    };
    parser.block(0)
}

struct TreeParser<'t> {
    lexer: Lexer<'t>,
    file: Rc<Path>,
}

impl TreeParser<'_> {
    /// Reads directives up to the closing brace, or at depth 0 up to the end of the text.
    fn block(&mut self, depth: usize) -> Result<Vec<Directive>, SyntaxError> {
        // The parser is recursive, so an unbounded depth would overflow the stack.
        if depth > DEPTH_MAX {
            let message = format!("blocks are nested more than {DEPTH_MAX} deep");
            return Err(self.error(self.lexer.position(), message));
        }
        let mut directives = Vec::new();
        loop {
            let position = self.lexer.position();
            match (self.next()?, depth) {
                (None, 0) | (Some((Token::Close, _)), 1..) => return Ok(directives),
                (None, _) => {
                    return Err(self.error(position, "a block is not closed: } is missing"));
                }
                (Some((Token::Close, at)), _) => {
                    return Err(self.error(at, "this } closes no block"));
                }
                (Some((Token::Word(name), at)), _) => {
                    directives.push(self.directive(name, at, depth)?)
                }
                (Some((Token::End, at)), _) => {
                    return Err(self.error(at, "a directive is missing before ;"));
                }
                (Some((Token::Open, at)), _) => {
                    return Err(self.error(at, "a directive is missing before {"));
                }
            }
        }
    }

    fn directive(
        &mut self,
        name: String,
        at: TextPosition,
        depth: usize,
    ) -> Result<Directive, SyntaxError> {
        let mut args = Vec::new();
        let block = loop {
            match self.next()? {
                Some((Token::Word(word), _)) => args.push(word),
                Some((Token::End, _)) => break None,
                Some((Token::Open, open)) if name.ends_with("_by_lua_block") => {
                    if !self.lexer.skip_foreign_block() {
                        return Err(self.error(open, "a block is not closed: } is missing"));
                    }
                    break Some(Vec::new());
                }
                Some((Token::Open, _)) => break Some(self.block(depth + 1)?),
                Some((Token::Close, close)) => {
                    return Err(self.error(close, format!("{name} has no ; before this }}")));
                }
                None => return Err(self.error(at, format!("{name} has no ; at its end"))),
            }
        };
        let place = SourcePlace {
            file: Rc::clone(&self.file),
            position: at,
        };
        Ok(Directive {
            name,
            args,
            block,
            place,
            id: 0,
        })
    }

    fn next(&mut self) -> Result<Option<(Token, TextPosition)>, SyntaxError> {
        self.lexer.next_token().map_err(|(error, at)| {
            let message = match error {
                LexError::OpenQuote => "a quote is not closed",
                LexError::OtherEncoding => "is not UTF-8: convert the file",
                LexError::AfterQuote => "a space or ; must follow the closing quote",
            };
            self.error(at, message)
        })
    }

    fn error(&self, position: TextPosition, message: impl Into<String>) -> SyntaxError {
        SyntaxError {
            file: self.file.to_path_buf(),
            position,
            message: message.into(),
        }
    }
}
