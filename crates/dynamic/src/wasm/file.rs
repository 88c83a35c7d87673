//! A module's file: its newest version that is good, and the thread that looks for newer ones. What
//! has begun with one version ends with it. Knows nothing of requests.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::thread;
use std::time::Duration;

use lowroad_module::Level;

use super::code::Code;
use super::counts::one;
use super::runtime::Runtime;
use crate::module::Identity;

/// The time between two looks at the files in milliseconds.
const LOOK_MS: u64 = 500;
/// The longest file in bytes.
const FILE_LEN_MAX: u64 = 64 << 20;

/// A file and what was made of it.
pub(super) struct File {
    path: PathBuf,
    memory_len_max: u64,
    /// Who opened it first: its lines go there.
    identity: Arc<Identity>,
    code: RwLock<Arc<Code>>,
    seen: Mutex<Stamp>,
}

/// What differs between two versions of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    len: u64,
    modified: (i64, i64),
}

impl Stamp {
    fn of(found: &Metadata) -> Stamp {
        Stamp {
            inode: found.ino(),
            len: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
        }
    }
}

/// The files that are watched.
#[derive(Default)]
pub(super) struct Files(Mutex<Vec<Weak<File>>>);

impl File {
    /// Compiles a file, or takes what was compiled before if it is still the same: a server that
    /// reads its configuration again compiles nothing anew.
    ///
    /// # Errors
    /// A text for the author, beginning with the path.
    pub(super) fn open(
        runtime: &Arc<Runtime>,
        path: &Path,
        memory_len_max: u64,
        identity: &Arc<Identity>,
    ) -> Result<Arc<File>, String> {
        let (bytes, stamp) = read(path)?;
        if let Some(known) = runtime.files.find(path, memory_len_max, stamp) {
            return Ok(known);
        }
        let code = compile(runtime, path, &bytes, memory_len_max)?;
        let file = Arc::new(File {
            path: path.into(),
            memory_len_max,
            identity: identity.clone(),
            code: RwLock::new(Arc::new(code)),
            seen: Mutex::new(stamp),
        });
        runtime.files.add(runtime, &file)?;
        one(&runtime.counts.compiled);
        Ok(file)
    }

    /// The newest version that is good.
    pub(super) fn code(&self) -> Arc<Code> {
        self.code
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Takes a newer version if there is one. One that is no good is reported once, and the one
    /// before it stays. A file that is gone changes nothing: it may be about to be replaced.
    pub(super) fn look(&self, runtime: &Arc<Runtime>) {
        let Ok(found) = fs::metadata(&self.path) else {
            return;
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == Stamp::of(&found) {
            return;
        }
        let made = read(&self.path).and_then(|(bytes, stamp)| {
            *seen = stamp;
            compile(runtime, &self.path, &bytes, self.memory_len_max)
        });
        match made {
            Ok(code) => {
                *self.code.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(code);
                one(&runtime.counts.compiled);
                self.identity.log(
                    Level::Info,
                    &format!("{}: a new version is used", self.path.display()),
                );
            }
            Err(problem) => {
                one(&runtime.counts.rejected);
                self.identity.log(
                    Level::Error,
                    &format!("{problem}; the version before it stays"),
                );
            }
        }
    }
}

impl Files {
    fn find(&self, path: &Path, memory_len_max: u64, stamp: Stamp) -> Option<Arc<File>> {
        let files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files.iter().filter_map(Weak::upgrade).find(|file| {
            file.path == path
                && file.memory_len_max == memory_len_max
                && *file.seen.lock().unwrap_or_else(PoisonError::into_inner) == stamp
        })
    }

    /// Adds a file; the first starts the thread.
    fn add(&self, runtime: &Arc<Runtime>, file: &Arc<File>) -> Result<(), String> {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|known| known.strong_count() > 0);
        if files.is_empty() {
            let runtime = Arc::downgrade(runtime);
            thread::Builder::new()
                .name("wasm-reload".into())
                .spawn(move || watch(&runtime))
                .map_err(|error| format!("a thread that looks for new modules: {error}"))?;
        }
        files.push(Arc::downgrade(file));
        Ok(())
    }

    /// The files that somebody uses; the thread ends when there are none.
    fn used(&self) -> Option<Vec<Arc<File>>> {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|known| known.strong_count() > 0);
        (!files.is_empty()).then(|| files.iter().filter_map(Weak::upgrade).collect())
    }
}

fn watch(runtime: &Weak<Runtime>) {
    loop {
        thread::sleep(Duration::from_millis(LOOK_MS));
        let Some(runtime) = runtime.upgrade() else {
            return;
        };
        let Some(files) = runtime.files.used() else {
            return;
        };
        for file in files {
            file.look(&runtime);
        }
    }
}

fn read(path: &Path) -> Result<(Vec<u8>, Stamp), String> {
    let told = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    // The stamp is taken first: what is written after it differs from it, and is seen next time.
    let found = fs::metadata(path).map_err(|error| told(&error))?;
    if found.len() > FILE_LEN_MAX {
        return Err(told(&format_args!("longer than {FILE_LEN_MAX} bytes")));
    }
    let bytes = fs::read(path).map_err(|error| told(&error))?;
    Ok((bytes, Stamp::of(&found)))
}

fn compile(
    runtime: &Arc<Runtime>,
    path: &Path,
    bytes: &[u8],
    memory_len_max: u64,
) -> Result<Code, String> {
    Code::new(runtime, bytes, memory_len_max).map_err(|what| format!("{}: {what}", path.display()))
}
