//! One version of a library in memory, and its state for one worker.
//!
//! The file is copied into memory and opened from there. So overwriting the file does not change running code, and the
//! dynamic loader does not mistake a new version for the old version, as it does if their paths are equal. `libloading`
//! opens the library. Its types do not prevent the copied function pointers from outliving the library; the order of
//! the fields does.

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use lowroad_module::abi::{ABI, CallPointer, HostTable};
use lowroad_module::{CallEvent, CallStep};

use super::super::call::HostedCall;
use super::super::identity::{ModuleIdentity, StartContext};
use super::super::native_worker::WorkerState;
use super::super::table::{CallPointee, TABLE};

/// The maximum size of a library in bytes.
const LIBRARY_LEN_MAX: u64 = 256 << 20;

type AbiFn = unsafe extern "C" fn() -> u32;
type LoadFn = unsafe extern "C" fn(*const HostTable) -> i32;
type StartFn = unsafe extern "C" fn(CallPointer) -> *mut c_void;
type HandleFn = unsafe extern "C" fn(*mut c_void, CallPointer, i32, u32) -> i32;
type StopFn = unsafe extern "C" fn(*mut c_void);

/// A library that was loaded into memory.
pub struct LoadedLibrary {
    start: Option<StartFn>,
    handle: HandleFn,
    stop: Option<StopFn>,
    /// Fields are dropped in order: the library is dropped after everything that may run its code.
    _library: Library,
    /// The loader identifies the library by the path of this descriptor, so the descriptor must stay open as long as
    /// the library.
    _memory: OwnedFd,
}

impl LoadedLibrary {
    /// Copies and opens a file, and checks that it is a module of this interface version.
    pub fn open(path: &Path) -> Result<LoadedLibrary, String> {
        let memory = copy(path)?;
        let name = format!("/proc/self/fd/{}", memory.as_raw_fd());
        // SAFETY: this runs the initializers of a library that the operator has configured as a module. RTLD_NOW
        // reports missing symbols here instead of at the first function call. RTLD_LOCAL hides the symbols from other
        // modules.
        let library = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) };
        let library = library.map_err(|error| format!("not a usable shared library: {error}"))?;
        check(&library)?;
        // SAFETY: the types are those of lowroad.h, whose version `check` has verified; the pointers live in
        // `LoadedLibrary` next to the library.
        let (start, handle, stop) = unsafe {
            (
                library.get(b"lowroad_start\0").ok().map(|found| *found),
                library.get(b"lowroad_handle\0").map(|found| *found),
                library.get(b"lowroad_stop\0").ok().map(|found| *found),
            )
        };
        Ok(LoadedLibrary {
            start,
            handle: handle.map_err(|_| "it exports no lowroad_handle; see docs/modules.md")?,
            stop,
            _library: library,
            _memory: memory,
        })
    }
}

/// Checks the interface version, then passes the table of the server's functions to the library.
fn check(library: &Library) -> Result<(), String> {
    // SAFETY: these two functions have the same type in every version of lowroad.h.
    let (abi, load) = unsafe {
        (
            library.get::<AbiFn>(b"lowroad_abi\0").map(|found| *found),
            library.get::<LoadFn>(b"lowroad_load\0").map(|found| *found),
        )
    };
    let (Ok(abi), Ok(load)) = (abi, load) else {
        return Err(
            "not a module: it exports no lowroad_abi or lowroad_load; include lowroad.h, or use \
             lowroad_module::export!"
                .to_string(),
        );
    };
    // SAFETY: in every version, the function has this type.
    let found = unsafe { abi() };
    // SAFETY: the table is static and begins with its version and size.
    if found != ABI || unsafe { load(&TABLE) } != 0 {
        return Err(format!(
            "it was built for version {found} of the module interface, but this server has \
             version {ABI}; rebuild it with this server's lowroad.h or lowroad-module"
        ));
    }
    Ok(())
}

