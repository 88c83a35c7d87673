//! The sources of certificates and keys in database addresses: files or PEM text.

use std::fs;
use std::path::{Path, PathBuf};

use super::driver_error::DriverError;

/// A PEM file, or PEM text. A file is read for each connection, so that renewed certificates take effect.
#[derive(Debug, PartialEq, Eq)]
pub enum PemSource {
    /// The path of a PEM file.
    File(PathBuf),
    /// PEM text.
    Text(String),
}

impl PemSource {
    /// Parses the value of an address parameter.
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

    /// Reads the PEM text. May block.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&self) -> Result<Vec<u8>, DriverError> {
        match self {
            PemSource::Text(text) => Ok(text.clone().into_bytes()),
            PemSource::File(path) => fs::read(path).map_err(|error| self.driver_error(error)),
        }
    }

    /// Converts a problem with the PEM text to an error.
    pub fn driver_error(&self, reason: impl std::fmt::Display) -> DriverError {
        DriverError::lost(format_args!("{}: {reason}", self.path().display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_is_file_path_or_pem_text() {
        assert_eq!(
            PemSource::new("/etc/ca.pem"),
            PemSource::File("/etc/ca.pem".into())
        );
        let text = "\n-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert_eq!(PemSource::new(text), PemSource::Text(text.into()));
    }
}
