//! The folders of a site, resolved when the configuration is loaded. Symbolic links in their paths may change later.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lowroad_config as config;
use lowroad_config::SiteRoot;

/// A folder that contains files of a site, as resolved at load time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseFolder {
    /// The path without symbolic links.
    pub path: PathBuf,
    /// Device and inode; `None` if the folder disappeared after its path was resolved.
    file: Option<(u64, u64)>,
}

/// All folders of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseFolders {
    /// The root folder; aliases have separate folders.
    pub(crate) root: BaseFolder,
    /// The folders of the aliases, in the configured order.
    pub(crate) aliases: Vec<BaseFolder>,
}

impl BaseFolders {
    /// Resolves the folders of a site.
    ///
    /// # Errors
    /// A folder that cannot be served, and the reason.
    pub fn from_site(rules: &config::SiteConfig) -> io::Result<BaseFolders> {
        let root = match &rules.root {
            SiteRoot::Folder(folder) | SiteRoot::PerHost { prefix: folder, .. } => {
                BaseFolder::open(folder)?
            }
            SiteRoot::None => BaseFolder::none(),
        };
        let aliases = rules
            .aliases
            .iter()
            .map(|alias| BaseFolder::open(&alias.folder));
        let aliases = aliases.collect::<io::Result<_>>()?;
        Ok(BaseFolders { root, aliases })
    }
}

impl BaseFolder {
    fn open(folder: &Path) -> io::Result<BaseFolder> {
        let found = folder.canonicalize().and_then(readable);
        found.map_err(|error| {
            let text = format!("the folder {} can't be served: {error}", folder.display());
            io::Error::new(error.kind(), text)
        })
    }

    /// A placeholder for a site without a root: no folder has this path.
    fn none() -> BaseFolder {
        BaseFolder {
            path: PathBuf::from("/nonexistent"),
            file: None,
        }
    }
}

fn readable(path: PathBuf) -> io::Result<BaseFolder> {
    // This check gives a clearer message than `read_dir` would.
    if !path.metadata()?.is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotADirectory, "not a folder"));
    }
    // An unreadable folder fails the start or reload rather than each request.
    std::fs::read_dir(&path)?;
    Ok(BaseFolder {
        file: file_of(&path),
        path,
    })
}

fn file_of(folder: &Path) -> Option<(u64, u64)> {
    folder.metadata().ok().map(|meta| (meta.dev(), meta.ino()))
}