/// Copies a file into an anonymous memory file.
fn copy(path: &Path) -> Result<OwnedFd, String> {
    let text = |error: std::io::Error| error.to_string();
    // The file is opened once, so that length and content are those of the same file.
    let mut source = File::open(path).map_err(text)?;
    let len = source.metadata().map_err(text)?.len();
    // This limits the memory that a wrong path in the configuration can use.
    if len > LIBRARY_LEN_MAX {
        return Err(format!(
            "it has {len} bytes; at most {LIBRARY_LEN_MAX} are allowed"
        ));
    }
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let memory = rustix::fs::memfd_create("lowroad-module", flags)
        .map_err(|error| format!("no memory for a copy: {error}"))?;
    let mut target = File::from(memory);
    let copied = std::io::copy(&mut source, &mut target).map_err(text)?;
    // The file may have been copied while a linker or an upload was still writing it.
    if !is_whole(&target, copied) {
        return Err("an incomplete ELF file; write it to another path and rename it".to_string());
    }
    Ok(target.into())
}

/// Whether the file is at least as long as its ELF header requires; the section header table is at the end. Accessing a
/// truncated mapping would kill the server with SIGBUS.
fn is_whole(file: &File, len: u64) -> bool {
    use std::os::unix::fs::FileExt;
    let mut head = [0; 64];
    // Byte 4 of e_ident is the class: 2 means 64-bit.
    if file.read_exact_at(&mut head, 0).is_err() || head[..5] != *b"\x7fELF\x02" {
        return false;
    }
    let number = |offset: usize, len: usize| {
        let mut bytes = [0; 8];
        bytes[..len].copy_from_slice(&head[offset..offset + len]);
        u64::from_le_bytes(bytes)
    };
    // Linkers write the section headers at the end of a library.
    let (sections_offset, section_len, sections) = (number(40, 8), number(58, 2), number(60, 2));
    sections_offset
        .checked_add(section_len * sections)
        .is_some_and(|end| end <= len)
}

/// A library that was started for one worker.
pub struct LibraryInstance {
    library: Arc<LoadedLibrary>,
    state: *mut c_void,
    identity: Arc<ModuleIdentity>,
}

// SAFETY: lowroad.h requires that a module's state can be used by different threads, one at a time. All other fields
// are `Send`.
unsafe impl Send for LibraryInstance {}

impl LibraryInstance {
    /// Starts the library for a worker.
    pub fn new(
        library: &Arc<LoadedLibrary>,
        identity: &Arc<ModuleIdentity>,
        worker: usize,
    ) -> Result<LibraryInstance, String> {
        let mut start_context = StartContext::new(identity.clone(), worker);
        // A module without `lowroad_start` has no state.
        let mut state = std::ptr::null_mut();
        if let Some(start) = library.start {
            // SAFETY: the pointer is valid during this function call; `library` keeps the code mapped.
            state = unsafe { start(CallPointee::new(&mut start_context).pointer()) };
            if state.is_null() {
                let name = &identity.name;
                return Err(format!(
                    "module {name} does not start: lowroad_start returned NULL; its log lines \
                     have the reason"
                ));
            }
        }
        Ok(LibraryInstance {
            library: library.clone(),
            state,
            identity: identity.clone(),
        })
    }
}

impl WorkerState for LibraryInstance {
    fn handle(&mut self, call: &mut HostedCall, event: CallEvent) -> CallStep {
        let (event, number) = event.to_numbers();
        let mut pointee = CallPointee::new(call);
        // SAFETY: `state` came from this library's `start`, and `self` is borrowed exclusively, so the state has no
        // other user. The pointer to the call is valid during this function call.
        let next = unsafe { (self.library.handle)(self.state, pointee.pointer(), event, number) };
        if !(-1..=1).contains(&next) {
            let line = format!("lowroad_handle returned {next}, which is not in enum lowroad_next");
            self.identity
                .log(lowroad_module::MessageLevel::Error, &line);
        }
        CallStep::from_number(next)
    }
}

impl Drop for LibraryInstance {
    fn drop(&mut self) {
        if let Some(stop) = self.library.stop {
            // SAFETY: `state` came from this library, and this is its last use.
            unsafe { stop(self.state) };
        }
    }
}
