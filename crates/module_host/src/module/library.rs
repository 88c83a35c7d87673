//! Modules in shared libraries. A changed library file is loaded while the server runs, in addition to the old version.
//! New calls use the new version; the old version is closed after its last call.
//!
//! `library/version.rs` opens and checks the libraries.

mod version;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use lowroad_engine::file_watch::{self, FileVersion};
use lowroad_file_stamp::FileStamp;
use lowroad_handler::HandlerFailure;
use lowroad_module::MessageLevel;

use super::ModuleBackend;
use super::call::HostedCall;
use super::counts::increment;
use super::identity::ModuleIdentity;
use super::native_worker::{NativeCall, NativeWorker};
use crate::lock::lock;
use version::{LibraryInstance, LoadedLibrary};

/// A library, started once per worker.
pub struct LibraryCode {
    path: PathBuf,
    identity: Arc<ModuleIdentity>,
    /// The newest version's state, for each worker.
    workers: Box<[Mutex<Arc<NativeWorker<LibraryInstance>>>]>,
    version: Mutex<FileVersion>,
    /// States of older versions that calls may still use. Because of this list, the watcher thread stops and closes old
    /// states; a worker never does.
    retired: Mutex<Vec<Arc<NativeWorker<LibraryInstance>>>>,
}

impl LibraryCode {
    /// Loads a library, starts it for this number of workers, and starts a thread that watches for new versions.
    ///
    /// # Errors
    /// A message for the operator: the problem with the file, and its remedy.
    pub fn open(
        path: &Path,
        identity: &Arc<ModuleIdentity>,
        workers: usize,
    ) -> Result<Arc<LibraryCode>, String> {
        let code = Arc::new(LibraryCode::load(path, identity, workers)?);
        let check = |code: &Arc<LibraryCode>| {
            code.check_for_changes();
            true
        };
        // The watcher has a weak reference: it ends when nothing else uses the code.
        file_watch::watch("library-watcher", Arc::downgrade(&code), check).map_err(|error| {
            format!("can't start a thread to watch {}: {error}", path.display())
        })?;
        Ok(code)
    }

    /// Like [`LibraryCode::open`], but without the thread: only [`LibraryCode::reload`] checks for new versions.
    ///
    /// # Errors
    /// Those of [`LibraryCode::open`].
    pub fn load(
        path: &Path,
        identity: &Arc<ModuleIdentity>,
        workers: usize,
    ) -> Result<LibraryCode, String> {
        let (stamp, instances) = start(path, identity, workers)?;
        Ok(LibraryCode {
            path: path.to_path_buf(),
            identity: identity.clone(),
            workers: instances.into_iter().map(Mutex::new).collect(),
            version: Mutex::new(FileVersion::new(stamp)),
            retired: Mutex::default(),
        })
    }

    /// Reloads the file if it has changed, and returns whether it has. Takes long: must not be called on a worker.
    ///
    /// # Errors
    /// The reason that the new file was rejected; the previous version stays in use.
    pub fn reload(&self) -> Result<bool, String> {
        let mut version = lock(&self.version);
        let found = stamp(&self.path)?;
        if version.is_in_use(found) {
            return Ok(false);
        }
        // The stamp is recorded before the attempt: an invalid file is not loaded again until it changes.
        *version = FileVersion::new(found);
        let counts = &self.identity.counts;
        // The new version is loaded in addition to the old version: if it does not start, nothing changes.
        let start_result = start(&self.path, &self.identity, self.workers.len());
        let (stamp, instances) = start_result.inspect_err(|_| increment(&counts.rejected))?;
        *version = FileVersion::new(stamp);
        for (worker, instance) in self.workers.iter().zip(instances) {
            let old = std::mem::replace(&mut *lock(worker), instance);
            // Calls may still use memory in the old state; it is closed after the last of these calls.
            lock(&self.retired).push(old);
        }
        increment(&counts.reloads);
        Ok(true)
    }

    /// Closes older versions that have no calls; returns the number of states that remain.
    pub fn close_retired(&self) -> usize {
        // Closing takes two steps: it runs code of the module, which must not happen under the lock.
        let (unused, remaining) = {
            let mut retired = lock(&self.retired);
            let all = std::mem::take(&mut *retired).into_iter();
            // A state that only this list refers to cannot get more calls.
            let (unused, remaining): (Vec<_>, Vec<_>) =
                all.partition(|state| Arc::strong_count(state) == 1);
            let count = remaining.len();
            *retired = remaining;
            (unused, count)
        };
        // The states are dropped without the lock, since stopping a module can take long.
        drop(unused);
        remaining
    }

    fn check_for_changes(&self) {
        self.close_retired();
        let found = FileStamp::from_path(&self.path).ok();
        if !lock(&self.version).has_settled(found) {
            return;
        }
        match self.reload() {
            Ok(false) => {}
            Ok(true) => self
                .identity
                .log(MessageLevel::Info, "a new version is in use"),
            Err(problem) => {
                let line = format!(
                    "the new version can't be loaded, so the previous one stays in use: {problem}"
                );
                self.identity.log(MessageLevel::Error, &line);
            }
        }
    }
}

impl ModuleBackend for LibraryCode {
    type CallInstance = NativeCall<LibraryInstance>;

    fn instance(
        &self,
        worker: usize,
        call: HostedCall,
    ) -> Result<NativeCall<LibraryInstance>, HandlerFailure> {
        let worker = lock(&self.workers[worker % self.workers.len()]).clone();
        Ok(NativeCall::new(worker, call))
    }
}

type LibraryWorkers = Vec<Arc<NativeWorker<LibraryInstance>>>;

fn start(
    path: &Path,
    identity: &Arc<ModuleIdentity>,
    workers: usize,
) -> Result<(FileStamp, LibraryWorkers), String> {
    // The stamp is taken before the file is read: the next check notices a change in between.
    let stamp = stamp(path)?;
    let library = LoadedLibrary::open(path)
        .map_err(|problem| format!("module {}: {}: {problem}", identity.name, path.display()))?;
    let library = Arc::new(library);
    let start = |worker| {
        let instance = LibraryInstance::new(&library, identity, worker)?;
        Ok(Arc::new(NativeWorker::new(instance)))
    };
    // The library is started for all workers or for none, so that no request meets a partially started version.
    let instances = (0..workers).map(start).collect::<Result<_, String>>()?;
    Ok((stamp, instances))
}

fn stamp(path: &Path) -> Result<FileStamp, String> {
    FileStamp::from_path(path).map_err(|error| format!("{}: {error}", path.display()))
}
