//! A folder as a disk for guests: an ext4 image, created once and reused. Independent of guests and servers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::kernel::{build_once, run};
use crate::peers::programs;

/// Block length of the file system.
const BLOCK_LEN: u64 = 4096;
/// UUID of the file system and seed of its directory hashes: fixed, so that images are reproducible.
const ID: &str = "5f1c1f0a-0c7d-4d5e-9f57-6c6f77726f61";

/// The size of a folder's content.
#[derive(Debug, Default, PartialEq)]
struct FolderSize {
    /// Number of files and folders.
    files: u64,
    /// Total size of the files and folders, each rounded up to whole blocks.
    bytes: u64,
}

/// Returns the image of a folder, and creates it if it does not exist. After a change of the folder, another image name
/// is needed.
///
/// # Errors
/// A program is missing, the disk is full, or the folder can't be read.
pub fn build_image(folder: &Path, image: &Path) -> Result<PathBuf, String> {
    build_once(image, |image| {
        let Some(program) = programs::find("mke2fs") else {
            return Err("mke2fs is missing, which makes a guest's disk: install e2fsprogs".into());
        };
        let size = size(folder)?;
        // No reserved blocks and no journal: the disk is read-only.
        let features = ["-t", "ext4", "-b", "4096", "-m", "0", "-O", "^has_journal"];
        let reproducible_options = format!("root_owner=0:0,lazy_itable_init=0,hash_seed={ID}");
        let mut command = Command::new(program);
        command.args(["-q", "-F", "-U", ID, "-E", &reproducible_options]);
        command.args(features);
        // -N: mke2fs derives its default from the disk's size, which gives too few inodes for many small files.
        command.args(["-N", &(size.files + 64).to_string(), "-d"]);
        run(command
            .arg(folder)
            .arg(image)
            .arg(format!("{}k", disk_len(&size) >> 10)))
        .map(drop)
    })
}

/// The length of the disk: content and metadata of the file system.
fn disk_len(size: &FolderSize) -> u64 {
    const LEAST: u64 = 8 << 20;
    LEAST + size.bytes + size.bytes / 16 + size.files * 512
}

fn size(folder: &Path) -> Result<FolderSize, String> {
    let unreadable = |error| format!("{}: {error}", folder.display());
    let mut total = FolderSize {
        files: 1,
        bytes: BLOCK_LEN,
    };
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let metadata =
            fs::metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let entry_size = match metadata.is_dir() {
            true => size(&path)?,
            false => FolderSize {
                files: 1,
                bytes: metadata.len().next_multiple_of(BLOCK_LEN),
            },
        };
        total.files += entry_size.files;
        total.bytes += entry_size.bytes;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowroad_testkit::TempFolder;

    #[test]
    fn folder_size_is_counted_in_blocks() {
        let folder = TempFolder::new();
        fs::create_dir(folder.path().join("inner")).expect("a folder");
        fs::write(folder.path().join("inner/one"), b"1").expect("a file");
        fs::write(folder.path().join("two"), vec![0; 5000]).expect("a file");
        let found = size(folder.path()).expect("readable");
        let expected = FolderSize {
            files: 4,
            bytes: 5 * BLOCK_LEN,
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn ext4_image_contains_the_folders_files() {
        if programs::find("mke2fs").is_none() {
            return lowroad_testkit::skip("ext4 image contains the folder's files", "no mke2fs");
        }
        let folder = TempFolder::new();
        let site = folder.path().join("site");
        fs::create_dir(&site).expect("a folder");
        fs::write(site.join("page.html"), vec![b'x'; 3 << 20]).expect("a file");
        let image = build_image(&site, &folder.path().join("site.ext4")).expect("an image");
        let bytes = fs::read(&image).expect("readable");
        // The magic number of the superblock.
        assert_eq!(bytes[1024 + 0x38..][..2], [0x53, 0xef]);
        assert!(bytes.windows(9).any(|name| name == b"page.html"));
        // The second call must not create the image again.
        fs::write(&image, b"kept").expect("writable");
        build_image(&site, &image).expect("there");
        assert_eq!(fs::read(&image).expect("readable"), b"kept");
    }
}
