//! What is wrong with a configuration, and where.
//!
//! It knows nothing of the schema. A problem is for people: it says what would be right.

use std::fmt;
use std::path::PathBuf;

/// One thing that is wrong with a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, as it was named to [`crate::parse`].
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The key with its way from the top, counted from 0: `site[1].cache_control[0].value`.
    /// Empty for what concerns the file as a whole.
    pub key: String,
    /// What is wrong.
    pub what: String,
    /// What is allowed; may be empty.
    pub allowed: String,
}

impl fmt::Display for Problem {
    /// `lowroad.toml:12:3: site[0].listen: "80x" is not ADDR:PORT (allowed: …)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: ", self.file.display(), self.line, self.column)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.what)?;
        if !self.allowed.is_empty() {
            write!(f, " (allowed: {})", self.allowed)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}
