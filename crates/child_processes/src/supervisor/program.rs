//! Searches the program of an application as execvp(3) does, without starting it.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use super::ApplicationSpec;

/// The search path without `PATH`: glibc's default.
const PATH_DEFAULT: &str = "/bin:/usr/bin";

/// Searches the program from the application's folder, in its `PATH`.
///
/// # Errors
/// The error with which the start would fail.
pub fn find(application: &ApplicationSpec) -> io::Result<()> {
    let folder = application.folder.as_deref().unwrap_or(Path::new("."));
    if !folder.metadata()?.is_dir() {
        return Err(Errno::NOTDIR.into());
    }
    // The child changes to this folder first.
    may_execute(folder)?;
    let program = &application.command[0];
    // execvp(3): a name with a slash is not searched.
    if program.contains('/') {
        return check_file(&folder.join(program));
    }
    let mut failure = io::Error::from(Errno::NOENT);
    for directory in std::env::split_paths(&search_path(application)) {
        match check_file(&folder.join(directory).join(program)) {
            Ok(()) => return Ok(()),
            // As in execvp(3): the search goes on, and this error is reported if nothing is found.
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
