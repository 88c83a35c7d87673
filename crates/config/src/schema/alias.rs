//! Folders of a site that lie elsewhere than its root.

use std::path::PathBuf;

/// A folder whose files are at a path of the site. `[[site.alias]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    /// The folder's path, decoded, without a slash at its end; all that is below it is below the folder. Of several that a path
    /// is below, the longest counts.
    pub path: String,
    /// Where it is. Key `folder`.
    pub folder: PathBuf,
    /// Clients can't ask for it: it is for rewrites, and for programs that name files in it. Default false.
    pub internal: bool,
}

impl Alias {
    /// What of a decoded path is to be looked for in the folder, without a slash in front; `None` if the path is not there.
    pub fn within<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        match path.strip_prefix(self.path.as_bytes())? {
            [] => Some(&[]),
            [b'/', rest @ ..] => Some(rest),
            _ => None,
        }
    }
}
