//! The locations of a site's files: below its root, which may have a folder for each host, and in the folders of
//! aliases. Maps paths without accessing the files.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lowroad_config as config;
use lowroad_config::SiteRoot;
use lowroad_http::target;

use crate::base_folders::{BaseFolder, BaseFolders};
use crate::{PathMatches, SiteRules};

/// Folders of a site, without symbolic links.
pub struct RealFolders {
    /// The folder of everything outside the aliases: the root, or the part before `{host}`.
    base: Arc<Path>,
    /// Those of the site's aliases, in their order.
    aliases: Vec<Arc<Path>>,
}

/// Where the file of a path is.
pub struct FolderPath<'s, 'p> {
    /// A folder that nothing leaves.
    pub base: &'s Path,
    /// Below that, the folder that the rest is looked for in.
    pub folder: PathBuf,
    /// The rest of the decoded path.
    pub rest: &'p [u8],
    /// A name in the rest is not for clients.
    is_hidden: bool,
}

impl RealFolders {
    pub(crate) fn new(bases: &BaseFolders) -> RealFolders {
        let path = |base: &BaseFolder| base.path.as_path().into();
        RealFolders {
            base: path(&bases.root),
            aliases: bases.aliases.iter().map(path).collect(),
        }
    }
}

impl FolderPath<'_, '_> {
    /// Whether it is no file of the site for clients, because of a name that begins with a dot.
    pub fn is_hidden(&self, rules: &SiteRules) -> bool {
        self.is_hidden && !rules.config.hidden
    }

    /// The rest as a path.
    pub fn relative(&self) -> PathBuf {
        relative_path(self.rest)
    }
}

impl SiteRules {
    /// The folder of everything outside the aliases.
    pub fn base(&self) -> &Path {
        &self.folders.base
    }

    /// Where the file of a decoded path is, for a host.
    pub fn locate<'p>(&self, host: &[u8], path: &'p [u8]) -> FolderPath<'_, 'p> {
        match self.alias(path) {
            Some((_, base, rest)) => FolderPath {
                base,
                folder: PathBuf::new(),
                rest,
                // `.well-known` is an exception at the top of the site only (RFC 8615 §3), not in an alias.
                is_hidden: rest
                    .split(|b| *b == b'/')
                    .any(|name| name.starts_with(b".")),
            },
            None => FolderPath {
                base: self.base(),
                folder: self.host_folder(host),
                rest: path,
                is_hidden: is_hidden(path),
            },
        }
    }

    /// The alias that a decoded path is below, its folder, and the path in that.
    pub fn alias<'p>(
        &self,
        path: &'p [u8],
    ) -> Option<(&config::AliasConfig, &Arc<Path>, &'p [u8])> {
        self.matched_alias(&self.match_path(path), path)
    }

    /// The same, with the patterns that the path matches already known.
    pub fn matched_alias<'p>(
        &self,
        matches: &PathMatches<'_>,
        path: &'p [u8],
    ) -> Option<(&config::AliasConfig, &Arc<Path>, &'p [u8])> {
        let candidates = matches.aliases().filter_map(|number| {
            let alias = self.config.aliases.get(number)?;
            let base = self.folders.aliases.get(number)?;
            Some((alias, base, alias.within(path)?))
        });
        // Of nested aliases, the innermost applies.
        candidates.max_by_key(|(alias, ..)| alias.path.len())
    }

    /// The path, percent-encoded, of a file by its absolute path, if it is in the folder of an internal alias.
    pub fn internal_path(&self, file: &[u8]) -> Option<Vec<u8>> {
        let aliases = self.config.aliases.iter().zip(&self.folders.aliases);
        let mut internal = aliases.filter(|(alias, _)| alias.internal);
        let (alias, rest) = internal.find_map(|(alias, real_folder)| {
            let strip_folder = |folder: &Path| {
                let folder = folder.as_os_str().as_bytes();
                // A slash must follow the folder: `/srv/ab` is not in `/srv/a`.
                let folder = folder.strip_suffix(b"/").unwrap_or(folder);
                file.strip_prefix(folder)
                    .filter(|rest| rest.starts_with(b"/"))
            };
            // A program may name the file by the configured folder or by its path without symbolic links.
            Some((
                alias,
                strip_folder(real_folder).or_else(|| strip_folder(&alias.folder))?,
            ))
        })?;
        let mut path = Vec::with_capacity(alias.path.len() + rest.len());
        // The path is decoded again like a client's.
        target::encode_path(alias.path.as_bytes(), &mut path);
        target::encode_path(rest, &mut path);
        Some(path)
    }

    /// The folder of a host, relative to [`Site::base`]; empty where all hosts share one.
    fn host_folder(&self, host: &[u8]) -> PathBuf {
        match &self.config.root {
            SiteRoot::None | SiteRoot::Folder(_) => PathBuf::new(),
            SiteRoot::PerHost { suffix, .. } => {
                // A normalised host name has no slash and is not made of dots.
                let host = String::from_utf8_lossy(host);
                // Joining an absolute suffix would replace the host.
                Path::new(&*host).join(suffix.trim_start_matches('/'))
            }
        }
    }

    /// The absolute folder of a host's files.
    pub fn folder(&self, host: &[u8]) -> Arc<Path> {
        match self.has_host_folders() {
            true => self.base().join(self.host_folder(host)).into(),
            false => self.folders.base.clone(),
        }
    }

    /// Whether each host has its own folder.
    #[inline]
    pub fn has_host_folders(&self) -> bool {
        matches!(self.config.root, SiteRoot::PerHost { .. })
    }
}

/// Whether a path names something that is not for clients: a name that begins with a dot, other
/// than the registered `.well-known` (RFC 8615) at the top.
pub fn is_hidden(path: &[u8]) -> bool {
    let mut segments = path
        .split(|b| *b == b'/')
        .filter(|segment| !segment.is_empty());
    let first = segments.next().unwrap_or(b"");
    (first.starts_with(b".") && first != b".well-known")
        || segments.any(|segment| segment.starts_with(b"."))
}

/// A decoded request path as a path relative to the site's folder.
fn relative_path(path: &[u8]) -> PathBuf {
    // An absolute path would leave the folder when it is joined to it.
    let trimmed = path.strip_prefix(b"/").unwrap_or(path);
    PathBuf::from(OsStr::from_bytes(trimmed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_names() {
        for (path, want) in [
            ("/a/b", false),
            ("/.git/config", true),
            ("/a/.b/c", true),
            ("/.well-known/x", false),
            ("/.well-known/.x", true),
            ("/a/.well-known/x", true),
            ("/a.b", false),
        ] {
            assert_eq!(is_hidden(path.as_bytes()), want, "{path}");
        }
    }
}
