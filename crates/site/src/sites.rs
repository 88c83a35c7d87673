//! The table of sites: finds the site of a request, and contains each site's compiled rules.
//!
//! Each load of the configuration builds a new table. A table does not change afterwards, except for the error pages,
//! which are updated when their files change. An unchanged site keeps its number across reloads, and therefore its
//! stored responses.

mod fingerprint;
mod path_conditions;
mod previous_config;

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use lowroad_access_control::tokens::TokenKeySet;
use lowroad_access_control::traffic_classes::ClassTable;
use lowroad_access_control::{AccessPolicy, RuleResources};
use lowroad_cache::query_rules::QueryRules;
use lowroad_config as config;
use lowroad_config::{PrefixSet, SiteName};
use lowroad_engine::tls_session::TlsInfo;
use lowroad_engine::{Exchange, ListenerId};
use lowroad_files::error_pages::ErrorPages;
use lowroad_http::host;
use lowroad_metrics::{MetricScope, ScopeRegistry};
use lowroad_routes::auth_routes::AuthRoutes;
use lowroad_routes::key_watch::KeyReceiver;
use lowroad_routes::route_builder::HandlerSet;
use lowroad_routes::routes::RouteTable;
use lowroad_site_rules::{BaseFolders, SiteRules};
use lowroad_tls_listener::{TlsEndpoint, TlsListeners};

use crate::file_switches::FileSwitches;
use crate::listeners::ListenerSet;
use crate::maintenance::{MaintenanceMode, MaintenanceSwitches};
use fingerprint::SiteFingerprint;
pub use path_conditions::PathConditions;
use previous_config::EarlierSites;

/// All sites, by listener and host name.
pub struct SiteTable {
    /// The sites of each listener, indexed by `ListenerId`; the entry of a closed listener is empty.
    listeners: Vec<NameTable>,
    /// All sites, each of them once.
    pub all: Vec<Arc<Site>>,
    /// The traffic classes, if any are configured.
    pub classes: Option<Arc<ClassTable>>,
    addresses: Vec<(ListenerId, SocketAddr)>,
    /// The TLS endpoint of each listener, indexed by `ListenerId`.
    tls_endpoints: Vec<Option<Arc<TlsEndpoint>>>,
    /// The configured TLS addresses, with their listeners.
    tls_ids: Vec<(SocketAddr, ListenerId)>,
    /// The TLS state of all listeners; `None` without TLS.
    tls: Option<TlsListeners>,
    /// The next unused site number.
    id_next: u32,
    /// The scopes of request metrics.
    pub scopes: Arc<ScopeRegistry>,
    /// The files in conditions.
    switches: Arc<FileSwitches>,
    /// The switches of maintenance modes.
    maintenance: Arc<MaintenanceSwitches>,
}

/// A site.
pub struct Site {
    /// The compiled rules. The number of the site changes whenever its `SiteFingerprint` does.
    pub rules: Arc<SiteRules>,
    /// The error pages of the site.
    pub pages: ErrorPages,
    /// The routes to handlers.
    pub routes: Arc<RouteTable>,
    /// The routes to the servers of forward authentication.
    pub auth_routes: AuthRoutes,
    /// The access policy, if the site has access rules or trusted proxies.
    pub access_policy: Option<Arc<AccessPolicy>>,
    /// The conditions of redirects and rewrites, if any has conditions.
    pub path_conditions: Option<Arc<PathConditions>>,
    /// The maintenance mode.
    pub maintenance: Arc<MaintenanceMode>,
    /// Addresses that may send PURGE.
    pub purge_from: PrefixSet,
    /// Whether the site has rewrites or internal aliases.
    pub has_internal_redirects: bool,
    /// The metric scope of requests that no route answers.
    pub metric_scope: MetricScope,
    /// Whether responses over TLS have Strict-Transport-Security.
    pub has_hsts: bool,
    identity: SiteFingerprint,
}

/// The sites of a listener, by host name.
#[derive(Default)]
struct NameTable {
    exact: HashMap<Box<[u8]>, Arc<Site>>,
    /// `*.example.com` has the key `example.com`.
    wildcard: HashMap<Box<[u8]>, Arc<Site>>,
    default: Option<Arc<Site>>,
    pass_through: Option<config::PassThroughConfig>,
}

