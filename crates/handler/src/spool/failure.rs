//! Spool failures: the status for the client, and the text for the operator.

use std::io;

use lowroad_http::status::StatusCode;
use lowroad_limits::RefusalReason;
use rustix::io::Errno;

use super::SpoolLimits;
use crate::HandlerFailure;

/// Why a body can't be spooled.
#[derive(Debug)]
pub enum SpoolFailure {
    /// All files together have reached their limit of bytes.
    Bytes,
    /// The maximum number of files is reached.
    Files,
    /// The file system returned an error.
    Failed(io::Error),
}

impl SpoolFailure {
    /// The failure of a request if its body cannot be spooled.
    pub fn failure(&self, spools: &SpoolLimits) -> HandlerFailure {
        let status = match self {
            SpoolFailure::Bytes | SpoolFailure::Files => StatusCode::SERVICE_UNAVAILABLE,
            SpoolFailure::Failed(error) => match Errno::from_io_error(error) {
                // Full disk, quota or file size limit: there is no room for the client's body.
                Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => StatusCode::INSUFFICIENT_STORAGE,
                Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::INTERNAL_ERROR,
            },
        };
        let reason = match self {
            SpoolFailure::Bytes | SpoolFailure::Files => Some(RefusalReason::TempFiles),
            SpoolFailure::Failed(_) => None,
        };
        HandlerFailure {
            reason,
            ..HandlerFailure::new(status, self.detail(spools))
        }
    }

    /// The text for the operator.
    pub fn detail(&self, spools: &SpoolLimits) -> String {
        let folder = spools.folder.display();
        match self {
            SpoolFailure::Bytes => format!(
                "buffered bodies take {} bytes in files, the limit temp_total_max; raise it if \
                 {folder} has room",
                spools.limits.temp_total_len_max
            ),
            SpoolFailure::Files => format!(
                "{} bodies are buffered in files, a quarter of the file descriptors; raise fd_limit",
                spools.account.files.max()
            ),
            SpoolFailure::Failed(error) => format!("can't use a file in {folder}: {error}"),
        }
    }
}
