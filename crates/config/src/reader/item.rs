//! One value of a table: its type checks, and its representation in problems.
//!
//! Like the rest of the reader, this module is independent of the schema.

use super::text::raw_offset;
use super::{ConfigSection, ConfigSource, KeyPosition};
use crate::pattern::UnsupportedNotation;
use crate::problem::ConfigPlace;
use crate::secret::SecretSource;
use crate::value::InvalidValue;
use crate::{PathPattern, PathPatternError};
use std::borrow::Cow;
use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};

use lowroad_variables::{Template, TemplateError, TemplateScope, Variable};
use toml::de::DeValue;

/// A value that is being read.
pub(crate) struct ConfigValue<'d> {
    pub(super) source: &'d ConfigSource<'d>,
    pub(super) value: &'d DeValue<'d>,
    pub(crate) position: KeyPosition,
}

impl ConfigSection<'_> {
    /// Reads the patterns of `pattern`. Without the key, a rule applies to the whole site.
    pub(crate) fn patterns_or_all(&self) -> Option<Vec<PathPattern>> {
        match self.item("pattern") {
            Some(item) => item.patterns(),
            None => Some(vec![PathPattern::everything()]),
        }
    }
}

impl<'d> ConfigValue<'d> {
    /// Reads a string, or an integer in decimal, with a reader of [`crate::value`].
    pub(crate) fn read<T>(&self, read: impl FnOnce(&str) -> Result<T, InvalidValue>) -> Option<T> {
        // Other types are passed as "-", which every reader refuses with its own description of the allowed values.
        let text = match self.value {
            DeValue::String(text) => Cow::Borrowed(&**text),
            // Negative integers, and integers of more than 64 bits, are passed as "-" too.
            DeValue::Integer(digits) => u64::from_str_radix(digits.as_str(), digits.radix())
                .map_or(Cow::Borrowed("-"), |number| Cow::Owned(number.to_string())),
            _ => Cow::Borrowed("-"),
        };
        match read(&text) {
            Ok(value) => Some(value),
            Err(refused) => {
                self.refuse(refused.expected, refused.allowed);
                None
            }
        }
    }

