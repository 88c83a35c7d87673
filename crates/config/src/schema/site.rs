//! A site: its names, listeners and files (RFC 9110 §4.2, §7.2).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use crate::AddressPrefix;

use super::{
    AliasConfig, AuthConfig, BandwidthLimit, CompressConfig, CorsConfig, EntityTags, HeaderRule,
    MaintenanceConfig, PatternRule, RedirectConfig, RewriteConfig, RouteConfig, RuleAction,
    RuleConfig, TlsConfig, TrailingSlash, TrustedProxies,
};

/// One site: names, listeners, and how its requests are answered. `[[site]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteConfig {
    /// The host names of the site; never empty. Default: `SiteName::Default` alone.
    pub names: Vec<SiteName>,
    /// The addresses it listens at without TLS, no address twice; empty only with [`SiteConfig::tls`]. Default
    /// 127.0.0.1:8080, and none with TLS.
    ///
    /// An IPv6 wildcard address (`[::]`, in the file also `*:PORT`) stands for IPv4 as well.
    pub listen: Vec<SocketAddr>,
    /// The folder of its files. No default; not needed if routes answer every path.
    pub root: SiteRoot,
    /// Folders outside the root. `[[site.alias]]`
    pub aliases: Vec<AliasConfig>,
    /// Index file names for a folder, tried in this order; may be empty.
    /// Default `index.html`, then the `index` of FastCGI routes with a matching pattern.
    pub index: Vec<String>,
    /// Whether a folder without an index file is answered with a list of its files. Default false.
    pub listing: bool,
    /// Whether names that begin with a dot are served. Default false: they are 404, except `.well-known`.
    pub hidden: bool,
    /// Which symbolic links are followed. Default `SymlinkPolicy::Beneath`.
    pub symlinks: SymlinkPolicy,
    /// The source of files' entity tags. Default [`EntityTags::File`].
    pub etag: EntityTags,
    /// Compression, precompressed or on the fly. `[site.compress]`
    pub compress: CompressConfig,
    /// Media types by file name extension (lower case, no dot), in addition to the built-in table, which they override.
    /// `[site.types]`
    pub types: Vec<(String, String)>,
    /// Pages for statuses 400 to 599, as absolute paths under the root. A class (`5xx`) stands for all statuses without an
    /// entry. `[site.error_pages]`
    pub error_pages: BTreeMap<u16, String>,
    /// Values of `Cache-Control`; the first pattern that matches applies. `[[site.cache_control]]`
    pub cache_control: Vec<PatternRule>,
    /// Access control rules, applied in this order before redirects, routes and files. `[[site.rule]]`
    pub access: Vec<RuleConfig>,
    /// Redirects, tried in this order before any file. `[[site.redirect]]`
    pub redirects: Vec<RedirectConfig>,
    /// Rewrites, tried in this order after redirects. `[[site.rewrite]]`
    pub rewrites: Vec<RewriteConfig>,
    /// Fields to set and to remove; all matching rules are applied in order. `[[site.header]]`
    pub headers: Vec<HeaderRule>,
    /// The origins that may read responses; the first rule that matches applies. `[[site.cors]]`
    pub cors: Vec<CorsConfig>,
    /// The maintenance mode. `[site.maintenance]`
    pub maintenance: MaintenanceConfig,
    /// The host to which requests for the other names are redirected. Key `canonical_host`.
    pub canonical_host: Option<String>,
    /// The form of paths to which others are redirected. Key `trailing_slash`.
    pub trailing_slash: TrailingSlash,
    /// Routes to handlers; the first that matches applies.
    /// `[[site.route]]`
    pub routes: Vec<RouteConfig>,
    /// Proxies whose connections to the site's addresses begin with a PROXY header, of version 1 or 2, which names the
    /// client; other peers may not send one. The same for all sites of an address. Default: none.
    pub proxy_protocol: Vec<AddressPrefix>,
    /// Proxies that report their clients in a field. Default: none.
    pub trusted_proxies: TrustedProxies,
    /// How it is served over TLS, if it is. `[site.tls]`
    pub tls: Option<TlsConfig>,
    /// The longest request body in bytes, if it is shorter than that of `[limits]`. Key `body_len_max`.
    pub body_len_max: Option<u64>,
    /// The bandwidth of each response. Keys `rate` and `after`.
    pub bandwidth: Option<BandwidthLimit>,
    /// Clients that may purge by the method PURGE. Default: none, since behind a proxy all requests come from its
    /// address.
    pub purge_from: Vec<AddressPrefix>,
    /// The server to which a connection is passed through from the first request that is not fully understood. Default
    /// none: such a request is refused. Not in files: only `attach`, in front of another web server, sets it.
    pub pass_through: Option<PassThroughConfig>,
}

