//! The file of QUIC's secret, beside that of the ticket keys: after a restart, clients of lost connections get stateless
//! resets (RFC 9000 §10.3), and address validation tokens stay valid.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use lowroad_privileges::account::ServerAccount;
use lowroad_quic::random_bytes;
use lowroad_tls::TicketFile;

use super::secret_files;

/// The length of the secret in bytes.
const SECRET_LEN: usize = 32;

/// The file for a file of ticket keys.
fn path_beside(ticket_keys: &Path) -> PathBuf {
    let mut path = OsString::from(ticket_keys);
    path.push(".quic");
    path.into()
}

/// Reads the secret; creates it if the file is missing or empty. Waits for its lock for some seconds at most.
///
/// # Errors
/// The file, and why it can't be used.
pub fn read(
    ticket_keys: &Path,
    account: Option<&ServerAccount>,
) -> Result<[u8; SECRET_LEN], String> {
    let path = path_beside(ticket_keys);
    let secret = secret_files::open(&path, account).and_then(|file| read_or_create(&file));
    secret.map_err(|reason| format!("{}: {reason}", path.display()))
}

fn read_or_create(mut file: &File) -> Result<[u8; SECRET_LEN], String> {
    let text = |error: std::io::Error| error.to_string();
    TicketFile::check_access(file)?;
    // Two processes that start at the same time must agree on one secret. The lock ends with the file.
    TicketFile::lock(file).map_err(text)?;
    let mut bytes = Vec::new();
    // One byte more, so that a longer file is noticed.
    let mut bounded = file.take(SECRET_LEN as u64 + 1);
    bounded.read_to_end(&mut bytes).map_err(text)?;
    if bytes.is_empty() {
        let secret = random_bytes().ok_or("the system has no random bytes")?;
        file.write_all(&secret).map_err(text)?;
        file.sync_all().map_err(text)?;
        return Ok(secret);
    }
    let wrong = "it contains no secret of QUIC: remove it, and the server creates a new one";
    bytes.try_into().map_err(|_| wrong.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_kept_and_other_files_are_refused() {
        let name = format!("lowroad-quic-secret-{}", std::process::id());
        let keys = std::env::temp_dir().join(name);
        let path = path_beside(&keys);
        let secret = read(&keys, None);
        assert!(secret.is_ok() && read(&keys, None) == secret);
        for len in [SECRET_LEN - 1, SECRET_LEN + 1] {
            std::fs::write(&path, vec![7; len]).expect("a file of ours");
            assert!(read(&keys, None).is_err_and(|it| it.contains("no secret")));
        }
        std::fs::remove_file(&path).expect("the file");
        std::os::unix::fs::symlink("/dev/zero", &path).expect("a link");
        let refused = read(&keys, None);
        std::fs::remove_file(&path).expect("the link");
        assert!(refused.is_err_and(|it| it.contains("not a regular file")));
    }
}