/// The site of a request.
pub struct SiteMatch<'s> {
    /// The site.
    pub site: &'s Arc<Site>,
    /// The length of the normalized host name in the caller's buffer; 0 if the name was not needed.
    pub host_len: usize,
}

/// A site and a path. The rules of the site for this path apply to a response.
#[derive(Clone, Copy)]
pub struct SitePath<'a> {
    /// The site.
    pub site: &'a Site,
    /// The decoded path; `/` for a request without a path.
    pub path: &'a [u8],
}

impl SiteTable {
    /// The switches of the maintenance modes.
    pub fn maintenance_switches(&self) -> &MaintenanceSwitches {
        &self.maintenance
    }

    /// Creates the sites of a configuration. `previous` contains the sites in force; their state is reused.
    ///
    /// # Errors
    /// A root that cannot be opened, and the reason.
    pub fn new(
        config: &config::Config,
        listeners: &ListenerSet,
        tls: &TlsListeners,
        handlers: &HandlerSet<'_>,
        previous: Option<&SiteTable>,
    ) -> io::Result<SiteTable> {
        let mut id_next = previous.map_or(1, |previous| previous.id_next);
        let scopes = previous
            .map(|previous| previous.scopes.clone())
            .unwrap_or_default();
        let switches = previous
            .map(|previous| previous.switches.clone())
            .unwrap_or_default();
        let maintenance = previous
            .map(|previous| previous.maintenance.clone())
            .unwrap_or_default();
        let find_switch = |path: &Path| switches.find(path);
        let mut earlier = previous.map(EarlierSites::new).unwrap_or_default();
        let mut all = Vec::new();
        for rules in &config.sites {
            let identity = SiteFingerprint::new(rules, config, BaseFolders::from_site(rules)?);
            let routes = handlers
                .routes(rules, &find_switch)
                .map_err(io::Error::other)?;
            // A continued site keeps its number, with which the keys of its stored responses begin.
            let (id, routes, identity) = match earlier.take_continued(&identity) {
                Some(old) => {
                    let identity = identity.continuing(&old.identity);
                    (
                        old.rules.id,
                        routes.with_storing_flags_of(&old.routes),
                        identity,
                    )
                }
                None => (take_id(&mut id_next), routes, identity),
            };
            // The old policy is found by names instead of by fingerprint: the rules may be unchanged even if other
            // settings have changed.
            let previous_policy = earlier.with_names(rules);
            let previous_policy = previous_policy
                .and_then(|old| Some((&old.rules.config, old.access_policy.as_ref()?)));
            let resources = RuleResources {
                find_password_file: &|file: &Path| earlier.users(file),
                find_switch: &find_switch,
                watch_keys: &|origin: &config::OriginConfig, target: &str, keys| {
                    let watch = handlers.watch_keys(origin, target, IssuerKeys(keys))?;
                    Ok(Box::new(watch))
                },
            };
            let access_policy = AccessPolicy::new(rules, previous_policy, &resources)?;
            let label = lowroad_site_rules::site_label(rules, identity.bases());
            let routes = routes.with_scopes(|route| scopes.scope(&label, &route.name()));
            let mode =
                MaintenanceMode::new(&rules.maintenance, maintenance.find(&label), &find_switch);
            let mut site = Site::new(rules, identity, id, Arc::new(routes), access_policy);
            site.maintenance = Arc::new(mode);
            site.metric_scope = scopes.scope(&label, "");
            site.auth_routes = handlers
                .auth_routes(rules, &find_switch)
                .map_err(io::Error::other)?;
            site.path_conditions = PathConditions::new(rules, &find_switch).map(Arc::new);
            all.push(Arc::new(site));
        }
        let classes = ClassTable::from_rules(
            config,
            previous.and_then(|previous| previous.classes.as_ref()),
        );
        let ids = (0..listeners.count()).map(|id| ListenerId(id as u16));
        let addresses = listeners.addresses_for(&config.sites);
        let tls_endpoints = ids.map(|id| tls.endpoint(addresses.tls_address(id)?));
        let tls_endpoints = tls_endpoints.collect();
        Ok(SiteTable {
            tls_endpoints,
            tls: Some(tls.clone()),
            scopes,
            switches,
            maintenance,
            ..SiteTable::from_sites(all, id_next, classes, config, listeners)
        })
    }

