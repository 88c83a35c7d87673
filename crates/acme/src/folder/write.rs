//! Atomic file writes: after a crash or power loss, a file has either its complete new content or its old one.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes a temporary file, syncs it, and renames it to `path`. Creates missing folders below `root`, and `root`
/// itself. The file keeps its owner; a new file gets the owner of its folder.
pub(super) fn replace_file(root: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = parent(root, path)?;
    let temp_path = sibling_temp_path(path);
    let written = write(&folder, &temp_path, path, bytes);
    if written.is_err() {
        // Deletes a partial file, for example if the disk is full.
        let _ = fs::remove_file(&temp_path);
    }
    written
}

fn write(folder: &Path, temp_path: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        // `create_new` fails if another user has placed a symbolic link there.
        .create_new(true)
        .mode(0o600)
        .open(temp_path)?;
    let like = fs::metadata(path).or_else(|_| fs::metadata(folder))?;
    // The owner is changed before the content is written, so that a key is never readable by the wrong user.
    copy_owner(&file, &like)?;
    file.write_all(bytes)?;
    // The content must be on disk before the rename, and the rename before success is reported.
    file.sync_all()?;
    fs::rename(temp_path, path)?;
    File::open(folder)?.sync_all()
}

/// Opens a lock file; creates it if it is missing. Its content is never written.
pub(super) fn open_lock_file(root: &Path, path: &Path) -> io::Result<File> {
    let folder = parent(root, path)?;
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    // A daemon that runs as another user must be able to open its lock file.
    if file.metadata()?.uid() != fs::metadata(&folder)?.uid() {
        copy_owner(&file, &fs::metadata(&folder)?)?;
    }
    Ok(file)
}

/// A temporary path that no other process or thread uses.
fn sibling_temp_path(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let extension = format!("{}-{count}.new", std::process::id());
    path.with_extension(extension)
}

/// The folder of a file. Missing ancestors are created.
fn parent(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let folder = path.parent().unwrap_or(root);
    let mut missing: Vec<&Path> = Vec::new();
    for ancestor in folder.ancestors() {
        if ancestor.exists() || ancestor.as_os_str().is_empty() {
            break;
        }
        missing.push(ancestor);
    }
    for folder in missing.into_iter().rev() {
        match DirBuilder::new().mode(0o700).create(folder) {
            // Another process created it at the same time, and sets its permissions.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            created => created?,
        }
        let file = File::open(folder)?;
        if let Some(above) = folder.parent().filter(|_| folder != root) {
            copy_owner(&file, &fs::metadata(above)?)?;
        }
        // The umask reduces the mode passed to mkdir(2); this sets it exactly.
        file.set_permissions(Permissions::from_mode(0o700))?;
    }
    Ok(folder.into())
}

/// Copies the owner from `like`; without the privilege for it, the file keeps its owner.
fn copy_owner(file: &File, like: &Metadata) -> io::Result<()> {
    let metadata = file.metadata()?;
    if (metadata.uid(), metadata.gid()) == (like.uid(), like.gid()) {
        return Ok(());
    }
    match fchown(file, Some(like.uid()), Some(like.gid())) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        chowned => chowned,
    }
}
