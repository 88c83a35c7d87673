//! Reads the files and secrets of a configuration: with root's rights at the start, by the privileged helper later.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use lowroad_config::{ConfigFiles, SecretSource, secret_text};
use lowroad_handler::secrets;
use lowroad_privileges::helper;

use crate::secret_file;

/// The folder of systemd's credentials (systemd.exec(5)).
const CREDENTIALS_VARIABLE: &str = "CREDENTIALS_DIRECTORY";

/// The credentials that were read at the start. They don't change while a service runs, and only root may read them.
static CREDENTIALS: Mutex<Option<HashMap<String, String>>> = Mutex::new(None);

/// The files of this machine.
pub struct ServerFiles;

impl ConfigFiles for ServerFiles {
    fn read(&self, file: &Path, len_max: usize) -> io::Result<Vec<u8>> {
        let opened = helper::open(file)?;
        if !opened.metadata()?.is_file() {
            return Err(io::Error::new(
                ErrorKind::InvalidInput,
                "not a regular file",
            ));
        }
        let mut content = Vec::new();
        // One byte more than the maximum, so that a longer file is noticed and not cut.
        opened.take(len_max as u64 + 1).read_to_end(&mut content)?;
        Ok(content)
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        let entries = std::fs::read_dir(folder).map_err(|error| match error.kind() {
            // The helper opens files only.
            ErrorKind::PermissionDenied => io::Error::new(
                error.kind(),
                format!("{error}; permit the server's user to read the folder, its files may stay private"),
            ),
            _ => error,
        })?;
        entries.map(|entry| Ok(entry?.file_name())).collect()
    }

    fn secret(&self, source: &SecretSource) -> Result<Option<String>, String> {
        match source {
            SecretSource::File(path) => read_text(path).map(Some),
            SecretSource::Env(name) => match secrets::variable(name) {
                Some(text) => secret_text(text.into_bytes()).map(Some),
                None => Err("not set in the server's environment, or not UTF-8".into()),
            },
            SecretSource::Credential(name) => credential(name).map(Some),
        }
    }
}

fn read_text(path: &Path) -> Result<String, String> {
    let bytes = secret_file::read(path).map_err(|error| error.to_string())?;
    secret_text(bytes)
}

fn credential(name: &str) -> Result<String, String> {
    let mut known = CREDENTIALS.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    if let Some(text) = known.get(name) {
        return Ok(text.clone());
    }
    let folder = std::env::var_os(CREDENTIALS_VARIABLE).ok_or_else(|| {
        format!("${CREDENTIALS_VARIABLE} is not set: LoadCredential={name}:PATH in the service's unit sets it")
    })?;
    let text = read_text(&PathBuf::from(folder).join(name))?;
    known.insert(name.to_owned(), text.clone());
    Ok(text)
}
