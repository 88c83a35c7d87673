//! The file of a module: holds the newest valid version, and a thread watches for newer ones. A call ends with the
//! version that it began with. This module is independent of requests.
//!
//! The path may refer to anything, and the file may be read while it is written: all invalid content is rejected with a
//! reason.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::thread;

use lowroad_engine::file_watch::{self, FileVersion};
use lowroad_engine::panic_policy::contain;
use lowroad_file_stamp::FileStamp;
use lowroad_module::MessageLevel;

use super::code::CompiledWasm;
use super::counts::increment;
use super::runtime::WasmRuntime;
use crate::lock::lock;
use crate::module::ModuleIdentity;

/// The flag that keeps open(2) from blocking on a pipe without a writer.
const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits() as i32;
/// The maximum size of a file in bytes.
const FILE_LEN_MAX: u64 = 64 << 20;

/// A file and its compiled code.
pub(super) struct CodeFile {
    path: PathBuf,
    memory_len_max: u64,
    /// The identity of the first module that opened the file; messages about the file go to its log.
    identity: Arc<ModuleIdentity>,
    code: RwLock<Arc<CompiledWasm>>,
    version: Mutex<FileVersion>,
}

/// The files that are watched.
#[derive(Default)]
pub(super) struct CodeFiles(Mutex<Vec<Weak<CodeFile>>>);

impl CodeFile {
    /// Compiles a file; if it was compiled before and is unchanged, reuses the code, so that a reload of the
    /// configuration does not recompile.
    ///
    /// # Errors
    /// A message for the author of the module, beginning with the path.
    pub(super) fn open(
        runtime: &Arc<WasmRuntime>,
        path: &Path,
        memory_len_max: u64,
        identity: &Arc<ModuleIdentity>,
    ) -> Result<Arc<CodeFile>, String> {
        let (bytes, stamp) = read(path)?;
        // The code is reused if path, limit and stamp are equal.
        if let Some(existing) = runtime.files.find(path, memory_len_max, stamp) {
            return Ok(existing);
        }
        let code = compile(runtime, path, bytes, memory_len_max)?;
        let file = Arc::new(CodeFile {
            path: path.into(),
            memory_len_max,
            identity: identity.clone(),
            code: RwLock::new(Arc::new(code)),
            version: Mutex::new(FileVersion::new(stamp)),
        });
        runtime.files.add(runtime, &file)?;
        increment(&runtime.counts.compiled);
        Ok(file)
    }

    /// The newest valid version.
    pub(super) fn code(&self) -> Arc<CompiledWasm> {
        self.code
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Loads a newer version, once its stamp is equal in two successive polls. An invalid version is reported once, and
    /// the previous version stays in use. A missing file changes nothing, since it may be about to be replaced.
    pub(super) fn check_for_changes(&self, runtime: &Arc<WasmRuntime>) {
        let found = FileStamp::from_path(&self.path).ok();
        let mut version = lock(&self.version);
        if !version.has_settled(found) {
            return;
        }
        // The stamp is recorded before the attempt: an invalid file is not loaded again until it changes.
        if let Some(found) = found {
            *version = FileVersion::new(found);
        }
        // `version` stays locked, so that two polls cannot compile the same file.
        let result = read(&self.path).and_then(|(bytes, stamp)| {
            *version = FileVersion::new(stamp);
            compile(runtime, &self.path, bytes, self.memory_len_max)
        });
        match result {
            Ok(code) => {
                *self.code.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(code);
                increment(&runtime.counts.compiled);
                self.identity.log(
                    MessageLevel::Info,
                    &format!("{}: a new version is in use", self.path.display()),
                );
            }
            Err(problem) => {
                increment(&runtime.counts.rejected);
                self.identity.log(
                    MessageLevel::Error,
                    &format!("{problem}; the previous version stays in use"),
                );
            }
        }
    }
}

impl CodeFiles {
    /// The file, if its compiled code can be reused.
    fn find(&self, path: &Path, memory_len_max: u64, stamp: FileStamp) -> Option<Arc<CodeFile>> {
        let files = lock(&self.0);
        files.iter().filter_map(Weak::upgrade).find(|file| {
            file.path == path
                && file.memory_len_max == memory_len_max
                && lock(&file.version).is_in_use(stamp)
        })
    }