    /// A table in which the sites in `changed` (sorted indices) are replaced by new ones if their folder was replaced;
    /// `None` if no folder was replaced. A site with a folder that cannot be opened is unchanged. Blocks on the disk.
    pub fn with_moved_folders(
        &self,
        changed: &[usize],
        config: &config::Config,
        listeners: &ListenerSet,
    ) -> Option<SiteTable> {
        let mut id_next = self.id_next;
        let find_moved = |number: usize, site: &Site| {
            changed.binary_search(&number).ok()?;
            site.find_moved_folders()
        };
        let rebuild = |(number, site): (usize, &Arc<Site>)| match find_moved(number, site) {
            Some(bases) => {
                let (identity, id) = (site.identity.with_bases(bases), take_id(&mut id_next));
                let (routes, access_policy) = (site.routes.clone(), site.access_policy.clone());
                let mut moved = Site::new(&site.rules.config, identity, id, routes, access_policy);
                moved.metric_scope = site.metric_scope;
                moved.path_conditions = site.path_conditions.clone();
                moved.maintenance = site.maintenance.clone();
                moved.auth_routes = site.auth_routes.clone();
                Arc::new(moved)
            }
            None => site.clone(),
        };
        let all: Vec<Arc<Site>> = self.all.iter().enumerate().map(rebuild).collect();
        let is_unchanged = all
            .iter()
            .zip(&self.all)
            .all(|(new, old)| Arc::ptr_eq(new, old));
        // The classes are shared with the old table, which keeps the counts of running calls.
        let classes = self.classes.clone();
        // If no folder was replaced, the workers need no new table.
        (!is_unchanged).then(|| SiteTable {
            tls_endpoints: self.tls_endpoints.clone(),
            tls: self.tls.clone(),
            scopes: self.scopes.clone(),
            switches: self.switches.clone(),
            maintenance: self.maintenance.clone(),
            ..SiteTable::from_sites(all, id_next, classes, config, listeners)
        })
    }

    /// The rules of all routes for the query in cache keys.
    pub fn query_rules(&self) -> impl Iterator<Item = &QueryRules> {
        let routes = self.all.iter().flat_map(|site| site.routes.iter());
        routes.map(|route| &route.query_rules)
    }

    /// Settings that are still in force although their files cannot be read, as texts for the log.
    pub fn faults(&self) -> impl Iterator<Item = String> {
        let policies = self
            .all
            .iter()
            .filter_map(|site| site.access_policy.as_ref());
        let keys = policies.clone().flat_map(|policy| policy.token_keys());
        let keys = keys.filter_map(|it| Some(format!("keys for tokens: {}", it.fault()?)));
        let passwords = policies.flat_map(|policy| policy.passwords());
        let passwords = passwords.filter_map(|it| {
            let (file, fault) = (it.file().display(), it.fault()?);
            Some(format!("{file}: the previous users stay in force: {fault}"))
        });
        passwords.chain(keys)
    }

    /// Whether any request of these sites is in progress at an origin.
    pub fn has_requests_in_progress(&self) -> bool {
        let mut routes = self.all.iter().flat_map(|site| site.routes.iter());
        routes.any(|route| route.handler.requests_in_progress() > 0)
    }

    fn from_sites(
        all: Vec<Arc<Site>>,
        id_next: u32,
        classes: Option<Arc<ClassTable>>,
        config: &config::Config,
        listeners: &ListenerSet,
    ) -> SiteTable {
        let mut names: Vec<NameTable> = Vec::new();
        names.resize_with(listeners.count(), NameTable::default);
        let addresses = listeners.addresses_for(&config.sites);
        for site in &all {
            for id in addresses.for_site(&site.rules.config) {
                names[usize::from(id.0)].add(site);
            }
        }
        SiteTable {
            listeners: names,
            all,
            classes,
            addresses: listeners.addresses.clone(),
            tls_endpoints: Vec::new(),
            tls_ids: addresses.tls_ids(),
            tls: None,
            id_next,
            scopes: Arc::default(),
            switches: Arc::default(),
            maintenance: Arc::default(),
        }
    }

