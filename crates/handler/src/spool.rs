//! Spools: bodies that wait between clients and programs, in memory first and then in files without
//! names, so that a place in a program's limited pool is not taken by who is slow.
//!
//! [`Buffered`] gathers a request's body before its program is asked; [`Spools::behind`] takes what
//! a slow client has not taken of a response. Here is what they share: the limits, and the account of
//! what is in use. Whatever touches a file does so on tokio's threads for that, in [`file`]. It knows
//! nothing of programs.

mod account;
mod file;
mod request;
mod response;
mod trouble;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use lowroad_config::Buffering;

pub use account::Account;
pub use request::Buffered;
pub use response::STALL;
use trouble::Trouble;

use crate::notice::Notice;

/// Where files are made if the configuration does not say: on a disk, where there is one.
const FOLDERS: [&str; 2] = ["/var/tmp", "/tmp"];

/// The limits of one configuration, and what is in use of all.
pub struct Spools {
    folder: PathBuf,
    limits: Buffering,
    account: Arc<Account>,
    notice: Notice,
    /// It was said that responses have no files; once until they have again.
    told: AtomicBool,
}

impl Spools {
    /// Spools within these limits; tries to make a file. Blocks.
    ///
    /// # Errors
    /// No file can be made in the folder that was configured: why, for the operator.
    pub fn open(
        limits: &Buffering,
        account: Arc<Account>,
        notice: Notice,
    ) -> Result<Arc<Spools>, String> {
        check_folder(limits)?;
        let folder = limits.temp_path.clone().unwrap_or_else(default_folder);
        Ok(Arc::new(Spools {
            folder,
            limits: limits.clone(),
            account,
            notice,
            told: AtomicBool::new(false),
        }))
    }

    /// How many bytes of a request's body wait in memory.
    fn request_len(&self) -> usize {
        usize::try_from(self.limits.request_buffer_len).unwrap_or(usize::MAX)
    }

    /// How many bytes of a response wait in memory.
    fn response_len(&self) -> usize {
        usize::try_from(self.limits.response_buffer_len).unwrap_or(usize::MAX)
    }

    /// Says what keeps responses from files, once.
    fn tell(&self, trouble: &Trouble) {
        if !self.told.swap(true, Relaxed) {
            let why = trouble.detail(self);
            (self.notice)(&format!("programs wait for slow clients: {why}"));
        }
    }
}

/// Tries to make a file in the folder that was configured, if one was. Blocks.
///
/// # Errors
/// Why that fails, for the operator.
pub fn check_folder(limits: &Buffering) -> Result<(), String> {
    let Some(folder) = &limits.temp_path else {
        return Ok(());
    };
    try_folder(folder).map_err(|error| {
        let folder = folder.display();
        format!("temp_path {folder}: no file can be made there: {error}")
    })
}

fn try_folder(folder: &Path) -> io::Result<()> {
    file::make(folder).map(drop)
}

/// Where there is none, requests that need a file say so.
fn default_folder() -> PathBuf {
    let mut folders = FOLDERS.into_iter().map(Path::new);
    let found = folders.find(|folder| try_folder(folder).is_ok());
    found.unwrap_or(Path::new(FOLDERS[0])).to_path_buf()
}
