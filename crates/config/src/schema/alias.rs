//! Folders of a site outside its root.

use std::path::{Path, PathBuf};

/// A folder that is served at a path of the site. `[[site.alias]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AliasConfig {
    /// The path, decoded, without a slash at its end; all paths below it map to files below the folder. If a path is
    /// below several aliases, the longest applies.
    pub path: String,
    /// The folder. Key `folder`.
    pub folder: PathBuf,
    /// Clients cannot request it: it serves rewrites, and programs that name files in it. Default false.
    pub internal: bool,
}

impl AliasConfig {
    /// The file of a path in the folder of the innermost alias; in `root` if the path is below no alias. The result is the
    /// folder, and the path in it.
    pub fn place_of<'p>(
        aliases: &'p [AliasConfig],
        root: &'p Path,
        path: &'p str,
    ) -> (&'p Path, &'p str) {
        let inside = aliases.iter().filter_map(|alias| {
            let rest = alias.within(path.as_bytes())?;
            Some((alias, path.get(path.len() - rest.len()..)?))
        });
        match inside.max_by_key(|(alias, _)| alias.path.len()) {
            Some((alias, rest)) => (&alias.folder, rest),
            None => (root, path.trim_start_matches('/')),
        }
    }

    /// The path relative to the folder, without a leading slash; `None` if the path is not below this alias.
    pub fn within<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        match path.strip_prefix(self.path.as_bytes())? {
            [] => Some(&[]),
            [b'/', rest @ ..] => Some(rest),
            _ => None,
        }
    }
}
