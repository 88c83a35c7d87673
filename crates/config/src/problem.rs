//! A mistake in a configuration: its position, a description and the allowed values.
//!
//! This module is independent of the schema. The text is for operators, so it contains a correct form.

use std::fmt;
use std::path::PathBuf;

/// One mistake in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The file, as passed to [`crate::parse`].
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The full path of the key, with indexes from 0: `site[1].cache_control[0].value`. Empty for problems of the whole
    /// file.
    pub key: String,
    /// The description of the mistake.
    pub message: String,
    /// The allowed values; may be empty.
    pub allowed: String,
    /// The places that use the template with the mistake, the innermost first; empty outside of templates.
    pub uses: Vec<ConfigPlace>,
}

/// A position in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigPlace {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
}

impl ConfigProblem {
    /// A problem of a whole file.
    pub(crate) fn at(place: ConfigPlace, message: impl Into<String>) -> ConfigProblem {
        ConfigProblem {
            file: place.file,
            line: place.line,
            column: place.column,
            key: String::new(),
            message: message.into(),
            allowed: String::new(),
            uses: Vec::new(),
        }
    }
}

impl fmt::Display for ConfigPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file.display(), self.line, self.column)
    }
}

impl fmt::Display for ConfigProblem {
    /// `lowroad.toml:12:3: site[0].listen: "80x" is not ADDR:PORT (allowed: …)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: ", self.file.display(), self.line, self.column)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)?;
        if !self.allowed.is_empty() {
            write!(f, " (allowed: {})", self.allowed)?;
        }
        for place in &self.uses {
            write!(f, "; used at {place}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigProblem {}
