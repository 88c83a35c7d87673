//! The error pages of a site (nginx `error_page`); the built-in page is used for other statuses.
//!
//! The pages are kept in memory, so that errors need no disk access, and are reread within a second of a change
//! (`site_files`).

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use lowroad_config::{self as config, AliasConfig, SymlinkPolicy};
use lowroad_engine::file::OpenFile;
use lowroad_file_stamp::FileStamp;

use crate::folder::{self, PathTarget, SiteFolder};
use crate::mime;

/// The maximum length of an error page. Larger ones are ignored.
const PAGE_LEN_MAX: u64 = 1 << 20;

/// An error page.
#[derive(Clone)]
pub struct ErrorPage {
    /// The Content-Type.
    pub content_type: Arc<str>,
    /// The bytes.
    pub body: bytes::Bytes,
    stamp: FileStamp,
}

/// The place of an error page.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PageFile {
    /// The root of the site, or the folder of an alias.
    folder: PathBuf,
    /// The path in the folder.
    path: PathBuf,
}

impl PageFile {
    /// Finds the place of a page by its path in the site. `base` is the root.
    fn locate(base: &Path, aliases: &[AliasConfig], page: &str) -> PageFile {
        let (folder, path) = AliasConfig::place_of(aliases, base, page);
        PageFile {
            folder: folder.to_path_buf(),
            path: PathBuf::from(path),
        }
    }
}

/// The error pages of a site.
pub struct ErrorPages {
    symlinks: SymlinkPolicy,
    /// The pages' files, and the statuses for which each is.
    files: BTreeMap<PageFile, Vec<u16>>,
    types: Vec<(String, String)>,
    pages: RwLock<BTreeMap<u16, ErrorPage>>,
}

impl ErrorPages {
    /// Reads the error pages that a site's configuration names; paths are relative to `base`.
    pub fn load(base: &Path, rules: &config::SiteConfig) -> ErrorPages {
        let mut files: BTreeMap<PageFile, Vec<u16>> = BTreeMap::new();
        for (status, path) in &rules.error_pages {
            let file = PageFile::locate(base, &rules.aliases, path);
            files.entry(file).or_default().push(*status);
        }
        let pages = ErrorPages {
            symlinks: rules.symlinks,
            files,
            types: rules.types.clone(),
            pages: RwLock::default(),
        };
        // Loaded before the first error, so that errors need no disk access.
        pages.refresh();
        pages
    }

    /// The paths of the pages' files.
    pub fn paths(&self) -> impl Iterator<Item = PathBuf> {
        self.files.keys().map(|file| file.folder.join(&file.path))
    }

    /// Rereads changed pages, and returns whether there were any. Blocks on the disk.
    pub fn refresh(&self) -> bool {
        let mut any_changed = false;
        for (file, statuses) in &self.files {
            let first = statuses.first().and_then(|status| self.find(*status));
            let current_stamp = first.map(|page| page.stamp);
            // An unchanged file is not reread.
            if self.open(file).map(|it| it.stamp) == current_stamp {
                continue;
            }
            let Ok(page) = self.read(file) else {
                continue; // the old page is used until the file is written completely
            };
            let mut pages = self.pages.write().unwrap_or_else(PoisonError::into_inner);
            for status in statuses {
                match &page {
                    Some(page) => pages.insert(*status, page.clone()),
                    None => pages.remove(status),
                };
            }
            any_changed = true;
        }
        any_changed
    }

    /// The site's error page for a status.
    pub fn find(&self, status: u16) -> Option<ErrorPage> {
        self.pages
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&status)
            .cloned()
    }

    /// Reads a page from its file, if that is usable.
    fn read(&self, page: &PageFile) -> Result<Option<ErrorPage>, FileChanging> {
        let Some(file) = self
            .open(page)
            .filter(|file| file.stamp.len <= PAGE_LEN_MAX)
        else {
            return Ok(None);
        };
        let file = folder::wait_until_stable(Arc::new(file)).map_err(|_| FileChanging)?;
        if file.stamp.len > PAGE_LEN_MAX {
            return Ok(None);
        }
        let mut body = vec![0; file.stamp.len as usize]; // <= PAGE_LEN_MAX
        let read = file.file.read_exact_at(&mut body, 0);
        // If the file changed during the read, the page may be a mixture of two versions.
        if !file.unchanged() {
            return Err(FileChanging);
        }
        let name = page.path.as_os_str().as_encoded_bytes();
        let content_type = mime::content_type(name, &self.types).into();
        let stamp = file.stamp;
        Ok(read.ok().map(|()| ErrorPage {
            content_type,
            body: body.into(),
            stamp,
        }))
    }

    /// Opens a page's file like for a request, so that it can't be outside of the site.
    fn open(&self, page: &PageFile) -> Option<OpenFile> {
        let folder = SiteFolder::open(&page.folder, Path::new(""), self.symlinks).ok()?;
        match folder.find(&page.path).ok()?.target {
            PathTarget::File(file) => Some(file),
            PathTarget::Folder => None,
        }
    }
}

/// The error for a file that changed while it was read.
struct FileChanging;
