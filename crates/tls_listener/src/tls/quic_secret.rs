//! The file of QUIC's secret, beside that of the ticket keys: after a restart, clients of lost connections get stateless
//! resets (RFC 9000 §10.3), and address validation tokens stay valid.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use lowroad_privileges::account::ServerAccount;
use lowroad_quic::random_bytes;
use lowroad_tls::TicketFile;

/// The file for a file of ticket keys.
fn path_beside(ticket_keys: &Path) -> PathBuf {
    let mut path = OsString::from(ticket_keys);
    path.push(".quic");
    path.into()
}

/// Reads the secret; creates it if the file is missing or empty. May block.
///
/// # Errors
/// The file, and why it can't be used.
pub fn read(ticket_keys: &Path, account: Option<&ServerAccount>) -> Result<[u8; 32], String> {
    let path = path_beside(ticket_keys);
    // The same rules as for the ticket keys: a new file has mode 0600, and belongs to the server's user.
    let opened = match account {
        Some(account) => account.open_secret(&path, TicketFile::open),
        None => TicketFile::open(&path).map_err(|error| error.to_string()),
    };
    let secret = opened.and_then(|file| read_or_create(&file));
    secret.map_err(|reason| format!("{}: {reason}", path.display()))
}

fn read_or_create(mut file: &File) -> Result<[u8; 32], String> {
    let text = |error: std::io::Error| error.to_string();
    let mode = file.metadata().map_err(text)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err("other users can read or change it: chmod 600".into());
    }
    // Two processes that start at the same time must agree on one secret.
    file.lock().map_err(text)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(text)?;
    if bytes.is_empty() {
        let secret = random_bytes().ok_or("the system has no random bytes")?;
        file.write_all(&secret).map_err(text)?;
        return Ok(secret);
    }
    let wrong = "it contains no secret of QUIC: remove it, and the server creates a new one";
    bytes.try_into().map_err(|_| wrong.into())
}
