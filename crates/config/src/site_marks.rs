//! Where in the text a site's values came from.

use crate::reader::At;

/// Where in the text a site's values came from, for the checks that follow.
pub(crate) struct SiteMarks {
    /// As many as the site has names; the site's own place for the name that it has by default.
    pub(crate) names: Vec<At>,
    /// As many as the site has addresses.
    pub(crate) listen: Vec<At>,
    /// As many as the site has addresses with TLS.
    pub(crate) tls: Vec<At>,
    /// None if there is no usable root.
    pub(crate) root: Option<At>,
    /// In the order of the site's aliases.
    pub(crate) aliases: Vec<At>,
    /// In the order of the site's `error_pages`.
    pub(crate) error_pages: Vec<At>,
    /// None without the key.
    pub(crate) proxy_protocol: Option<At>,
    /// Where each route's target is named, in the order of the site's routes.
    pub(crate) routes: Vec<At>,
    /// In the order of the site's rules.
    pub(crate) access: Vec<At>,
}
