//! The fingerprint of a site. A site of a new configuration may use the stored responses of an old one if both
//! fingerprints match. This module is independent of the store.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use lowroad_config as config;
use lowroad_config::{OriginUrl, RouteTo, SiteName};
use lowroad_site_rules::BaseFolders;
use lowroad_store::disk_cache::{SiteIdentity, site_identity};

/// The settings on which a site's stored responses depend.
#[derive(Clone)]
pub struct SiteFingerprint {
    parts: FingerprintParts,
    /// The servers of each route to an origin. The servers of an origin are interchangeable: if one of them remains,
    /// the stored responses stay valid.
    servers: Vec<Vec<OriginUrl>>,
    stable: SiteIdentity,
    key: u64,
}

/// The settings that must be equal for a site to use the stored responses of another.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FingerprintParts {
    bases: BaseFolders,
    /// The configuration of the site, without the settings on which no stored response depends. A new setting is part
    /// of the fingerprint until it is excluded here by name.
    rules: config::SiteConfig,
    /// The modules to which the routes refer.
    modules: Vec<config::ModuleConfig>,
    databases: Vec<config::DatabaseConfig>,
}

impl SiteFingerprint {
    /// Computes the fingerprint of a site in these folders.
    pub fn new(
        site: &config::SiteConfig,
        config: &config::Config,
        bases: BaseFolders,
    ) -> SiteFingerprint {
        let mut rules = config::SiteConfig {
            access: Vec::new(),
            redirects: Vec::new(),
            error_pages: Default::default(),
            proxy_protocol: Vec::new(),
            trusted_proxies: Default::default(),
            purge_from: Vec::new(),
            // These decide whether a response is sent, and about fields that are not stored.
            cors: Vec::new(),
            maintenance: Default::default(),
            bandwidth: None,
            canonical_host: None,
            trailing_slash: Default::default(),
            // Responses do not depend on certificates and TLS versions.
            tls: None,
            routes: site.routes.iter().map(without_limits).collect(),
            ..site.clone()
        };
        // Handlers receive the host and the address, on which their responses may therefore depend.
        if site.routes.is_empty() {
            rules.names = vec![SiteName::Default];
            rules.listen = Vec::new();
        } else {
            rules.listen.extend(site.tls_addresses());
        }
        let is_named = |module: &&config::ModuleConfig| {
            let refers = |route: &config::RouteConfig| matches!(&route.to, RouteTo::Module(name) if *name == module.name);
            site.routes.iter().any(refers)
        };
        let has_pages = site
            .routes
            .iter()
            .any(|route| matches!(route.to, RouteTo::Pages(_)));
        let servers = site.routes.iter().filter_map(origin_servers).collect();
        let parts = FingerprintParts {
            bases,
            rules,
            modules: config.modules.iter().filter(is_named).cloned().collect(),
            // A template may use any database.
            databases: match has_pages {
                true => config.databases.clone(),
                false => Vec::new(),
            },
        };
        SiteFingerprint::from_parts(parts, servers)
    }

    fn from_parts(parts: FingerprintParts, servers: Vec<Vec<OriginUrl>>) -> SiteFingerprint {
        let text = format!("{parts:?}");
        // `key` is for a hash table of this process only; `stable` is for the disk cache.
        let key = BuildHasherDefault::<DefaultHasher>::default().hash_one(&text);
        // The text includes the version: another version may generate other responses from the same settings.
        let text = format!("{} {text} {servers:?}", env!("CARGO_PKG_VERSION"));
        SiteFingerprint {
            parts,
            servers,
            stable: site_identity(&text),
            key,
        }
    }

    /// A hash for finding candidates: equal if one of two sites [continues](Self::continues) the other.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// Whether this site may use the stored responses of `previous`: all settings are equal, and each origin keeps at
    /// least one of its servers.
    pub fn continues(&self, previous: &SiteFingerprint) -> bool {
        let shares = |(current, earlier): (&Vec<OriginUrl>, &Vec<OriginUrl>)| {
            current.iter().any(|url| earlier.contains(url))
        };
        self.parts == previous.parts && self.servers.iter().zip(&previous.servers).all(shares)
    }

