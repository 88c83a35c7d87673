//! A folder of generated files with content from a seed, and the expected response for each. Independent of servers.

use std::path::{Path, PathBuf};

use super::draws::RandomDraws;
use crate::TempFolder;

/// A file from the client's point of view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestPage {
    /// The target, from the slash on.
    pub path: String,
    /// The length of its content.
    pub len: usize,
    /// The CRC-32 of its content.
    pub crc32: u32,
}

impl TestPage {
    /// The page of this content.
    pub fn new(path: &str, content: &[u8]) -> TestPage {
        TestPage {
            path: path.to_owned(),
            len: content.len(),
            crc32: crc32fast::hash(content),
        }
    }
}

/// The folder, in memory if the system has a place for it; removed on drop.
pub struct TestSite {
    folder: TempFolder,
    /// Its pages, in the order of the requested lengths.
    pub pages: Vec<TestPage>,
}

impl TestSite {
    /// Makes a file of each length. They are named `0-LEN.bin` and so on, since servers do not compress this type.
    pub fn new(seed: u64, lens: &[usize]) -> TestSite {
        let folder = TempFolder::in_memory();
        let page = |(index, len): (usize, &usize)| {
            let content = content(seed, index, *len);
            let name = format!("{index}-{len}.bin");
            folder.file(Path::new("root").join(&name), &content);
            TestPage::new(&format!("/{name}"), &content)
        };
        let pages = lens.iter().enumerate().map(page).collect();
        TestSite { folder, pages }
    }

    /// The folder to serve.
    pub fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    /// The folder around it, for other files of the server.
    pub fn folder(&self) -> &TempFolder {
        &self.folder
    }
}

/// The content of a file, or of an upload.
pub fn content(seed: u64, stream: usize, len: usize) -> Vec<u8> {
    let mut draws = RandomDraws::new(seed, u64::try_from(stream).expect("64 bits at most"));
    let words = std::iter::repeat_with(|| draws.number().to_le_bytes());
    words.take(len.div_ceil(8)).flatten().take(len).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_what_the_pages_say() {
        let site = TestSite::new(5, &[0, 1, 1460, 10_000]);
        for (page, len) in site.pages.iter().zip([0, 1, 1460, 10_000]) {
            let content = std::fs::read(site.root().join(&page.path[1..])).unwrap();
            assert_eq!(content.len(), len);
            assert_eq!(TestPage::new(&page.path, &content), *page);
        }
        assert_eq!(site.pages, TestSite::new(5, &[0, 1, 1460, 10_000]).pages);
        assert_ne!(site.pages, TestSite::new(6, &[0, 1, 1460, 10_000]).pages);
    }
}
