//! Failures of spools, for clients and operators.

use std::io;

use lowroad_http::status::Status;
use rustix::io::Errno;

use super::Spools;
use crate::Failure;

/// The reason why a body cannot be spooled.
#[derive(Debug)]
pub enum Trouble {
    /// All files together have reached their limit of bytes.
    Bytes,
    /// The maximum of files is reached.
    Files,
    /// The file system's error.
    Failed(io::Error),
}

impl Trouble {
    /// The failure of a request whose body cannot be spooled.
    pub fn failure(&self, spools: &Spools) -> Failure {
        let status = match self {
            Trouble::Bytes | Trouble::Files => Status::SERVICE_UNAVAILABLE,
            Trouble::Failed(error) => match Errno::from_io_error(error) {
                // Full disk, quota or file size limit: the client's body does not fit.
                Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => Status::INSUFFICIENT_STORAGE,
                Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => Status::SERVICE_UNAVAILABLE,
                _ => Status::INTERNAL_ERROR,
            },
        };
        Failure::new(status, self.detail(spools))
    }

    /// The text for the operator.
    pub fn detail(&self, spools: &Spools) -> String {
        let folder = spools.folder.display();
        match self {
            Trouble::Bytes => format!(
                "the bodies that wait in files have {} bytes, which is temp_total_max; raise it if \
                 {folder} has room",
                spools.limits.temp_total_len_max
            ),
            Trouble::Files => format!(
                "{} bodies wait in files, which is a quarter of the file descriptors; raise fd_limit",
                spools.account.files.max()
            ),
            Trouble::Failed(error) => format!("can't use a file in {folder}: {error}"),
        }
    }
}