    /// This fingerprint, with the stable identity of the site that it continues.
    pub fn continuing(self, previous: &SiteFingerprint) -> SiteFingerprint {
        SiteFingerprint {
            stable: previous.stable,
            ..self
        }
    }

    /// The fingerprint of the same site in other folders.
    pub fn with_bases(&self, bases: BaseFolders) -> SiteFingerprint {
        let parts = FingerprintParts {
            bases,
            ..self.parts.clone()
        };
        SiteFingerprint::from_parts(parts, self.servers.clone())
    }

    /// The identity of the site in the disk cache. It is equal for all runs of one server version. A site that
    /// continues another one has the same identity.
    pub fn stable(&self) -> SiteIdentity {
        self.stable
    }

    /// The folders of the site's files.
    pub fn bases(&self) -> &BaseFolders {
        &self.parts.bases
    }
}

/// A route without its limits and its load balancing, on which no stored response depends. A new setting of routes or
/// origins is part of the fingerprint until it is excluded here by name.
fn without_limits(route: &config::RouteConfig) -> config::RouteConfig {
    let mut to = route.to.clone();
    if let RouteTo::Origin(origin) = &mut to {
        **origin = origin_without_limits(origin);
    }
    config::RouteConfig {
        timeout_ms: config::RouteConfig::TIMEOUT_MS,
        concurrency_max: config::RouteConfig::CONCURRENCY_MAX,
        tunnels_max: config::RouteConfig::TUNNELS_MAX,
        client_share_percent: config::RouteConfig::CLIENT_SHARE_PERCENT,
        request_buffering: None,
        response_buffering: true,
        mirror: None,
        bandwidth: None,
        to,
        ..route.clone()
    }
}

fn origin_without_limits(origin: &config::OriginConfig) -> config::OriginConfig {
    let default = config::OriginConfig::named(origin.name.clone());
    config::OriginConfig {
        // `continues` compares the servers separately.
        servers: Vec::new(),
        balance: default.balance,
        resolvers: Vec::new(),
        sticky: None,
        check: None,
        connections_max: default.connections_max,
        connect_timeout_ms: default.connect_timeout_ms,
        timeout_ms: None,
        tries_max: default.tries_max,
        retry_percent: default.retry_percent,
        retry_body_max: default.retry_body_max,
        ..origin.clone()
    }
}

