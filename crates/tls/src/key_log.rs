//! The secrets of connections, written to a file in the format that Wireshark reads: only when asked, for looking at
//! what is on the wire.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Mutex;

use crate::x509::hex;

/// A file that secrets are added to.
#[derive(Debug)]
pub struct KeyLog(Mutex<File>);

impl KeyLog {
    /// Opens a file, which is made if it is not there, for nobody but its owner.
    ///
    /// # Errors
    /// What the system says.
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
            // A line that is lost is one that cannot be looked at; no connection ends for it.
            let _ = file.write_all(line.as_bytes());
        }
    }
}
