//! The expected responses of a server, derived from the folder that it serves.

use std::path::Path;

use anyhow::{Context, ensure};

/// A file's length and content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExpectedFile {
    pub len: u64,
    pub crc32: u32,
}

/// Reads the file under `root` that `path` (with its query) names.
///
/// # Errors
/// The file does not exist or can't be read.
pub(crate) fn file(root: &Path, path: &str) -> anyhow::Result<ExpectedFile> {
    let name = path.split('?').next().unwrap_or(path);
    ensure!(
        !name.contains('%') && !name.split('/').any(|part| part == ".."),
        "{name}: --root supports only plain file names, without % and .."
    );
    let mut file_path = root.join(name.trim_start_matches('/'));
    // Servers answer a request for a folder with the folder's index file.
    if name.ends_with('/') {
        file_path.push("index.html");
    }
    let bytes = std::fs::read(&file_path).with_context(|| {
        format!(
            "can't read {}, the expected content of {path}",
            file_path.display()
        )
    })?;
    Ok(ExpectedFile {
        len: bytes.len() as u64,
        crc32: crc32fast::hash(&bytes),
    })
}