fn origin_servers(route: &config::RouteConfig) -> Option<Vec<OriginUrl>> {
    match &route.to {
        RouteTo::Origin(origin) => Some(
            origin
                .servers
                .iter()
                .map(|server| server.url.clone())
                .collect(),
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    use lowroad_config::{Config, parse};

    /// The fingerprint of the only site of this configuration.
    fn of(settings: &str) -> SiteFingerprint {
        let text = format!(
            "[[module]]\nname = \"a\"\nlinked = \"hello\"\n[[database]]\nname = \"d\"\n\
             url = \"sqlite:/d\"\n[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"/\"\n{settings}"
        );
        of_text(&text)
    }

    fn of_text(text: &str) -> SiteFingerprint {
        let config: Config = parse(text, Path::new("/lowroad.toml")).expect(text);
        let base = BaseFolders::from_site(&config.sites[0]).expect("a folder");
        SiteFingerprint::new(&config.sites[0], &config, base)
    }

    #[test]
    fn settings_that_affect_stored_responses_change_fingerprint() {
        assert!(of("").continues(&of("")));
        for other in [
            "listing = true\n",
            "hidden = true\n",
            "index = [\"other\"]\n",
            "symlinks = \"none\"\n",
            "[site.compress]\nlen_min = 0\n",
            "[site.types]\nx = \"text/x\"\n",
            "[[site.header]]\nset = { X-Own = \"1\" }\n",
            "[[site.cache_control]]\npattern = \"*\"\nvalue = \"no-cache\"\n",
            "[[site.route]]\npattern = \"/x\"\nmodule = \"a\"\n",
        ] {
            assert!(!of("").continues(&of(other)), "{other}");
        }
        assert!(
            !of("")
                .continues(&of("").with_bases(BaseFolders::from_site(&tmp()).expect("a folder")))
        );
    }

    fn tmp() -> config::SiteConfig {
        config::site_for_folder(std::env::temp_dir())
    }

    #[test]
    fn settings_that_do_not_affect_stored_responses_keep_fingerprint() {
        for same in [
            "names = [\"a\"]\n",
            "[site.error_pages]\n404 = \"/404.html\"\n",
            "purge_from = \"127.0.0.1\"\n",
            "[[site.redirect]]\nfrom = \"/a\"\nto = \"/b\"\n",
        ] {
            assert!(of("").continues(&of(same)), "{same}");
        }
    }

    #[test]
    fn route_limits_and_load_balancing_keep_fingerprint() {
        let of_origin = |route: &str, origin: &str| {
            of(&format!(
                "[[site.route]]\npattern = \"/**\"\norigin = \"app\"\n{route}[[origin]]\nname = \"app\"\n\
                 servers = [\"http://a\", {{ url = \"http://b\", weight = 2 }}]\n{origin}"
            ))
        };
        let same = of_origin("", "");
        for route in [
            "timeout = \"1s\"\n",
            "concurrency = 9\n",
            "tunnels = 9\n",
            "client_share = 9\n",
            "request_buffering = false\n",
            "response_buffering = false\n",
        ] {
            assert!(of_origin(route, "").continues(&same), "{route}");
        }
        for origin in [
            "balance = \"random\"\n",
            "check = {}\n",
            "connections = 9\n",
            "connect_timeout = 9\n",
            "timeout = 9\n",
            "tries = 1\n",
            "retry_percent = 9\n",
            "retry_body_max = 9\n",
        ] {
            assert!(of_origin("", origin).continues(&same), "{origin}");
        }
        let of_servers = |name: &str, servers: &str| {
            of(&format!(
                "[[site.route]]\npattern = \"/**\"\norigin = \"{name}\"\n\
                 [[origin]]\nname = \"{name}\"\nservers = [{servers}]\n"
            ))
        };
        let more = "\"http://a\", \"http://b\", { url = \"http://c\", backup = true }";
        assert!(of_servers("app", more).continues(&same));
        assert!(!of_servers("app", "\"http://d\"").continues(&same));
        assert!(!of_servers("other", more).continues(&same));
        let of_url = |url: &str| {
            of(&format!(
                "[[site.route]]\npattern = \"/**\"\norigin = \"{url}\"\n"
            ))
        };
        assert!(!of_url("http://a").continues(&of_url("http://b")));
        for other in [
            of_origin("own_redirects = false\n", ""),
            of_origin("missing = true\n", ""),
            of_origin("cookie = \"a\"\n", ""),
            of_origin("[site.route.cache]\nttl = 9\n", ""),
            of_origin("", "host = \"origin\"\n"),
            of_origin("", "proxy_protocol = \"v1\"\n"),
        ] {
            assert!(!other.continues(&same));
        }
    }

    #[test]
    fn fingerprint_includes_modules_and_databases_only_where_used() {
        let text = |module: &str, database: &str, route: &str| {
            of_text(&format!(
                "[[module]]\nname = \"a\"\nlinked = \"hello\"\n{module}[[database]]\nname = \"d\"\n\
                 url = \"sqlite:/{database}\"\n[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"/\"\n{route}"
            ))
        };
        let module = "[[site.route]]\npattern = \"/x\"\nmodule = \"a\"\n";
        let pages = "[[site.route]]\npattern = \"*.x\"\npages = true\n";
        let settings = "[module.settings]\nx = \"y\"\n";
        assert!(!text("", "d", module).continues(&text(settings, "d", module)));
        assert!(text("", "d", pages).continues(&text(settings, "d", pages)));
        assert!(!text("", "d", pages).continues(&text("", "e", pages)));
        assert!(text("", "d", module).continues(&text("", "e", module)));
        assert!(!of(module).continues(&of(&format!("names = [\"a\"]\n{module}"))));
    }
}
