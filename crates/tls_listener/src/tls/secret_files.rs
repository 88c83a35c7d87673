//! Opens the files in which the server keeps secrets.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use lowroad_privileges::account::{self, ServerAccount};
use lowroad_tls::TicketFile;

/// Opens a file at the start, when the process may still be root; creates it with mode 0600 if it is missing. A new file belongs
/// to root or to the user of `account`.
///
/// # Errors
/// The file can't be opened, or its owner is another user: the reason.
pub fn open(path: &Path, account: Option<&ServerAccount>) -> Result<File, String> {
    let file = match account {
        Some(account) => account.open_secret(path, TicketFile::open)?,
        None => TicketFile::open(path).map_err(|error| error.to_string())?,
    };
    let owner = file.metadata().map_err(|error| error.to_string())?.uid();
    match account::is_trusted_owner(owner, account) {
        true => Ok(file),
        false => Err(format!("it belongs to another user (uid {owner})")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::chown;

    use super::*;

    #[test]
    fn file_of_another_user_is_refused() {
        let name = format!("lowroad-secret-file-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let opened = open(&path, None).map(drop);
        // Only root can give a file away.
        let is_given = chown(&path, Some(12_345), None).is_ok();
        let again = open(&path, None).map(drop);
        fs::remove_file(&path).expect("the file");
        assert_eq!(opened, Ok(()));
        if is_given {
            assert!(again.is_err_and(|reason| reason.contains("uid 12345")));
        }
    }
}
