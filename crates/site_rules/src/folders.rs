//! Maps paths to files of a site: below its root, which may have a folder for each host, or in the folders of aliases.
//! The files are not accessed.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lowroad_config as config;
use lowroad_config::SiteRoot;
use lowroad_http::target;

use crate::base_folders::{BaseFolder, BaseFolders};
use crate::{PathMatches, SiteRules};

/// The folders of a site, without symbolic links.
pub struct RealFolders {
    /// The folder of all files outside of aliases: the root, or the part of the root before `{host}`.
    base: Arc<Path>,
    /// The folders of the site's aliases, in the configured order.
    aliases: Vec<Arc<Path>>,
}

/// The location of the file for a path.
pub struct FolderPath<'s, 'p> {
    /// The folder that symbolic links must not leave.
    pub base: &'s Path,
    /// The folder below `base` to which `rest` is relative.
    pub folder: PathBuf,
    /// The remaining decoded path.
    pub rest: &'p [u8],
    /// Whether `rest` contains a hidden name, which begins with a dot.
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
    /// Whether the file is not for clients, because its name or the name of a folder in its path begins with a dot.
    pub fn is_hidden(&self, rules: &SiteRules) -> bool {
        self.is_hidden && !rules.config.hidden
    }

    /// `rest` as a relative path.
    pub fn relative(&self) -> PathBuf {
        relative_path(self.rest)
    }
}

impl SiteRules {
    /// The folder of all files outside of aliases.
    pub fn base(&self) -> &Path {
        &self.folders.base
    }

    /// Finds the location of the file for a decoded path and a host.
    pub fn locate<'p>(&self, host: &[u8], path: &'p [u8]) -> FolderPath<'_, 'p> {
        match self.alias(path) {
            Some((_, base, rest)) => FolderPath {
                base,
                folder: PathBuf::new(),
                rest,
                // `.well-known` is an exception only at the top of the site (RFC 8615 §3), not in an alias.
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

    /// The alias for a decoded path, the alias's folder, and the path relative to that folder.
    pub fn alias<'p>(
        &self,
        path: &'p [u8],
    ) -> Option<(&config::AliasConfig, &Arc<Path>, &'p [u8])> {
        self.matched_alias(&self.match_path(path), path)
    }

    /// The same as [`SiteRules::alias`], if the patterns that match the path are already known.
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
        // If aliases are nested, the innermost applies.
        candidates.max_by_key(|(alias, ..)| alias.path.len())
    }

    /// The percent-encoded path of a file, given by its absolute path, if the file is in the folder of an internal
    /// alias.
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
            // A program may name the configured folder or the same folder without symbolic links.
            Some((
                alias,
                strip_folder(real_folder).or_else(|| strip_folder(&alias.folder))?,
            ))
        })?;
        let mut path = Vec::with_capacity(alias.path.len() + rest.len());
        // The path is encoded here, because it is decoded like a path from a client.
        target::encode_path(alias.path.as_bytes(), &mut path);
        target::encode_path(rest, &mut path);
        Some(path)
    }

    /// The folder of a host, relative to [`SiteRules::base`]; empty if all hosts share one folder.
    fn host_folder(&self, host: &[u8]) -> PathBuf {
        match &self.config.root {
            SiteRoot::None | SiteRoot::Folder(_) => PathBuf::new(),
            SiteRoot::PerHost { suffix, .. } => {
                // A normalized host name contains no slash and does not consist of dots.
                let host = String::from_utf8_lossy(host);
                // Joining an absolute suffix would discard the host.
                Path::new(&*host).join(suffix.trim_start_matches('/'))
            }
        }
    }

    /// The absolute path of the folder with a host's files.
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

/// Whether a path contains a hidden name: one that begins with a dot, except the registered `.well-known` (RFC 8615) as
/// the first segment.
pub fn is_hidden(path: &[u8]) -> bool {
    let mut segments = path
        .split(|b| *b == b'/')
        .filter(|segment| !segment.is_empty());
    let first = segments.next().unwrap_or(b"");
    (first.starts_with(b".") && first != b".well-known")
        || segments.any(|segment| segment.starts_with(b"."))
}

/// Converts a decoded request path to a path relative to the site's folder.
fn relative_path(path: &[u8]) -> PathBuf {
    // Joining an absolute path would leave the folder.
    let trimmed = path.strip_prefix(b"/").unwrap_or(path);
    PathBuf::from(OsStr::from_bytes(trimmed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dot_names_are_hidden_except_top_level_well_known() {
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
