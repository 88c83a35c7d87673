//! The resolved folders of a site at configuration time: symbolic links along their paths may change later.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lowroad_config as config;
use lowroad_config::SiteRoot;

/// The folder that contains everything of a site, when it was looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseFolder {
    /// Without symbolic links.
    pub path: PathBuf,
    /// Device and inode; `None` if it went away meanwhile.
    file: Option<(u64, u64)>,
}

/// All folders of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseFolders {
    /// The root. Aliases have their own folders.
    pub(crate) root: BaseFolder,
    /// Of the aliases, in their order.
    pub(crate) aliases: Vec<BaseFolder>,
}

impl BaseFolders {
    /// Where the folders of a site really are.
    ///
    /// # Errors
    /// A folder can't be served; the text names it and the reason.
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

    /// No folder: there is nothing at its path.
    fn none() -> BaseFolder {
        BaseFolder {
            path: PathBuf::from("/nonexistent"),
            file: None,
        }
    }
}

fn readable(path: PathBuf) -> io::Result<BaseFolder> {
    // A clearer message than that of the read below.
    if !path.metadata()?.is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotADirectory, "not a folder"));
    }
    // An unreadable folder fails the start or reload instead of each request.
    std::fs::read_dir(&path)?;
    Ok(BaseFolder {
        file: file_of(&path),
        path,
    })
}

fn file_of(folder: &Path) -> Option<(u64, u64)> {
    folder.metadata().ok().map(|meta| (meta.dev(), meta.ino()))
}
