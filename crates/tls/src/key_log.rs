//! Writes the secrets of TLS connections to a file in the format of Wireshark (SSLKEYLOGFILE), for debugging only.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Mutex;

use crate::x509::hex;

/// A file to which secrets are appended.
#[derive(Debug)]
pub struct KeyLog(Mutex<File>);

impl KeyLog {
    /// Opens a file for appending; creates it with mode 0600 if it is missing.
    ///
    /// # Errors
    /// Those of open(2).
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
            // If a line is lost, the operator cannot decrypt this connection; that must not end the connection itself.
            let _ = file.write_all(line.as_bytes());
        }
    }
}
