//! Finds the program of an application as execvp(3) would, without starting it.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use super::ApplicationSpec;

/// The search path if `PATH` is not set: glibc's default.
const PATH_DEFAULT: &str = "/bin:/usr/bin";

/// Finds the program in the application's `PATH`, relative to its working directory.
///
/// # Errors
/// The error with which a start would fail.
pub fn find(application: &ApplicationSpec) -> io::Result<()> {
    let folder = application.folder.as_deref().unwrap_or(Path::new("."));
    if !folder.metadata()?.is_dir() {
        return Err(Errno::NOTDIR.into());
    }
    // The child changes to this folder before it executes the program.
    may_execute(folder)?;
    let program = &application.command[0];
    // execvp(3) does not search for a name that contains a slash.
    if program.contains('/') {
        return check_file(&folder.join(program));
    }
    let mut failure = io::Error::from(Errno::NOENT);
    for directory in std::env::split_paths(&search_path(application)) {
        match check_file(&folder.join(directory).join(program)) {
            Ok(()) => return Ok(()),
            // As in execvp(3): the search continues, and this error is reported if no program is found.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => failure = error,
            Err(_) => {}
        }
    }
    Err(failure)
}

fn search_path(application: &ApplicationSpec) -> OsString {
    let configured = application.env.iter().rfind(|(name, _)| name == "PATH");
    let configured = configured.map(|(_, value)| value.into());
    configured
        .or_else(|| std::env::var_os("PATH"))
        .unwrap_or_else(|| PATH_DEFAULT.into())
}

fn check_file(path: &Path) -> io::Result<()> {
    match path.metadata()?.is_file() {
        true => may_execute(path),
        false => Err(Errno::ACCESS.into()),
    }
}

fn may_execute(path: &Path) -> io::Result<()> {
    Ok(accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS)?)
}
