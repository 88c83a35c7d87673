//! Bodies of error responses: the site's own page, else a small built-in one.
//!
//! A site's pages are in memory, so that errors need no disk, and are read again within a second of a change
//! (`site_files`).

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use lowroad_config::{self as config, SymlinkPolicy};
use lowroad_engine::file::OpenFile;
use lowroad_file_stamp::FileStamp;

use crate::folder::{self, PathTarget, SiteFolder};
use crate::mime;

/// Larger pages are ignored.
const PAGE_LEN_MAX: u64 = 1 << 20;

/// An error page.
#[derive(Clone)]
pub struct ErrorPage {
    /// Its Content-Type.
    pub content_type: Arc<str>,
    /// Its bytes.
    pub body: bytes::Bytes,
    stamp: FileStamp,
}

/// The pages of a site.
pub struct ErrorPages {
    base: PathBuf,
    symlinks: SymlinkPolicy,
    /// By status, relative to `base`.
    files: Vec<(u16, PathBuf)>,
    types: Vec<(String, String)>,
    pages: RwLock<BTreeMap<u16, ErrorPage>>,
}

impl ErrorPages {
    /// Reads the pages that a site names; paths are relative to `base`.
    pub fn load(base: &Path, rules: &config::SiteConfig) -> ErrorPages {
        let file = |path: &String| PathBuf::from(path.trim_start_matches('/'));
        let files = rules
            .error_pages
            .iter()
            .map(|(status, path)| (*status, file(path)));
        let pages = ErrorPages {
            base: base.to_path_buf(),
            symlinks: rules.symlinks,
            files: files.collect(),
            types: rules.types.clone(),
            pages: RwLock::default(),
        };
        // Loaded before the first error, so that an error needs no disk.
        pages.refresh();
        pages
    }

    /// The paths of their files.
    pub fn paths(&self) -> impl Iterator<Item = PathBuf> {
        self.files.iter().map(|(_, path)| self.base.join(path))
    }

    /// Reads changed pages again and returns whether there were any. Blocks on the disk.
    pub fn refresh(&self) -> bool {
        let mut any_changed = false;
        for (status, path) in &self.files {
            let current_stamp = self.find(*status).map(|page| page.stamp);
            // An unchanged file is not read again.
            if self.open(path).map(|file| file.stamp) == current_stamp {
                continue;
            }
            let Ok(page) = self.read(path) else {
                continue; // the old one will do until it is written
            };
            let mut pages = self.pages.write().unwrap_or_else(PoisonError::into_inner);
            match page {
                Some(page) => pages.insert(*status, page),
                None => pages.remove(status),
            };
            any_changed = true;
        }
        any_changed
    }

    /// The site's own page for a status.
    pub fn find(&self, status: u16) -> Option<ErrorPage> {
        self.pages
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&status)
            .cloned()
    }

    /// Reads the page from a file, if there is a usable one.
    fn read(&self, path: &Path) -> Result<Option<ErrorPage>, FileInFlux> {
        let Some(file) = self
            .open(path)
            .filter(|file| file.stamp.len <= PAGE_LEN_MAX)
        else {
            return Ok(None);
        };
        let file = folder::wait_until_stable(Arc::new(file)).map_err(|_| FileInFlux)?;
        if file.stamp.len > PAGE_LEN_MAX {
            return Ok(None);
        }
        let mut body = vec![0; file.stamp.len as usize]; // <= PAGE_LEN_MAX
        let read = file.file.read_exact_at(&mut body, 0);
        // Parts of two versions must not be mixed.
        if !file.unchanged() {
            return Err(FileInFlux);
        }
        let name = path.as_os_str().as_encoded_bytes();
        let content_type = mime::content_type(name, &self.types).into();
        let stamp = file.stamp;
        Ok(read.ok().map(|()| ErrorPage {
            content_type,
            body: body.into(),
            stamp,
        }))
    }

    /// Opens a page's file as a request for it would: never outside of the site.
    fn open(&self, path: &Path) -> Option<OpenFile> {
        let folder = SiteFolder::open(&self.base, Path::new(""), self.symlinks).ok()?;
        match folder.find(path).ok()?.target {
            PathTarget::File(file) => Some(file),
            PathTarget::Folder => None,
        }
    }
}

/// The file is being written continuously.
struct FileInFlux;