    /// A string that is not empty and has no control characters.
    pub(crate) fn text(&self) -> Option<&'d str> {
        let text = self.value.as_str();
        // Such texts appear in messages and log lines, where a control character could forge a line.
        if text.is_none_or(|text| text.is_empty() || text.chars().any(char::is_control)) {
            self.refuse("a text", "a string, not empty, without control characters");
            return None;
        }
        text
    }

    /// Any string, unchecked.
    pub(crate) fn value_text(&self) -> Option<&'d str> {
        self.value.as_str()
    }

    /// The boolean, for callers that also accept other types.
    pub(crate) fn value_bool(&self) -> Option<bool> {
        self.value.as_bool()
    }

    /// A string; or a number or a boolean, as written in the file.
    pub(crate) fn plain_text(&self) -> Option<String> {
        match self.value {
            DeValue::String(text) => Some(text.to_string()),
            DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) => {
                Some(self.to_display())
            }
            _ => None,
        }
    }

    pub(crate) fn is_table(&self) -> bool {
        self.value.is_table()
    }

    /// Warns of a valid value.
    pub(crate) fn warn(&self, message: impl Into<String>, allowed: impl Into<String>) {
        self.source.warn(&self.position, message, allowed);
    }

    /// Records that the value is a secret.
    pub(crate) fn record_secret(&self) {
        let mut readings = self.source.readings.borrow_mut();
        readings.secrets.insert(self.position.offset);
    }

    /// Reads the text of a secret; `None` without access to secrets.
    pub(crate) fn read_secret(&self, source: &SecretSource) -> Result<Option<String>, String> {
        let mut readings = self.source.readings.borrow_mut();
        readings.secret_sources.push(source.clone());
        let text = self.source.access.secret(source);
        text.map_err(|error| format!("{source} can't be used: {error}"))
    }

    /// Parses a text of the value with variables, which may be maps.
    pub(crate) fn parse_template(
        &self,
        text: &str,
        scope: TemplateScope,
    ) -> Result<Template, TemplateError> {
        let template = Template::parse_with(text, scope, &self.source.maps.borrow())?;
        let mut used = self.source.used_maps.borrow_mut();
        used.extend(template.variables().filter_map(|it| match it {
            Variable::Map(map) => Some(map.0.name.clone()),
            _ => None,
        }));
        Ok(template)
    }

    /// Reads a file; `None` without access to files.
    pub(crate) fn read_file(&self, path: &Path, len_max: usize) -> Option<io::Result<Vec<u8>>> {
        let access = self.source.access;
        access.has_files().then(|| access.read(path, len_max))
    }

    pub(crate) fn is_array(&self) -> bool {
        self.value.is_array()
    }

    pub(crate) fn is_empty_array(&self) -> bool {
        self.value.as_array().is_some_and(|array| array.is_empty())
    }

    /// A path; a relative path is resolved against the folder of the configuration file.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        self.text().map(|text| self.resolve(text))
    }

    /// Resolves a path in the value against the folder of the file that contains the value.
    pub(crate) fn resolve(&self, path: &str) -> PathBuf {
        let file = &self.source.map.locate(self.position.offset).file.path;
        // `join` keeps absolute paths.
        let resolved = file.parent().unwrap_or(Path::new("")).join(path);
        if resolved != Path::new(path) {
            self.record_path(path, &resolved);
        }
        resolved
    }

    /// Records the value with a resolved path in place of the relative one.
    fn record_path(&self, path: &str, resolved: &Path) {
        let text = self.value.as_str().unwrap_or_default();
        let resolved = resolved.display();
        // The path may be only a part of the value: `unix:PATH`, `PATH/{host}`.
        let text = match (text.strip_suffix(path), text.strip_prefix(path)) {
            (Some(before), _) => format!("{before}{resolved}"),
            (None, Some(after)) => format!("{resolved}{after}"),
            (None, None) => return,
        };
        let mut readings = self.source.readings.borrow_mut();
        readings.paths.insert(self.position.offset, text);
    }

    /// Reads a pattern, or a list of them; an empty list is a problem.
    pub(crate) fn patterns(self) -> Option<Vec<PathPattern>> {
        // An empty list would match no path, which looks like a missing key.
        if self.is_empty_array() {
            self.report("the list is empty", "at least one pattern");
            return None;
        }
        let patterns = self.one_or_many();
        let patterns: Vec<Option<PathPattern>> =
            patterns.iter().map(ConfigValue::pattern).collect();
        patterns.into_iter().collect()
    }

    pub(crate) fn pattern(&self) -> Option<PathPattern> {
        self.pattern_of(self.text()?)
    }

    /// Reads a part of the value as a pattern.
    pub(crate) fn pattern_of(&self, text: &str) -> Option<PathPattern> {
        // The parser would accept unsupported notation as literal text that never matches.
        if let Some(notation) = UnsupportedNotation::find(text) {
            self.refuse("a pattern", notation.advice());
            return None;
        }
        let refused = match PathPattern::parse(text) {
            Ok(pattern) => return Some(pattern),
            Err(PathPatternError::Empty | PathPatternError::NotAbsolute) => {
                "/PATH or a FILE NAME, with * (within a segment) and ** (across segments): /img/**, *.css"
            }
            Err(PathPatternError::TooLong) => {
                "at most 1024 bytes, 16 wildcards, and 64 alternatives between two wildcards; several {…} there multiply: {a,b}{c,d} are 4"
            }
            Err(PathPatternError::Braces) => {
                "alternatives as {a,b}: at least two texts without wildcards and braces"
            }
        };
        self.refuse("a pattern", refused);
        None
    }

    pub(crate) fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        let chosen = self
            .value
            .as_str()
            .and_then(|text| choices.iter().find(|(word, _)| *word == text));
        if chosen.is_none() {
            let allowed: Vec<String> = choices
                .iter()
                .map(|(word, _)| format!("\"{word}\""))
                .collect();
            self.report(
                format!("{} is not an allowed value", self.to_display()),
                allowed.join(", "),
            );
        }
        chosen.map(|(_, value)| *value)
    }

    /// The elements of an array.
    pub(crate) fn items(&self) -> Option<Vec<ConfigValue<'d>>> {
        let Some(array) = self.value.as_array() else {
            self.refuse("an array", "[…]");
            return None;
        };
        let item = |(index, value): (usize, &'d toml::Spanned<DeValue<'d>>)| {
            let position = KeyPosition {
                key: format!("{}[{index}]", self.position.key),
                offset: value.span().start,
            };
            ConfigValue {
                source: self.source,
                value: value.get_ref(),
                position,
            }
        };
        Some(array.iter().enumerate().map(item).collect())
    }

    /// The elements of an array; any other value counts as its own only element.
    pub(crate) fn one_or_many(self) -> Vec<ConfigValue<'d>> {
        match self.value {
            DeValue::Array(_) => self.items().unwrap_or_default(),
            _ => vec![self],
        }
    }

    pub(crate) fn section(&self) -> Option<ConfigSection<'d>> {
        let Some(table) = self.value.as_table() else {
            self.refuse("a table", "keys with values");
            return None;
        };
        Some(ConfigSection {
            source: self.source,
            table,
            position: self.position.clone(),
            known_keys: RefCell::default(),
        })
    }

    /// Reports `VALUE is not MESSAGE`.
    pub(crate) fn refuse(&self, message: &str, allowed: impl Into<String>) {
        self.report(format!("{} is not {message}", self.to_display()), allowed);
    }

    pub(crate) fn report(&self, message: impl Into<String>, allowed: impl Into<String>) {
        self.source.report(&self.position, message, allowed);
    }

    /// Reports a problem at an offset in the string.
    pub(crate) fn report_at(
        &self,
        offset: usize,
        message: impl Into<String>,
        allowed: impl Into<String>,
    ) {
        let raw = self.source.map.text_from(self.position.offset);
        let position = KeyPosition {
            key: self.position.key.clone(),
            offset: self.position.offset + raw_offset(raw, offset),
        };
        self.source.report(&position, message, allowed);
    }

    /// The place of the value.
    pub(crate) fn place(&self) -> ConfigPlace {
        self.source.map.place(self.position.offset)
    }

    /// The value as shown in problems: short, and on one line.
    pub(crate) fn to_display(&self) -> String {
        const SHOWN_MAX: usize = 60;
        match self.value {
            // Long strings are cut, since a problem is one line.
            DeValue::String(text) if text.chars().count() > SHOWN_MAX => {
                let start: String = text.chars().take(SHOWN_MAX).collect();
                format!("{start:?}…")
            }
            DeValue::String(text) => format!("{text:?}"),
            DeValue::Integer(digits) => digits.to_string(),
            DeValue::Float(digits) => digits.to_string(),
            DeValue::Boolean(flag) => flag.to_string(),
            DeValue::Datetime(time) => time.to_string(),
            DeValue::Array(_) => "an array".to_string(),
            DeValue::Table(_) => "a table".to_string(),
        }
    }
}
