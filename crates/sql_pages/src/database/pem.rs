//! Certificates and keys that database addresses refer to.

use std::fs;
use std::path::{Path, PathBuf};

use super::trouble::DriverError;

/// A PEM file, or PEM text. A file is read for each connection, so that a renewed one takes effect.
#[derive(Debug, PartialEq, Eq)]
pub enum PemSource {
    /// Its path.
    File(PathBuf),
    /// The text.
    Text(String),
}

impl PemSource {
    /// Parses the value of a parameter.
    pub fn new(text: &str) -> PemSource {
        match text.trim().starts_with("-----BEGIN") {
            true => PemSource::Text(text.to_owned()),
            false => PemSource::File(text.into()),
        }
    }

    /// The file's path, for messages.
    pub fn path(&self) -> &Path {
        match self {
            PemSource::File(path) => path,
            PemSource::Text(_) => Path::new("the address of the database"),
        }
    }

    /// Reads it. May block.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&self) -> Result<Vec<u8>, DriverError> {
        match self {
            PemSource::Text(text) => Ok(text.clone().into_bytes()),
            PemSource::File(path) => fs::read(path).map_err(|error| self.driver_error(error)),
        }
    }

    /// The error of a fault in it.
    pub fn driver_error(&self, reason: impl std::fmt::Display) -> DriverError {
        DriverError::lost(format_args!("{}: {reason}", self.path().display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_file_or_a_text() {
        assert_eq!(
            PemSource::new("/etc/ca.pem"),
            PemSource::File("/etc/ca.pem".into())
        );
        let text = "\n-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert_eq!(PemSource::new(text), PemSource::Text(text.into()));
    }
}
