//! Positions of a site's values in the configuration text.

use crate::reader::KeyPosition;

/// Positions of a site's values in the text, for later checks.
pub(crate) struct SiteMarks {
    /// The position of each name; for the default name, the position of the site.
    pub(crate) names: Vec<KeyPosition>,
    /// The position of each address in `listen`.
    pub(crate) listen: Vec<KeyPosition>,
    /// The position of each TLS address.
    pub(crate) tls: Vec<KeyPosition>,
    /// The position of the root; None without a usable root.
    pub(crate) root: Option<KeyPosition>,
    /// The positions of the aliases' folders, in the order of the aliases.
    pub(crate) aliases: Vec<KeyPosition>,
    /// The positions of the error pages, in the order of the site's `error_pages`.
    pub(crate) error_pages: Vec<KeyPosition>,
    /// The position of the key `proxy_protocol`; None without the key.
    pub(crate) proxy_protocol: Option<KeyPosition>,
    /// The positions in each route, in the order of the site's routes.
    pub(crate) routes: Vec<RouteMarks>,
    /// The positions of the destinations of the site's redirects, in their order.
    pub(crate) redirects: Vec<KeyPosition>,
    /// The positions of the tables of the site's rewrites, in their order.
    pub(crate) rewrites: Vec<KeyPosition>,
    /// The positions of the tables of header rules, by their number.
    pub(crate) headers: Vec<KeyPosition>,
    /// The number and the position of the table of each CORS rule.
    pub(crate) cors: Vec<(usize, KeyPosition)>,
    /// The positions of the action keys, in the order of the site's access rules.
    pub(crate) access: Vec<KeyPosition>,
}

/// Positions of a route's values in the text.
#[derive(Clone)]
pub(crate) struct RouteMarks {
    /// The number of the table; each of its patterns is a route.
    pub(crate) table: usize,
    /// The handler key.
    pub(crate) handler: KeyPosition,
    /// The origin of the mirror, if the route has one.
    pub(crate) mirror: Option<KeyPosition>,
    pub(crate) caching: CacheMarks,
}

/// Positions of the values of `[site.route.cache]`.
#[derive(Clone, Default)]
pub(crate) struct CacheMarks {
    /// The elements of `ignore_arguments`, in the order of `CacheConfig::ignored_arguments`.
    pub(crate) ignored: Vec<KeyPosition>,
    pub(crate) sorted: Option<KeyPosition>,
    pub(crate) ttl: Option<KeyPosition>,
    /// The tables of `rule`, in the order of `CacheConfig::rules`.
    pub(crate) rules: Vec<KeyPosition>,
}
