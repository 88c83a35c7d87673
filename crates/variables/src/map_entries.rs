//! The entries of a map: texts, host wildcards and regular expressions, each with a value.

use std::collections::HashMap;
use std::fmt;

use regex::bytes::{Regex, RegexBuilder};

/// The maximum number of entries of a map.
pub const MAP_ENTRIES_MAX: usize = 1_000_000;
/// The maximum number of entries of a map that are regular expressions, which are tried one after the other.
pub const MAP_EXPRESSIONS_MAX: usize = 1000;
/// The maximum length of a key or a value, in bytes.
pub const MAP_TEXT_LEN_MAX: usize = 4096;
/// The maximum memory of a compiled expression, in bytes.
const REGEX_SIZE_MAX: usize = 256 << 10;

/// Keys and their values. A text is found by one hash look-up, then the wildcards `*.NAME`, the longest first, then
/// the expressions `~REGEX` in their order.
#[derive(Clone, Default)]
pub struct MapEntries {
    ignores_case: bool,
    texts: HashMap<Box<[u8]>, Box<str>>,
    has_wildcards: bool,
    expressions: Vec<(Regex, Box<str>)>,
}

/// A mistake in a line of a map file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapLineError {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// The problem and the expected syntax.
    pub message: String,
}

impl MapEntries {
    /// No entries; `ignores_case` for keys that are compared without regard to ASCII case.
    pub fn new(ignores_case: bool) -> MapEntries {
        MapEntries {
            ignores_case,
            ..MapEntries::default()
        }
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// The problem, in one line.
    pub fn insert(&mut self, key: &str, value: &str) -> Result<(), String> {
        if key.len().max(value.len()) > MAP_TEXT_LEN_MAX {
            return Err(format!(
                "a key or a value is longer than {MAP_TEXT_LEN_MAX} bytes"
            ));
        }
        if !is_map_value(value) {
            return Err("a value is visible ASCII, with spaces and tabs between".to_owned());
        }
        if self.len() >= MAP_ENTRIES_MAX {
            return Err(format!("more than {MAP_ENTRIES_MAX} entries"));
        }
        if let Some(expression) = key.strip_prefix('~') {
            if self.expressions.len() >= MAP_EXPRESSIONS_MAX {
                return Err(format!(
                    "more than {MAP_EXPRESSIONS_MAX} regular expressions"
                ));
            }
            let regex = self.expression(expression)?;
            self.expressions.push((regex, value.into()));
            return Ok(());
        }
        let mut text = key.as_bytes().to_vec();
        if self.ignores_case {
            text.make_ascii_lowercase();
        }
        self.has_wildcards |= key.starts_with("*.");
        match self.texts.insert(text.into(), value.into()) {
            None => Ok(()),
            Some(_) => Err(format!("{key:?} is listed twice")),
        }
    }

    /// Reads a file: a key and a value in each line, separated by spaces or tabs; lines that begin with `#` are comments.
    ///
    /// # Errors
    /// The first line with a mistake.
    pub fn parse(text: &str, ignores_case: bool) -> Result<MapEntries, MapLineError> {
        let mut entries = MapEntries::new(ignores_case);
        // Some editors write a byte order mark, which is not a part of the first key.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        // A table that grows would hash each key several times.
        let count = text.matches('\n').count() + 1;
        entries.texts.reserve(count.min(MAP_ENTRIES_MAX));
        for (index, raw) in text.lines().enumerate() {
            let line = raw.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let indent = || raw.chars().take_while(|it| it.is_whitespace()).count();
            let fail = |message: String| MapLineError {
                line: index + 1,
                column: indent() + 1,
                message,
            };
            let Some((key, value)) = line.split_once([' ', '\t']) else {
                return Err(fail(format!(
                    "{:?} has no value; a line is: KEY VALUE",
                    shortened(line)
                )));
            };
            if value.ends_with(';') {
                let message = "remove the ; at the end, which nginx needs; a value that ends in ; is possible in `entries` only";
                return Err(MapLineError {
                    column: indent() + line.chars().count(),
                    ..fail(message.to_owned())
                });
            }
            entries.insert(key, value.trim_start()).map_err(fail)?;
        }
        Ok(entries)
    }

    /// The value of the entry that matches a text.
    pub fn find(&self, text: &[u8]) -> Option<&str> {
        let mut lower;
        // An expression may still distinguish case, by `(?-i)`.
        let original = text;
        let text = match self.ignores_case && text.iter().any(u8::is_ascii_uppercase) {
            false => text,
            true => {
                lower = text.to_vec();
                lower.make_ascii_lowercase();
                &lower
            }
        };
        if let Some(value) = self.texts.get(text) {
            return Some(value);
        }
        let wildcard = self.has_wildcards.then(|| self.find_wildcard(text));
        wildcard.flatten().or_else(|| {
            let mut expressions = self.expressions.iter();
            let found = expressions.find(|(regex, _)| regex.is_match(original));
            found.map(|(_, value)| &**value)
        })
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.texts.len() + self.expressions.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn find_wildcard(&self, text: &[u8]) -> Option<&str> {
        let mut key = vec![b'*'];
        let dots = text.iter().enumerate().filter(|(_, byte)| **byte == b'.');
        // A name in front of the first dot is required. From the left, so that the longest name is found first.
        dots.filter(|(at, _)| *at > 0).find_map(|(at, _)| {
            key.truncate(1);
            key.extend_from_slice(&text[at..]);
            self.texts.get(&*key).map(|value| &**value)
        })
    }

    fn expression(&self, text: &str) -> Result<Regex, String> {
        let built = RegexBuilder::new(text)
            .unicode(false)
            .case_insensitive(self.ignores_case)
            .dot_matches_new_line(true)
            .size_limit(REGEX_SIZE_MAX)
            .build();
        built.map_err(|error| {
            let error = error.to_string();
            let reason = error.lines().last().unwrap_or_default();
            let reason = reason.trim_start_matches("error: ");
            format!(
                "{:?} is not a regular expression: {reason}",
                shortened(text)
            )
        })
    }

    /// The entries in a fixed order.
    fn sorted(&self) -> Vec<(&[u8], &str)> {
        let texts = self.texts.iter().map(|(key, value)| (&**key, &**value));
        let mut all: Vec<(&[u8], &str)> = texts.collect();
        all.sort_unstable();
        all.extend(
            self.expressions
                .iter()
                .map(|(regex, value)| (regex.as_str().as_bytes(), &**value)),
        );
        all
    }
}

impl PartialEq for MapEntries {
    fn eq(&self, other: &MapEntries) -> bool {
        let expressions = |it: &MapEntries| -> Vec<(String, Box<str>)> {
            let expressions = it.expressions.iter();
            expressions
                .map(|(regex, value)| (regex.as_str().to_owned(), value.clone()))
                .collect()
        };
        // Expressions can't be compared, but their texts can.
        self.ignores_case == other.ignores_case
            && self.texts == other.texts
            && expressions(self) == expressions(other)
    }
}

impl Eq for MapEntries {}

impl fmt::Debug for MapEntries {
    /// All entries in a fixed order. Fingerprints of sites depend on this output.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys are bytes of any kind, and this text is only compared.
        let pairs = self.sorted().into_iter();
        let pairs = pairs.map(|(key, value)| (String::from_utf8_lossy(key), value));
        write!(f, "{} ", self.ignores_case)?;
        f.debug_map().entries(pairs).finish()
    }
}

impl fmt::Display for MapLineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

/// Whether a text can be the value of an entry: all recipients of a field with it parse it alike (RFC 9110 §5.5).
pub fn is_map_value(value: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() || byte == b' ' || byte == b'\t';
    value.bytes().all(is_plain) && value.trim() == value
}

/// The start of a text, for messages.
fn shortened(text: &str) -> String {
    text.chars().take(60).collect()
}