    /// A filter for the keys of stored responses that belong to these sites.
    pub fn key_filter(&self) -> impl Fn(&[u8]) -> bool {
        let ids: HashSet<u32> = self.all.iter().map(|site| site.rules.id).collect();
        move |key| {
            let id = key.first_chunk().map(|id| u32::from_le_bytes(*id));
            // Site numbers are never reused while the process runs.
            id.is_some_and(|id| ids.contains(&id))
        }
    }

    /// The actual address of a listener; the unspecified address for a Unix socket.
    pub fn address(&self, listener: ListenerId) -> SocketAddr {
        let found = self.addresses.iter().find(|(id, _)| *id == listener);
        found.map_or_else(
            || SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            |(_, address)| *address,
        )
    }

    /// The server to which a listener's connections are passed through, if it has one.
    #[inline]
    pub fn pass_through(&self, listener: ListenerId) -> Option<&config::PassThroughConfig> {
        let names = self.listeners.get(usize::from(listener.0))?;
        names.pass_through.as_ref()
    }

    /// The TLS endpoint of a listener, if it has one.
    #[inline]
    pub fn tls_endpoint(&self, listener: ListenerId) -> Option<&Arc<TlsEndpoint>> {
        self.tls_endpoints.get(usize::from(listener.0))?.as_ref()
    }

    /// Whether the TLS connection of a request was made for a name with other certificates than those for `authority`,
    /// so that the request may be meant for another server (RFC 9110 §15.5.20).
    #[inline]
    pub fn is_misdirected(
        &self,
        listener: ListenerId,
        tls_info: &TlsInfo,
        authority: Option<&[u8]>,
    ) -> bool {
        let authority = authority.unwrap_or_default();
        let server_name = tls_info.server_name.as_deref();
        let is_same = |name: &str| authority.eq_ignore_ascii_case(name.as_bytes());
        // This is the common case, which needs no normalized name.
        if authority.is_empty() || server_name.is_some_and(is_same) {
            return false;
        }
        let mut name = [0; 256];
        let host = host::normalize(authority, &mut name).and_then(|host| str::from_utf8(host).ok());
        match (self.tls_endpoint(listener), host) {
            (Some(endpoint), Some(host)) if server_name != Some(host) => {
                endpoint.is_misdirected(server_name, host)
            }
            _ => false,
        }
    }

    /// The response to the ACME challenge with a token (RFC 8555 §8.3).
    pub fn challenge(&self, token: &[u8]) -> Option<Arc<str>> {
        self.tls.as_ref()?.challenge(token)
    }

    /// The https URL for a host of a site, without a path.
    pub fn https_url(&self, site: &Site, host: &[u8]) -> Option<Vec<u8>> {
        let configured = site.rules.config.tls_addresses().first()?;
        let entry = self
            .tls_ids
            .iter()
            .find(|(address, _)| address == configured);
        let port = entry.map_or(configured.port(), |(_, id)| self.address(*id).port());
        let mut url = [b"https://", host].concat();
        if port != 443 {
            url.extend_from_slice(format!(":{port}").as_bytes());
        }
        Some(url)
    }

    /// Finds the site for a request at `listener` for a valid `authority` (RFC 9110 §7.2). The normalized host name is
    /// written to `name` if it is needed. `None` if no site has the name.
    #[inline]
    pub fn find(
        &self,
        listener: ListenerId,
        authority: Option<&[u8]>,
        name: &mut [u8; 256],
    ) -> Option<SiteMatch<'_>> {
        let names = self.listeners.get(usize::from(listener.0))?;
        let authority = authority.unwrap_or(b"");
        let has_no_names = names.exact.is_empty() && names.wildcard.is_empty();
        // A request without a host (HTTP/1.0; RFC 9112 §3.2) gets the default site. If there is only one site, the name
        // need not be normalized.
        if has_no_names || authority.is_empty() {
            let site = names.default.as_ref()?;
            if !site.rules.has_host_folders() {
                return Some(SiteMatch { site, host_len: 0 });
            }
        }
        let host = host::normalize(authority, name)?;
        let host_len = host.len();
        names.find(host).map(|site| SiteMatch { site, host_len })
    }
}