    /// Adds a file. The first file starts the thread.
    fn add(&self, runtime: &Arc<WasmRuntime>, file: &Arc<CodeFile>) -> Result<(), String> {
        let mut files = lock(&self.0);
        files.retain(|entry| entry.strong_count() > 0);
        // The thread ends when there are no files left; the next file starts another thread.
        if files.is_empty() {
            file_watch::watch("wasm-reload", Arc::downgrade(runtime), check_all)
                .map_err(|error| format!("can't start a thread to watch modules: {error}"))?;
        }
        files.push(Arc::downgrade(file));
        Ok(())
    }

    /// The files in use; `None` ends the thread.
    fn files_in_use(&self) -> Option<Vec<Arc<CodeFile>>> {
        let mut files = lock(&self.0);
        files.retain(|entry| entry.strong_count() > 0);
        (!files.is_empty()).then(|| files.iter().filter_map(Weak::upgrade).collect())
    }
}

/// Polls all files; false if there are none left.
fn check_all(runtime: &Arc<WasmRuntime>) -> bool {
    let files = runtime.files.files_in_use();
    for file in files.iter().flatten() {
        // A panic for one file must not stop watching the others.
        contain(|| file.check_for_changes(runtime));
    }
    files.is_some()
}

/// The content of a file, and its stamp from before the read: if the file is written during the read, the next poll
/// notices the changed stamp.
fn read(path: &Path) -> Result<(Vec<u8>, FileStamp), String> {
    let describe = |problem: &dyn std::fmt::Display| format!("{}: {problem}", path.display());
    let too_long = || describe(&format_args!("longer than {FILE_LEN_MAX} bytes"));
    // `open` must not wait for the writer of a pipe.
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(NONBLOCK);
    let file = options.open(path).map_err(|error| describe(&error))?;
    let found = file.metadata().map_err(|error| describe(&error))?;
    // The open file is checked, since the path may be replaced in between.
    if !found.is_file() {
        return Err(describe(&"not a file"));
    }
    if found.len() > FILE_LEN_MAX {
        return Err(too_long());
    }
    let mut bytes = Vec::with_capacity(found.len() as usize); // at most FILE_LEN_MAX
    // One byte more than permitted is read, to detect a file that has grown.
    let read = file.take(FILE_LEN_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| describe(&error))?;
    // The file may have grown since its length was read.
    if bytes.len() as u64 > FILE_LEN_MAX {
        return Err(too_long());
    }
    Ok((bytes, FileStamp::from(&found)))
}

/// Compiles on a separate thread, so that a panic of the compiler only rejects the file.
fn compile(
    runtime: &Arc<WasmRuntime>,
    path: &Path,
    bytes: Vec<u8>,
    memory_len_max: u64,
) -> Result<CompiledWasm, String> {
    let describe = |problem: String| format!("{}: {problem}", path.display());
    let runtime = runtime.clone();
    let compiler = thread::Builder::new()
        .name("wasm-compiler".into())
        .spawn(move || CompiledWasm::new(&runtime, &bytes, memory_len_max))
        .map_err(|error| describe(format!("can't start a thread to compile it: {error}")))?;
    let compiled = compiler.join();
    compiled
        .unwrap_or_else(|_| Err("the compiler panicked".into()))
        .map_err(describe)
}

/// Checks that a file is a usable module.
///
/// # Errors
/// As for `CodeFile::open`.
pub(super) fn check(
    runtime: &Arc<WasmRuntime>,
    path: &Path,
    memory_len_max: u64,
) -> Result<(), String> {
    let (bytes, _) = read(path)?;
    compile(runtime, path, bytes, memory_len_max).map(drop)
}
