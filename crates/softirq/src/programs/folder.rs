//! The folders in which levels are pinned: `/sys/fs/bpf/lowroad/v<layout>/<network namespace>-<first port>`.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, StatFs, flock, statfs};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::error::LevelError;
use crate::layout::LAYOUT_VERSION;
use crate::programs::links::PREFIXES;

const MOUNT: &str = "/sys/fs/bpf";
/// `BPF_FS_MAGIC` of linux/magic.h.
const BPF_FS: u64 = 0xcafe_4a11;
/// The source (device name) of Lowroad's own mount, by which `unmount_pins` recognizes the mount.
const SOURCE: &str = "lowroad";
/// Mode of the folders; the kernel gives pinned objects 0600.
const MODE: u32 = 0o700;

/// The folder of the level on this port, in this thread's network namespace.
///
/// # Errors
/// If the thread's namespace can't be determined.
pub fn port_folder(port: u16) -> Result<PathBuf, LevelError> {
    let namespace = fs::metadata("/proc/thread-self/ns/net")
        .map_err(LevelError::system("the network namespace"))?
        .ino();
    Ok(base().join(format!("{namespace}-{port}")))
}

/// The folders of all levels in this thread's network namespace.
///
/// # Errors
/// If the namespace can't be determined, or the process lacks permission: only root may read the folders.
pub fn all() -> Result<Vec<PathBuf>, LevelError> {
    let first_folder = port_folder(0)?;
    let name = first_folder
        .file_name()
        .expect("it has one")
        .to_string_lossy();
    // The name without the port is the prefix of all levels in this namespace.
    let prefix = name.trim_end_matches('0').to_owned();
    let entries = match fs::read_dir(base()) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(LevelError::system(base().display().to_string())(error));
        }
        entries => entries.into_iter().flatten(),
    };
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
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

/// Mounts bpffs unless it is mounted.
///
/// # Errors
/// If the process lacks CAP_SYS_ADMIN.
pub fn mount_pins() -> Result<(), LevelError> {
    if is_mounted() {
        return Ok(());
    }
    mount(SOURCE, MOUNT, "bpf", MountFlags::empty(), None)
        .map_err(|error| LevelError::system(format!("mounting {MOUNT}"))(error.into()))
}

/// Locks the mount: while the returned file is open, no other Lowroad process unmounts bpffs. To be held from before
/// the mount until it contains a folder.
///
/// # Errors
/// If the parent folder can't be opened.
pub fn lock_mount() -> Result<fs::File, LevelError> {
    let parent = Path::new(MOUNT).parent().expect("it has one");
    let failed = || LevelError::system(parent.display().to_string());
    let file = fs::File::open(parent).map_err(failed())?;
    // The kernel releases the lock when the process ends.
    flock(&file, FlockOperation::LockExclusive).map_err(|error| failed()(error.into()))?;
    Ok(file)
}

/// Unmounts Lowroad's own mount if it is empty. Does nothing if the mount is busy, or if the process lacks permission.
pub fn unmount_pins() {
    let Ok(_locked) = lock_mount() else { return };
    let mounts = fs::read_to_string("/proc/thread-self/mountinfo").unwrap_or_default();
    if is_lowroad_mount(&mounts) && is_unused() {
        let _ = unmount(MOUNT, UnmountFlags::empty());
    }
}

/// Whether the mount contains only the files that the kernel creates in each bpffs.
fn is_unused() -> bool {
    let is_kernel_file = |entry: io::Result<fs::DirEntry>| {
        entry.is_ok_and(|entry| {
            ["maps.debug", "progs.debug"]
                .iter()
                .any(|name| entry.file_name() == *name)
        })
    };
    fs::read_dir(MOUNT).is_ok_and(|mut entries| entries.all(is_kernel_file))
}

/// Whether the topmost mount at this path is Lowroad's; `mounts` is the text of mountinfo.
fn is_lowroad_mount(mounts: &str) -> bool {
    let mut kinds = mounts.lines().filter_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let is_mount = mount.split(' ').nth(4)? == MOUNT;
        is_mount.then_some(kind)
    });
    let prefix = format!("bpf {SOURCE} ");
    kinds
        .next_back()
        .is_some_and(|kind| kind.starts_with(&prefix))
}

