//! Archives a site's folder. The server's rules are applied once, when the image is built. A file that the server would
//! refuse to serve is an error with its name here, while the operator can still correct it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use lowroad_config as config;
use lowroad_http::target;
use lowroad_page::CompiledPage;
use lowroad_unikernel::archive::ArchiveBuilder;

use super::variants;

/// Suffix of page sources.
const PAGE_SUFFIX: &str = ".lrp";
/// The page that is a folder's index if the folder has no other index.
const PAGE_INDEX: &str = "index.lrp";
/// Maximum nesting of folders.
const DEPTH_MAX: usize = 64;

/// The numbers of archived files and pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteContents {
    /// Number of files.
    pub files: usize,
    /// Number of SQL pages.
    pub pages: usize,
}

/// Adds a folder's contents to the archive.
///
/// # Errors
/// The first file that can't be served, with the reason.
pub fn add(builder: &mut ArchiveBuilder, dir: &Path) -> Result<SiteContents, String> {
    let describe = |error| format!("{}: {error}", dir.display());
    let root = dir.canonicalize().map_err(describe)?;
    if !root.is_dir() {
        return Err(format!("{}: not a folder", dir.display()));
    }
    let mut site = ImageSite {
        rules: config::site_for_folder(root.clone()),
        root,
        builder,
        contents: SiteContents::default(),
        ancestors: Vec::new(),
        folders: Vec::new(),
        has_index: BTreeSet::new(),
        sources: BTreeMap::new(),
    };
    site.error_pages();
    let root = site.root.clone();
    site.folder(&root, b"/")?;
    site.pages()?;
    // The refusals are added last, because a page may be a folder's index.
    site.add_refusals()?;
    Ok(site.contents)
}

struct ImageSite<'b> {
    rules: config::SiteConfig,
    root: PathBuf,
    builder: &'b mut ArchiveBuilder,
    contents: SiteContents,
    /// The folder that is being added, and its ancestors, with symbolic links resolved.
    ancestors: Vec<PathBuf>,
    /// The URL paths of all folders.
    folders: Vec<Vec<u8>>,
    /// The URL paths of folders with an index.
    has_index: BTreeSet<Vec<u8>>,
    /// The sources of pages and fragments, by their paths relative to the site's folder.
    sources: BTreeMap<String, SiteSource>,
}

struct SiteSource {
    text: String,
    is_fragment: bool,
}

/// The type of a directory entry's target.
enum EntryKind {
    File,
    Folder,
}

