//! Atomic file writes: after a crash or power loss a file is complete or unchanged.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes a temporary file, syncs it, and renames it over `path`. Missing folders from `root` down are made. The file's
/// owner is kept; a new file gets the owner of its folder.
pub(super) fn replace_file(root: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = parent(root, path)?;
    let temp_path = beside(path);
    let written = write(&folder, &temp_path, path, bytes);
    if written.is_err() {
        // A full disk must not keep the partial file.
        let _ = fs::remove_file(&temp_path);
    }
    written
}

fn write(folder: &Path, temp_path: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        // `create_new` refuses links that another user may have placed there.
        .create_new(true)
        .mode(0o600)
        .open(temp_path)?;
    let like = fs::metadata(path).or_else(|_| fs::metadata(folder))?;
    // Before the contents are written, so that a key is never readable by the wrong owner.
    copy_owner(&file, &like)?;
    file.write_all(bytes)?;
    // The contents must be on disk before the rename, and the rename before success is reported.
    file.sync_all()?;
    fs::rename(temp_path, path)?;
    File::open(folder)?.sync_all()
}

/// Opens a file that is created if it is missing, and never written.
pub(super) fn opened(root: &Path, path: &Path) -> io::Result<File> {
    let folder = parent(root, path)?;
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    // The lock of a daemon that runs as another user must be accessible to it.
    if file.metadata()?.uid() != fs::metadata(&folder)?.uid() {
        copy_owner(&file, &fs::metadata(&folder)?)?;
    }
    Ok(file)
}

/// A temporary name that no other process or thread uses.
fn beside(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let extension = format!("{}-{count}.new", std::process::id());
    path.with_extension(extension)
}

/// The folder of a file. Missing ancestors are made.
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
            // Another process made it at the same time, with its own rights.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            created => created?,
        }
        let file = File::open(folder)?;
        if let Some(above) = folder.parent().filter(|_| folder != root) {
            copy_owner(&file, &fs::metadata(above)?)?;
        }
        // The mode of `create` is reduced by the umask; this sets it exactly.
        file.set_permissions(Permissions::from_mode(0o700))?;
    }
    Ok(folder.into())
}

/// Sets the owner; without the right to do so, the file keeps its owner.
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
