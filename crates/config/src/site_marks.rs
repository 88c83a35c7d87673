//! Positions of a site's values in the configuration text.

use crate::reader::KeyPosition;

/// Positions of a site's values in the text, for later checks.
pub(crate) struct SiteMarks {
    /// One for each name; for the default name, the position of the site.
    pub(crate) names: Vec<KeyPosition>,
    /// One for each address in `listen`.
    pub(crate) listen: Vec<KeyPosition>,
    /// One for each TLS address.
    pub(crate) tls: Vec<KeyPosition>,
    /// None without a usable root.
    pub(crate) root: Option<KeyPosition>,
    /// In the order of the site's aliases.
    pub(crate) aliases: Vec<KeyPosition>,
    /// In the order of the site's `error_pages`.
    pub(crate) error_pages: Vec<KeyPosition>,
    /// None without the key.
    pub(crate) proxy_protocol: Option<KeyPosition>,
    /// The handler key of each route, in the order of the site's routes.
    pub(crate) routes: Vec<KeyPosition>,
    /// In the order of the site's access rules.
    pub(crate) access: Vec<KeyPosition>,
}
