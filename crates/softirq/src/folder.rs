//! Where a level is pinned: `/sys/fs/bpf/lowroad/v<layout>/<network namespace>-<first port>`.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{StatFs, statfs};
use rustix::mount::{MountFlags, mount};

use crate::error::Error;
use crate::layout::LAYOUT_VERSION;

const MOUNT: &str = "/sys/fs/bpf";
/// `BPF_FS_MAGIC` of linux/magic.h.
const BPF_FS: u64 = 0xcafe_4a11;
/// Of the folders; the kernel gives pins 0600.
const MODE: u32 = 0o700;

/// The folder of the level that answers on this port, in the network namespace of this thread.
///
/// # Errors
/// When the thread's namespace can't be found out.
pub fn of_port(port: u16) -> Result<PathBuf, Error> {
    let namespace = fs::metadata("/proc/thread-self/ns/net")
        .map_err(Error::system("the network namespace"))?
        .ino();
    Ok(base().join(format!("{namespace}-{port}")))
}

/// All folders of levels in the network namespace of this thread.
///
/// # Errors
/// When the thread's namespace can't be found out, or the process may not look: that is root's.
pub fn all() -> Result<Vec<PathBuf>, Error> {
    let begin = of_port(0)?;
    let name = begin.file_name().expect("it has one").to_string_lossy();
    let begin = name.trim_end_matches('0').to_owned();
    let entries = match fs::read_dir(base()) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(Error::system(base().display().to_string())(error));
        }
        entries => entries.into_iter().flatten(),
    };
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&begin))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    Ok(found)
}

fn base() -> PathBuf {
    Path::new(MOUNT)
        .join("lowroad")
        .join(format!("v{LAYOUT_VERSION}"))
}

/// Mounts the file system for pins where nobody has.
///
/// # Errors
/// When the process may not (CAP_SYS_ADMIN).
pub fn mount_pins() -> Result<(), Error> {
    if is_mounted() {
        return Ok(());
    }
    mount("bpf", MOUNT, "bpf", MountFlags::empty(), None)
        .map_err(|error| Error::system(format!("mounting {MOUNT}"))(error.into()))
}

/// Makes the folder, for root alone, and mounts the file system for it where nobody has.
///
/// # Errors
/// When the process may not.
pub fn make(folder: &Path) -> Result<(), Error> {
    mount_pins()?;
    let failed = || Error::system(folder.display().to_string());
    let private = fs::Permissions::from_mode(MODE);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(MODE)
        .create(folder)
        .map_err(failed())?;
    // What an earlier version has made was for all to see.
    for made in folder
        .ancestors()
        .take_while(|made| *made != Path::new(MOUNT))
    {
        fs::set_permissions(made, private.clone()).map_err(failed())?;
    }
    Ok(())
}

/// Whether the file system for pins is there.
#[must_use]
pub fn is_mounted() -> bool {
    statfs(MOUNT).is_ok_and(|StatFs { f_type, .. }| u64::try_from(f_type) == Ok(BPF_FS))
}

/// Removes a level: its links first, so that nothing answers any more.
///
/// # Errors
/// When something can't be removed.
pub fn remove(folder: &Path) -> Result<(), Error> {
    let failed = |error| Error::system(folder.display().to_string())(error);
    let mut maps = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_link = crate::links::PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix));
        match is_link {
            true => fs::remove_file(&path).map_err(failed)?,
            false => maps.push(path),
        }
    }
    for path in maps {
        fs::remove_file(path).map_err(failed)?;
    }
    match fs::remove_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
        _ => Ok(()),
    }
}
