//! A folder of files with pseudorandom content, and the expected response for each.

use std::path::{Path, PathBuf};

use super::draws::RandomDraws;
use crate::TempFolder;

/// A page: the length and checksum of the response that a client expects for a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestPage {
    /// The request target.
    pub path: String,
    /// The length of the content.
    pub len: usize,
    /// The CRC-32 of the content.
    pub crc32: u32,
}

impl TestPage {
    /// The page with this content.
    pub fn new(path: &str, content: &[u8]) -> TestPage {
        TestPage {
            path: path.to_owned(),
            len: content.len(),
            crc32: crc32fast::hash(content),
        }
    }
}

/// A folder with generated files, in memory if possible; removed on drop.
pub struct TestSite {
    folder: TempFolder,
    /// The pages, in the order of the requested lengths.
    pub pages: Vec<TestPage>,
}

impl TestSite {
    /// Writes a file of each length. The names are `0-LEN.bin` and so on, as servers do not compress this type.
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

    /// The parent of the root, for other files of the server.
    pub fn folder(&self) -> &TempFolder {
        &self.folder
    }
}

/// The content of a file, or of an upload.
pub fn content(seed: u64, sequence: usize, len: usize) -> Vec<u8> {
    let mut draws = RandomDraws::new(seed, u64::try_from(sequence).expect("64 bits at most"));
    let words = std::iter::repeat_with(|| draws.number().to_le_bytes());
    words.take(len.div_ceil(8)).flatten().take(len).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_match_their_pages() {
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
