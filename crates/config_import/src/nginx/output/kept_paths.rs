//! Locations that answer the paths of their own rewrites: `rewrite … break` in front of `proxy_pass`.
//!
//! A rewrite of Lowroad leads to another path of the site, like `last` of nginx. So these rewrites lead to a route that clients
//! can't request, below a separate folder, which the route removes again.

use crate::nginx::locations::Location;
use crate::nginx::settings::PathChange;
use crate::path_globs::PathGlobs;

/// The front of a path that a location removes from requests to its origin, and the one that it adds.
pub struct ReplacedPrefix {
    /// The removed front; perhaps empty.
    pub removed: String,
    /// The added front; perhaps empty.
    pub added: String,
}

impl Location {
    /// The rewrites after which the location answers.
    fn kept_changes(&self) -> impl Iterator<Item = &PathChange> {
        let changes = self.content.changes.iter();
        changes.filter(|it| it.stays && it.status.is_none())
    }

    /// `rewrite ^/api/(.*)$ /$1 break`, which the keys of a route say.
    pub fn replaced_prefix(&self) -> Option<ReplacedPrefix> {
        let mut changes = self.content.changes.iter().filter(|it| it.status.is_none());
        let (Some(change), None) = (changes.next(), changes.next()) else {
            return None;
        };
        let is_folder = self.globs == PathGlobs::prefix(&self.text) && self.text.ends_with('/');
        let is_whole = change.regex.replace('\\', "") == format!("^{}(.*)$", self.text);
        let added = change.to.strip_suffix("/$1")?;
        // A query or a condition needs a rewrite.
        let is_plain = !added.contains(['$', '?']) && change.conditions.is_empty();
        let is_kept = change.stays && self.content.proxy.is_some() && self.name.is_none();
        (is_folder && is_whole && is_plain && is_kept).then(|| ReplacedPrefix {
            removed: self.text.trim_end_matches('/').to_string(),
            added: added.to_string(),
        })
    }

    /// The folder of the route for rewritten paths; `None` if no rewrite needs one. `index` is that of the location.
    pub fn kept_folder(&self, index: usize) -> Option<String> {
        let is_needed = self.content.proxy.is_some()
            && self.kept_changes().next().is_some()
            && self.replaced_prefix().is_none();
        is_needed.then(|| format!("/rewritten-{}", index + 1))
    }

    /// Whether it sends the files of rewritten paths, which other locations would answer otherwise.
    pub fn keeps_files(&self) -> bool {
        let is_part = self.text != "/" && self.content.alias.is_none();
        is_part && self.kept_changes().next().is_some()
    }
}
