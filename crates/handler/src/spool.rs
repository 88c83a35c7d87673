//! Spools: request and response bodies are buffered between clients and applications, first in memory and then in
//! temporary files, so that slow clients do not occupy an application's limited processes or connections (nginx
//! `proxy_buffering`).
//!
//! `BufferingHandler` collects a request's body before its application is called; [`SpoolLimits::spool_for`] buffers a
//! response for a slow client. This module has the shared parts: the limits, and the account of resources in use. All
//! file access happens on separate threads, in [`mod@file`].

mod account;
mod failure;
mod file;
mod request;
mod response;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use lowroad_config::BufferConfig;

pub use account::SpoolAccount;
use failure::SpoolFailure;
pub use request::BufferingHandler;
pub use response::STALL;

use crate::operator_notice::OperatorNotice;

/// The default folders for spool files. `/var/tmp` is first, since it is usually on a disk.
const FOLDERS: [&str; 2] = ["/var/tmp", "/tmp"];

/// The limits of one configuration, and the account, which all configurations share.
pub struct SpoolLimits {
    folder: PathBuf,
    limits: BufferConfig,
    account: Arc<SpoolAccount>,
    notice: OperatorNotice,
    /// Whether the operator was notified that the limit on files is reached; reset once a file is closed.
    is_notice_sent: AtomicBool,
}

impl SpoolLimits {
    /// Creates the limits; checks that files can be created in the folder. Blocks.
    ///
    /// # Errors
    /// The reason why no file can be created in the configured folder, for the operator.
    pub fn open(
        limits: &BufferConfig,
        account: Arc<SpoolAccount>,
        notice: OperatorNotice,
    ) -> Result<Arc<SpoolLimits>, String> {
        // Checked when the configuration is loaded, and not with the first slow client.
        check_folder(limits)?;
        let folder = limits.temp_path.clone().unwrap_or_else(default_folder);
        Ok(Arc::new(SpoolLimits {
            folder,
            limits: limits.clone(),
            account,
            notice,
            is_notice_sent: AtomicBool::new(false),
        }))
    }

    /// The number of bytes of a request's body that are buffered in memory.
    fn request_len(&self) -> usize {
        usize::try_from(self.limits.request_buffer_len).unwrap_or(usize::MAX)
    }

    /// The number of bytes of a response that are buffered in memory.
    fn response_len(&self) -> usize {
        usize::try_from(self.limits.response_buffer_len).unwrap_or(usize::MAX)
    }

    /// Notifies the operator, once per shortage, that responses can't be spooled to files.
    fn notify_operator(&self, failure: &SpoolFailure) {
        // Otherwise every slow client would cause a log line.
        if !self.is_notice_sent.swap(true, Relaxed) {
            let detail = failure.detail(self);
            let text = format!(
                "programs wait for slow clients, because their responses can't \
                                    be buffered: {detail}"
            );
            (self.notice)(&text, None);
        }
    }
}

/// Creates a test file in the configured folder, if there is one. Blocks.
///
/// # Errors
/// The reason why that fails, for the operator.
// The default folder is not checked: if it is unusable, only requests that need a file fail.
pub fn check_folder(limits: &BufferConfig) -> Result<(), String> {
    let Some(folder) = &limits.temp_path else {
        return Ok(());
    };
    try_folder(folder).map_err(|error| {
        let folder = folder.display();
        format!("temp_path {folder}: can't create a file there: {error}")
    })
}

fn try_folder(folder: &Path) -> io::Result<()> {
    file::create_unnamed(folder).map(drop)
}

/// The first usable default folder. If there is none, each request that needs a file reports the error.
fn default_folder() -> PathBuf {
    let mut folders = FOLDERS.into_iter().map(Path::new);
    let usable = folders.find(|folder| try_folder(folder).is_ok());
    usable.unwrap_or(Path::new(FOLDERS[0])).to_path_buf()
}