/// A server that receives connections unchanged. The same for all sites of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassThroughConfig {
    /// The server.
    pub to: SocketAddr,
    /// Source address of the connections; distinct from the one of origin requests, which the server trusts for client
    /// addresses.
    pub from: IpAddr,
    /// Idle timeout: the connection closes after this many milliseconds without progress.
    pub idle_timeout_ms: u64,
}

/// A site for one folder with every default: what `lowroad serve DIR` serves.
pub fn site_for_folder(root: PathBuf) -> SiteConfig {
    SiteConfig {
        names: vec![SiteName::Default],
        listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 8080))],
        root: SiteRoot::Folder(root),
        aliases: Vec::new(),
        index: vec!["index.html".to_string()],
        listing: false,
        hidden: false,
        symlinks: SymlinkPolicy::Beneath,
        etag: EntityTags::File,
        compress: CompressConfig::default(),
        types: Vec::new(),
        error_pages: BTreeMap::new(),
        cache_control: Vec::new(),
        access: Vec::new(),
        redirects: Vec::new(),
        rewrites: Vec::new(),
        headers: Vec::new(),
        cors: Vec::new(),
        maintenance: MaintenanceConfig::default(),
        canonical_host: None,
        trailing_slash: TrailingSlash::Keep,
        routes: Vec::new(),
        proxy_protocol: Vec::new(),
        trusted_proxies: TrustedProxies::default(),
        tls: None,
        body_len_max: None,
        bandwidth: None,
        purge_from: Vec::new(),
        pass_through: None,
    }
}

impl SiteConfig {
    /// The request fields that the authentication of a rule sets. They are protected on all paths: a client must not forge
    /// the field of one rule on paths of another.
    pub fn protected_fields(&self) -> impl Iterator<Item = &str> {
        let authentications = self.access.iter().filter_map(|rule| match &rule.action {
            RuleAction::Auth(auth) => Some(auth),
            _ => None,
        });
        authentications.flat_map(AuthConfig::fields)
    }

    /// All addresses, without TLS and with it.
    pub fn addresses(&self) -> impl Iterator<Item = &SocketAddr> {
        self.listen.iter().chain(self.tls_addresses())
    }

    /// The addresses with TLS.
    pub fn tls_addresses(&self) -> &[SocketAddr] {
        self.tls.as_ref().map_or(&[], |tls| &tls.listen)
    }
}

/// One of the names of a site: lower case, no trailing dot, A-labels as they came.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SiteName {
    /// This host: `example.com`, or an address as it stands in `Host`: `192.0.2.1`, `[2001:db8::1]`.
    Exact(String),
    /// Every host that ends in a dot and this text: `*.example.com` is held as `example.com`, which
    /// `a.example.com` and `a.b.example.com` match and `example.com` does not.
    Wildcard(String),
    /// Every host that no other site of the listener names. `"_"`, or no names at all.
    Default,
}

/// The folder of a site's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SiteRoot {
    /// No files: a route answers every path.
    None,
    /// One folder for every host.
    Folder(PathBuf),
    /// A folder for each host: `/srv/{host}/htdocs` is prefix `/srv` and suffix `htdocs`.
    PerHost {
        /// The parent of the hosts' folders.
        prefix: PathBuf,
        /// The path from a host's folder to its files, relative; may be empty.
        suffix: String,
    },
}

/// Which symbolic links are followed below the root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SymlinkPolicy {
    /// Those that stay beneath the root. `"beneath"`
    #[default]
    Beneath,
    /// None at all. `"none"`
    None,
    /// All, including those that leave the root. `"follow"`
    Follow,
}
