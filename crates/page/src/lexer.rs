//! Splits a page into tokens, with minijinja's whitespace rules. This module does not depend on the grammar.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::error::ParseError;

/// A token of a page.
#[derive(Clone, Debug, PartialEq)]
pub enum PageToken<'s> {
    /// Literal text.
    Data(&'s str),
    /// `{{`
    Expression,
    /// `{%`
    Statement,
    /// `}}` or `%}`
    End,
    Name(&'s str),
    Text(String),
    Whole(u64),
    Float(f64),
    Sign(&'static str),
}

/// The longest source in bytes.
const SOURCE_LEN_MAX: usize = 1 << 20;

const SIGNS: &[&str] = &[
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "*", "/", "%", ".", ",", ":", "~", "|", "=", ">",
    "<", "(", ")", "[", "]", "{", "}",
];

/// The tokens of a page, each with its line.
pub fn tokens(source: &str) -> Result<Vec<(PageToken<'_>, u32)>, ParseError> {
    if source.len() > SOURCE_LEN_MAX {
        return Err(ParseError {
            line: 1,
            message: format!("the source of the page is longer than {SOURCE_LEN_MAX} bytes"),
        });
    }
    // minijinja removes one final line break of a template.
    let source = source.strip_suffix('\n').unwrap_or(source);
    let mut lexer = PageLexer {
        rest: source.strip_suffix('\r').unwrap_or(source),
        line: 1,
        tokens: Vec::new(),
    };
    lexer.page()?;
    Ok(lexer.tokens)
}

struct PageLexer<'s> {
    rest: &'s str,
    line: u32,
    tokens: Vec<(PageToken<'s>, u32)>,
}

impl<'s> PageLexer<'s> {
    fn page(&mut self) -> Result<(), ParseError> {
        let mut trims = false;
        while !self.rest.is_empty() {
            // The previous tag may have ended with `-`, which removes the whitespace after it.
            if core::mem::take(&mut trims) {
                self.skip_whitespace();
            }
            let Some(start) = self.start() else {
                let data = self.take(self.rest.len());
                self.push(PageToken::Data(data), self.line);
                break;
            };
            let line = self.line;
            let sign = self.rest.as_bytes().get(start + 2).copied();
            let data = self.take(start);
            // `{{-` removes whitespace before the tag.
            let data = if sign == Some(b'-') {
                data.trim_end()
            } else {
                data
            };
            if !data.is_empty() {
                self.push(PageToken::Data(data), line);
            }
            trims = self.tag(usize::from(matches!(sign, Some(b'-' | b'+'))))?;
        }
        Ok(())
    }

    /// The position of the next tag.
    fn start(&self) -> Option<usize> {
        let pairs = self.rest.as_bytes().windows(2);
        let is_start = |pair: &[u8]| pair[0] == b'{' && matches!(pair[1], b'{' | b'%' | b'#');
        pairs.into_iter().position(is_start)
    }

    /// Reads a tag, with or without a `-` or `+` at its start. Returns whether the whitespace after the tag is removed.
    fn tag(&mut self, sign_len: usize) -> Result<bool, ParseError> {
        let kind = self.rest.as_bytes().get(1).copied();
        if kind == Some(b'#') {
            let Some(end) = self
                .rest
                .get(2 + sign_len..)
                .and_then(|rest| rest.find("#}"))
            else {
                return Err(self.error("unterminated comment: write #}"));
            };
            // In `{#-#}` the minus belongs to the start of the comment.
            let comment = self.take(2 + sign_len + end + 2);
            return Ok(end > 0 && comment.ends_with("-#}"));
        }
        // The content of a raw block is not searched for tags.
        if kind == Some(b'%')
            && let Some((len, trims)) = basic_tag(
                self.rest.get(2 + sign_len..).unwrap_or_default(),
                "raw",
                false,
            )
        {
            self.take(2 + sign_len + len);
            return self.raw(trims);
        }
        let (begin, end) = match kind {
            Some(b'%') => (PageToken::Statement, "%}"),
            _ => (PageToken::Expression, "}}"),
        };
        self.push(begin, self.line);
        self.take(2 + sign_len);
        self.inside(end)
    }

    fn raw(&mut self, trims: bool) -> Result<bool, ParseError> {
        let mut at = 0;
        while let Some(offset) = self.rest[at..].find("{%") {
            at += offset + 2;
            let Some((len, trims_after)) = basic_tag(&self.rest[at..], "endraw", true) else {
                // Other tags within a raw block are text.
                continue;
            };
            let trims_before = self.rest[at..].starts_with('-');
            let line = self.line;
            let mut data = self.take(at - 2);
            self.take(2 + len);
            data = if trims { data.trim_start() } else { data };
            data = if trims_before { data.trim_end() } else { data };
            self.push(PageToken::Data(data), line);
            return Ok(trims_after);
        }
        Err(self.error("{% raw %} without {% endraw %}"))
    }

    fn inside(&mut self, end: &str) -> Result<bool, ParseError> {
        let mut depth = 0_i32;
        loop {
            let trimmed = self
                .rest
                .trim_start_matches(|c: char| c.is_ascii_whitespace());
            self.take(self.rest.len() - trimmed.len());
            let signed = self.rest.strip_prefix(['-', '+']);
            // Within brackets `}}` may be part of the expression.
            if depth == 0 && signed.is_some_and(|rest| rest.starts_with(end)) {
                let trims = self.rest.starts_with('-');
                self.push(PageToken::End, self.line);
                self.take(1 + end.len());
                return Ok(trims);
            }
            if depth == 0 && self.rest.starts_with(end) {
                self.push(PageToken::End, self.line);
                self.take(end.len());
                return Ok(false);
            }
            depth += self.token(end)?;
        }
    }

    /// Reads one token; returns the change in bracket depth.
    fn token(&mut self, end: &str) -> Result<i32, ParseError> {
        let line = self.line;
        let Some(&first) = self.rest.as_bytes().first() else {
            return Err(self.error(&format!("unterminated tag: write {end}")));
        };
        if first == b'"' || first == b'\'' {
            let text = self.text(first)?;
            self.push(PageToken::Text(text), line);
            return Ok(0);
        }
        if first.is_ascii_digit() {
            let number = self.number()?;
            self.push(number, line);
            return Ok(0);
        }
        if first == b'_' || first.is_ascii_alphabetic() {
            let is_part = |c: char| c == '_' || c.is_ascii_alphanumeric();
            let len = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
            let name = self.take(len);
            self.push(PageToken::Name(name), line);
            return Ok(0);
        }
        // In the list, longer signs precede their prefixes, so the first match is the longest.
        let Some(sign) = SIGNS.iter().find(|sign| self.rest.starts_with(**sign)) else {
            let c = self.rest.chars().next().unwrap_or_default();
            return Err(self.error(&format!("unexpected character {c:?}")));
        };
        self.take(sign.len());
        self.push(PageToken::Sign(sign), line);
        Ok(match *sign {
            "(" | "[" | "{" => 1,
            ")" | "]" | "}" => -1,
            _ => 0,
        })
    }

    fn number(&mut self) -> Result<PageToken<'s>, ParseError> {
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let mut len = digits(self.rest);
        // After a dot, `1.2` is two indices.
        let is_member = matches!(self.tokens.last(), Some((PageToken::Sign("."), _)));
        let mut is_float = false;
        // A point that is not followed by a digit is a member access.
        let fraction = self.rest[len..].strip_prefix('.').map_or(0, digits);
        if fraction > 0 && !is_member {
            len += 1 + fraction;
            is_float = true;
        }
        // Forms such as `1e3` and `0x1` are rejected.
        let after = self.rest[len..].chars().next();
        if after.is_some_and(|c| c == '_' || c.is_ascii_alphanumeric()) {
            return Err(self.error("a number has only digits and at most one point"));
        }
        let text = self.take(len);
        let token = match is_float {
            true => text.parse().ok().map(PageToken::Float),
            false => text.parse().ok().map(PageToken::Whole),
        };
        token.ok_or_else(|| self.error("the number is too large"))
    }

    fn text(&mut self, quote: u8) -> Result<String, ParseError> {
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => match chars.next().map(|(_, c)| c) {
                    Some(c @ ('"' | '\'' | '\\' | '/')) => text.push(c),
                    Some('n') => text.push('\n'),
                    Some('r') => text.push('\r'),
                    Some('t') => text.push('\t'),
                    // minijinja keeps the backslash before other punctuation.
                    Some(c) if !c.is_ascii_alphanumeric() => text.extend(['\\', c]),
                    _ => {
                        return Err(self.error(
                            "unknown escape; the escapes are \\n, \\r, \\t, \\\\, \\\" and \\'",
                        ));
                    }
                },
                c if c as u32 == u32::from(quote) => {
                    self.take(at + 1);
                    return Ok(text);
                }
                c => text.push(c),
            }
        }
        Err(self.error("unterminated text: its closing quote is missing"))
    }

    fn skip_whitespace(&mut self) {
        let remaining_len = self.rest.trim_start().len();
        self.take(self.rest.len() - remaining_len);
    }

    fn take(&mut self, len: usize) -> &'s str {
        let (text, rest) = self.rest.split_at_checked(len).unwrap_or((self.rest, ""));
        // Lines are counted when text is consumed, so each token has its line.
        self.line += text.bytes().filter(|&byte| byte == b'\n').count() as u32;
        self.rest = rest;
        text
    }

    fn push(&mut self, token: PageToken<'s>, line: u32) {
        self.tokens.push((token, line));
    }

    fn error(&self, message: &str) -> ParseError {
        ParseError {
            line: self.line,
            message: message.to_string(),
        }
    }
}

/// Matches a tag that consists of one name: returns its length after `{%`, and whether the whitespace after it is
/// removed.
fn basic_tag(after: &str, name: &str, may_have_sign: bool) -> Option<(usize, bool)> {
    let blank = |c: char| c.is_ascii_whitespace();
    let mut rest = after;
    if may_have_sign {
        rest = rest.strip_prefix(['-', '+']).unwrap_or(rest);
    }
    rest = rest
        .trim_start_matches(blank)
        .strip_prefix(name)?
        .trim_start_matches(blank);
    let trims = rest.starts_with('-');
    rest = rest
        .strip_prefix(['-', '+'])
        .unwrap_or(rest)
        .strip_prefix("%}")?;
    Some((after.len() - rest.len(), trims))
}