impl ImageSite<'_> {
    /// Adds a folder and its subfolders. `url_path` is the folder's decoded URL path, with a trailing slash.
    fn folder(&mut self, folder: &Path, url_path: &[u8]) -> Result<(), String> {
        let describe = |error| format!("{}: {error}", folder.display());
        let real = folder.canonicalize().map_err(describe)?;
        // A link to an ancestor would cause an endless recursion.
        if self.ancestors.contains(&real) || self.ancestors.len() >= DEPTH_MAX {
            return Err(format!(
                "{}: folders are nested too deeply",
                folder.display()
            ));
        }
        self.ancestors.push(real);
        let names = fs::read_dir(folder).map_err(describe)?;
        let names = names.map(|entry| entry.map(|entry| entry.file_name()));
        let mut names: Vec<_> = names.collect::<Result<_, _>>().map_err(describe)?;
        // The names are sorted, so that the same folder always produces the same image.
        names.sort();
        for name in names {
            let path = [url_path, name.as_bytes()].concat();
            if lowroad_site_rules::is_hidden(&path) || name.as_bytes().contains(&b'\\') {
                continue; // no request leads there
            }
            let from = folder.join(&name);
            match self.kind(&from)? {
                EntryKind::Folder => self.add_subfolder(&from, &path)?,
                EntryKind::File if path.ends_with(PAGE_SUFFIX.as_bytes()) => {
                    self.source(&from, path)?
                }
                EntryKind::File if self.file(&from, &path, url_path)? => {
                    self.has_index.insert(url_path.to_vec());
                }
                EntryKind::File => {}
            }
        }
        self.folders.push(url_path.to_vec());
        self.ancestors.pop();
        Ok(())
    }

    fn add_subfolder(&mut self, folder: &Path, path: &[u8]) -> Result<(), String> {
        let with_slash = [path, b"/"].concat();
        let mut location = Vec::new();
        target::encode_path(&with_slash, &mut location);
        let location = String::from_utf8_lossy(&location).into_owned();
        // The redirect appends a slash to the URL, without which relative links of the folder's index would be wrong.
        self.builder.redirect(path, &location).map_err(text)?;
        self.folder(folder, &with_slash)
    }

    /// Adds a file. Returns whether it is the index of the folder `folder_path`.
    fn file(&mut self, from: &Path, path: &[u8], folder_path: &[u8]) -> Result<bool, String> {
        let variants = variants::encode_file(&self.rules, path, from)?;
        let name = path.strip_prefix(folder_path).unwrap_or(path);
        let mut indexes = self.rules.index.iter();
        let is_index = indexes.any(|index| index.as_bytes() == name);
        let paths: &[&[u8]] = if is_index {
            &[path, folder_path]
        } else {
            &[path]
        };
        self.builder.file(paths, variants).map_err(text)?;
        self.contents.files += 1;
        Ok(is_index)
    }

    /// Reads a page source. A source is a fragment, not a page, if its name or a folder in its path begins with `_`.
    fn source(&mut self, from: &Path, path: Vec<u8>) -> Result<(), String> {
        let describe = |reason: &str| format!("{}: {reason}", from.display());
        let source = fs::read(from).map_err(|error| describe(&error.to_string()))?;
        let source = String::from_utf8(source).map_err(|_| describe("not UTF-8"))?;
        let name = path.strip_prefix(b"/").unwrap_or(&path).to_vec();
        let name = String::from_utf8(name).map_err(|_| describe("its name is not UTF-8"))?;
        // As in the server's own pages, the names of all folders in the path count.
        let is_fragment = name.split('/').any(|segment| segment.starts_with('_'));
        self.builder.part(&name, &source).map_err(text)?;
        self.sources.insert(
            name,
            SiteSource {
                text: source,
                is_fragment,
            },
        );
        Ok(())
    }

    /// Checks and adds the pages. Called after all fragments were read, because pages refer to them.
    fn pages(&mut self) -> Result<(), String> {
        let mut find = |name: &str| self.sources.get(name).map(|source| source.text.as_str());
        for (name, source) in self
            .sources
            .iter()
            .filter(|(_, source)| !source.is_fragment)
        {
            CompiledPage::parse_with(name, &source.text, &mut find)
                .map_err(|error| format!("{name}:{}: {}", error.line, error.message))?;
            let path = format!("/{name}");
            self.builder
                .page(path.as_bytes(), name, &source.text)
                .map_err(text)?;
            // `/a-index.lrp` is not an index page: a slash must precede the name.
            let folder = path.strip_suffix(PAGE_INDEX).filter(|at| at.ends_with('/'));
            if let Some(folder) = folder.filter(|at| !self.has_index.contains(at.as_bytes())) {
                self.builder
                    .page(folder.as_bytes(), name, &source.text)
                    .map_err(text)?;
                self.has_index.insert(folder.as_bytes().to_vec());
            }
            self.contents.pages += 1;
        }
        Ok(())
    }

    /// Adds a 403 response for each folder without an index.
    fn add_refusals(&mut self) -> Result<(), String> {
        for folder in self
            .folders
            .iter()
            .filter(|folder| !self.has_index.contains(*folder))
        {
            self.builder.forbidden(folder).map_err(text)?;
        }
        Ok(())
    }

    fn kind(&self, from: &Path) -> Result<EntryKind, String> {
        let describe = |error| format!("{}: {error}", from.display());
        let real = from.canonicalize().map_err(describe)?;
        // The target of a link must be within the site's folder.
        if !real.starts_with(&self.root) {
            let (from, real) = (from.display(), real.display());
            return Err(format!("{from} leads out of the site, to {real}"));
        }
        let kind = fs::metadata(&real).map_err(describe)?.file_type();
        match (kind.is_file(), kind.is_dir()) {
            (true, _) => Ok(EntryKind::File),
            (_, true) => Ok(EntryKind::Folder),
            _ => Err(format!("{}: neither a file nor a folder", from.display())),
        }
    }

    /// Adds the site's 404 page, if it has one.
    fn error_pages(&mut self) {
        if let Ok(page) = fs::read(self.root.join("404.html")) {
            self.builder
                .error_page(404, "text/html; charset=utf-8", &page);
        }
    }
}

fn text(error: impl ToString) -> String {
    error.to_string()
}
