//! A spool file: a temporary file without a name (O_TMPFILE). All operations that may wait for the disk run on separate
//! threads.

use std::fs::{File, Permissions};
use std::future::pending;
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use lowroad_engine::helper_pool::HelperPool;
use lowroad_limits::Permit;
use tokio::sync::oneshot;

use super::account::increment;
use super::{SpoolFailure, SpoolLimits};

/// The maximum length of one read.
const PIECE_LEN: u64 = 64 << 10;

/// A temporary file; only its owner may open it, and it is deleted when it is closed.
pub struct TempFile {
    spools: Arc<SpoolLimits>,
    _permit: Permit,
    /// `None` only while the value is dropped.
    file: Option<Arc<File>>,
    threads: HelperPool,
    /// The number of bytes written, which are reserved in the account.
    len: u64,
}

impl TempFile {
    /// Creates an empty file.
    ///
    /// # Errors
    /// [`SpoolFailure`]
    pub async fn open(spools: &Arc<SpoolLimits>) -> Result<TempFile, SpoolFailure> {
        let permit = spools
            .account
            .files
            .try_acquire()
            .ok_or(SpoolFailure::Files)?;
        let failed = |error| {
            increment(&spools.account.failed);
            SpoolFailure::Failed(error)
        };
        let threads = spools.account.threads().map_err(failed)?;
        let folder = spools.folder.clone();
        let created = on_disk(spools, &threads, move || create_unnamed(&folder)).await;
        Ok(TempFile {
            spools: spools.clone(),
            _permit: permit,
            file: Some(Arc::new(created.map_err(failed)?)),
            threads,
            len: 0,
        })
    }

    /// The length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Appends `bytes` to the file, and clears them. They are not cleared on an error.
    ///
    /// # Errors
    /// [`SpoolFailure`]
    pub async fn append(&mut self, bytes: &mut Vec<u8>) -> Result<(), SpoolFailure> {
        let spools = &self.spools;
        let added_len = bytes.len() as u64;
        // Reserved before the write, so that concurrent writes cannot exceed the total.
        if !spools
            .account
            .reserve_bytes(added_len, spools.limits.temp_total_len_max)
        {
            return Err(SpoolFailure::Bytes);
        }
        let at = self.len;
        self.len += added_len;
        // The buffer is moved to the thread and back, so that no bytes are lost on an error.
        let (file, data) = (self.file(), std::mem::take(bytes));
        let pending_write = on_disk(spools, &self.threads, move || {
            let result = file.write_all_at(&data, at);
            (data, result)
        });
        let (data, result) = pending_write.await;
        *bytes = data;
        let Err(error) = result else {
            bytes.clear();
            return Ok(());
        };
        // A partial write is overwritten by the next attempt.
        self.len = at;
        spools.account.release_bytes(added_len);
        increment(&spools.account.failed);
        Err(SpoolFailure::Failed(error))
    }

    /// Reads bytes from an offset on, at most `PIECE_LEN`.
    ///
    /// # Errors
    /// The file system's error.
    pub async fn read(&self, at: u64) -> io::Result<Bytes> {
        let spools = &self.spools;
        let len = (self.len - at).min(PIECE_LEN) as usize;
        let file = self.file();
        // Allocated on this thread, since the disk threads would keep freed memory in their heaps for a while.
        let mut piece = vec![0; len];
        let read = on_disk(spools, &self.threads, move || {
            file.read_exact_at(&mut piece, at).map(|()| piece)
        });
        let read = read.await;
        if read.is_err() {
            increment(&spools.account.failed);
        }
        read.map(Bytes::from)
    }

    fn file(&self) -> Arc<File> {
        self.file.clone().expect("there until it is dropped")
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let spools = &self.spools;
        spools.account.release_bytes(self.len);
        // A file becomes available, so the next shortage is reported again.
        spools.is_notice_sent.store(false, Relaxed);
        // Closing a long file takes time, since its blocks are freed, so it happens on a disk thread if a permit is
        // free.
        if let Some(turn) = spools.account.job_permits.try_acquire() {
            let file = self.file.take();
            let closed = self.threads.submit(move || {
                drop(file);
                drop(turn);
            });
            drop(closed);
        }
    }
}

/// Creates a file without a name that only its owner may open.
pub fn create_unnamed(folder: &Path) -> io::Result<File> {
    let file = tempfile::tempfile_in(folder)?;
    // Set regardless of the umask, since bodies may contain passwords.
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Runs a job on a disk thread.
async fn on_disk<T: Send + 'static>(
    spools: &SpoolLimits,
    threads: &HelperPool,
    job: impl FnOnce() -> T + Send + 'static,
) -> T {
    // The permits limit the queue of the disk threads; waiting jobs are served in order.
    let turn = spools.account.job_permits.acquire(0, 0).await;
    let (sender, done) = oneshot::channel();
    let submitted = threads.submit(move || {
        // Sending fails if the request was cancelled.
        let _ = sender.send(job());
        drop(turn);
    });
    // There are no more permits than slots in the queue, so the queue is never full.
    debug_assert!(submitted.is_ok());
    match done.await {
        Ok(done) => done,
        // A panic on a helper thread ends the process.
        Err(_) => pending().await,
    }
}