impl NameTable {
    fn add(&mut self, site: &Arc<Site>) {
        // A listener has at most one server to which it passes connections through.
        self.pass_through = self.pass_through.or(site.rules.config.pass_through);
        for name in &site.rules.config.names {
            match name {
                SiteName::Exact(name) => {
                    self.exact.insert(name.as_bytes().into(), site.clone());
                }
                SiteName::Wildcard(name) => {
                    let suffix = name.strip_prefix("*.").unwrap_or(name);
                    self.wildcard.insert(suffix.as_bytes().into(), site.clone());
                }
                SiteName::Default => self.default = Some(site.clone()),
            }
        }
    }

    /// Exact names take precedence over wildcards, and longer wildcards over shorter ones.
    fn find(&self, host: &[u8]) -> Option<&Arc<Site>> {
        if let Some(site) = self.exact.get(host) {
            return Some(site);
        }
        let mut rest = host;
        while let Some(dot) = rest.iter().position(|b| *b == b'.') {
            rest = &rest[dot + 1..];
            if let Some(site) = self.wildcard.get(rest) {
                return Some(site);
            }
        }
        self.default.as_ref()
    }
}

impl Site {
    /// Whether fields of responses depend on the request.
    #[inline]
    pub fn has_request_fields(&self) -> bool {
        self.rules.header_patterns.depend_on_request() || self.path_conditions.is_some()
    }

    /// Whether a response must not have the site's Strict-Transport-Security: it is for clients that use TLS (RFC 6797
    /// §7.2).
    #[inline]
    pub fn omits_hsts(&self, exchange: &Exchange) -> bool {
        self.has_hsts && !exchange.is_https()
    }

    fn new(
        rules: &config::SiteConfig,
        identity: SiteFingerprint,
        id: u32,
        routes: Arc<RouteTable>,
        access_policy: Option<Arc<AccessPolicy>>,
    ) -> Site {
        let compiled = SiteRules::new(id, identity.stable(), rules, identity.bases());
        Site {
            pages: ErrorPages::load(compiled.base(), rules),
            rules: Arc::new(compiled),
            routes,
            auth_routes: AuthRoutes::default(),
            access_policy,
            purge_from: PrefixSet::new(&rules.purge_from),
            has_internal_redirects: !rules.rewrites.is_empty()
                || rules.aliases.iter().any(|alias| alias.internal),
            metric_scope: MetricScope::default(),
            path_conditions: None,
            maintenance: Arc::default(),
            has_hsts: rules.tls.as_ref().is_some_and(|tls| tls.hsts.is_some()),
            identity,
        }
    }

    /// The configured folders, if they can be opened and one of them was replaced (also by a change of a symbolic link
    /// in its path). Blocks on the disk.
    fn find_moved_folders(&self) -> Option<BaseFolders> {
        // An unreadable folder may become readable again: the site keeps its current folder.
        let found = BaseFolders::from_site(&self.rules.config).ok()?;
        (found != *self.identity.bases()).then_some(found)
    }
}

/// The keys of a token issuer, as they are fetched.
struct IssuerKeys(Arc<TokenKeySet>);

impl KeyReceiver for IssuerKeys {
    fn receive(&self, fetched: Result<Vec<u8>, String>) -> bool {
        match fetched {
            Ok(text) => self.0.replace(&text).is_ok(),
            // The old keys stay in force, and the status shows the reason.
            Err(reason) => {
                self.0.set_fault(Some(reason));
                false
            }
        }
    }

    fn take_request(&self) -> bool {
        self.0.take_refresh_request()
    }
}

/// Returns the next unused site number.
fn take_id(next: &mut u32) -> u32 {
    let id = *next;
    *next = next.wrapping_add(1);
    id
}