/// Explains why pinned objects would be invisible to other processes, and the remedy: this process has a private mount
/// namespace, and the objects disappear with it. `None` if the objects are visible, or if that can't be determined.
#[must_use]
pub fn pin_visibility_problem() -> Option<String> {
    let namespace = fs::metadata("/proc/thread-self/ns/mnt").ok()?;
    let (outermost, outermost_inode) = outermost_ancestor()?;
    if namespace.ino() == outermost_inode {
        return None;
    }
    // Even a separate mount namespace may share this mount.
    let outer_mount = fs::metadata(format!("/proc/{outermost}/root{MOUNT}")).ok()?;
    let is_shared =
        || fs::metadata(MOUNT).is_ok_and(|metadata| metadata.dev() == outer_mount.dev());
    if is_mounted() && is_shared() {
        return None;
    }
    let name = name_of_namespace().unwrap_or_else(|| "NAME".to_owned());
    Some(format!(
        "this process has its own mounts (from `ip netns exec`, or some settings of systemd \
         units): what it pins below {MOUNT} is invisible to other processes and ends with these \
         mounts. Enter only the network: with --netns {name}, or by nsenter \
         --net=/run/netns/{name}"
    ))
}

/// The outermost ancestor process with a readable mount namespace, and the inode of that namespace.
fn outermost_ancestor() -> Option<(u32, u64)> {
    let mut found = None;
    let mut pid = std::process::id();
    while let Some(parent) = parent_of(pid) {
        if let Ok(mounts) = fs::metadata(format!("/proc/{parent}/ns/mnt")) {
            found = Some((parent, mounts.ino()));
        }
        pid = parent;
    }
    found
}

/// The parent of a process. `/proc/PID/stat` contains the number, the name in parentheses, the state, and the parent.
fn parent_of(pid: u32) -> Option<u32> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = line.rsplit_once(") ")?;
    let parent = fields.split(' ').nth(1)?.parse().ok()?;
    (parent != 0).then_some(parent)
}

/// The name that `ip netns` uses for this thread's network namespace.
fn name_of_namespace() -> Option<String> {
    let namespace = fs::metadata("/proc/thread-self/ns/net").ok()?;
    let mut names = fs::read_dir("/run/netns").ok()?.flatten();
    let is_current = |entry: &fs::DirEntry| {
        fs::metadata(entry.path()).is_ok_and(|metadata| metadata.ino() == namespace.ino())
    };
    let found = names.find(is_current)?;
    Some(found.file_name().to_string_lossy().into_owned())
}

/// Creates the folder, accessible to root only, and mounts bpffs if necessary.
///
/// # Errors
/// If the process lacks permission.
pub fn create(folder: &Path) -> Result<(), LevelError> {
    mount_pins()?;
    let failed = || LevelError::system(folder.display().to_string());
    let private = fs::Permissions::from_mode(MODE);
    let create_folder = || {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(MODE)
            .create(folder)
    };
    // Tried twice, since a concurrent detach of another level may remove empty parent folders.
    create_folder()
        .or_else(|_| create_folder())
        .map_err(failed())?;
    // Earlier versions made the folders readable for all users.
    for ancestor in folder
        .ancestors()
        .take_while(|ancestor| *ancestor != Path::new(MOUNT))
    {
        fs::set_permissions(ancestor, private.clone()).map_err(failed())?;
    }
    Ok(())
}

/// Whether bpffs is mounted.
#[must_use]
pub fn is_mounted() -> bool {
    statfs(MOUNT).is_ok_and(|StatFs { f_type, .. }| u64::try_from(f_type) == Ok(BPF_FS))
}

/// Removes a level: first its links, so that the programs are detached before their maps disappear.
///
/// # Errors
/// If an entry can't be removed.
pub fn remove(folder: &Path) -> Result<(), LevelError> {
    let failed = |error| LevelError::system(folder.display().to_string())(error);
    let mut maps = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_link = PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        match is_link {
            true => fs::remove_file(&path).map_err(failed)?,
            false => maps.push(path),
        }
    }
    for path in maps {
        fs::remove_file(path).map_err(failed)?;
    }
    // Another process may remove the folder at the same time.
    match fs::remove_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    // Removes the parent folders, too, if they are empty.
    let ancestors = folder.ancestors().skip(1);
    for folder in ancestors.take_while(|ancestor| *ancestor != Path::new(MOUNT)) {
        if fs::remove_dir(folder).is_err() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_process_is_found() {
        let own = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
        let found = parent_of(std::process::id());
        assert_eq!(found.map(i64::from), own.map(i64::from));
        assert_eq!(pin_visibility_problem(), None);
    }

    #[test]
    fn topmost_mount_is_recognized_by_its_source() {
        let line = |at: &str, source: &str| {
            format!("30 23 0:31 / {at} rw,relatime shared:9 - bpf {source} rw,mode=700\n")
        };
        let (ours, theirs) = (line(MOUNT, SOURCE), line(MOUNT, "bpf"));
        assert!(is_lowroad_mount(&ours));
        assert!(!is_lowroad_mount(&theirs));
        assert!(!is_lowroad_mount(&format!("{ours}{theirs}")));
        assert!(is_lowroad_mount(&format!("{theirs}{ours}")));
        assert!(!is_lowroad_mount(&line("/mnt", SOURCE)));
        assert!(!is_lowroad_mount(""));
    }
}
