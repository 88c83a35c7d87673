//! Writes the secrets of connections to a file in the format that Wireshark reads (SSLKEYLOGFILE), for debugging only.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Mutex;

use crate::x509::hex;

/// A file that secrets are appended to.
#[derive(Debug)]
pub struct KeyLog(Mutex<File>);

impl KeyLog {
    /// Opens a file; creates it, for its owner only, if it is missing.
    ///
    /// # Errors
    /// As of open(2).
    pub fn append(path: &Path) -> io::Result<KeyLog> {
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)?;
        Ok(KeyLog(Mutex::new(file)))
    }
}

impl rustls::KeyLog for KeyLog {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let line = format!("{label} {} {}\n", hex(client_random), hex(secret));
        if let Ok(mut file) = self.0.lock() {
            // A lost line makes one connection undecodable for the operator; that must not end the connection.
            let _ = file.write_all(line.as_bytes());
        }
    }
}
