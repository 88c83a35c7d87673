//! Warns of valid settings that are probably mistakes: they have no effect, or another one than their keys suggest.

use std::net::{IpAddr, SocketAddr};

use lowroad_variables::{TemplatePart, Variable};

use crate::reader::{ConfigSource, KeyPosition};
use crate::site_marks::SiteMarks;
use crate::unreachable::may_overlap;
use crate::{
    ClassConfig, ClientAuthConfig, OriginConfig, OriginHost, OriginUrl, ProcessConfig,
    RequestConditions, RouteConfig, RouteTo, RuleAction, SiteConfig, SiteName,
};

/// Warns of likely mistakes in sites.
pub(crate) fn check_sites(source: &ConfigSource<'_>, sites: &[(SiteConfig, SiteMarks)]) {
    for (site, marks) in sites {
        warn_of_denied_clients(source, site, marks);
        // Of several sites with an address, a request for another host is a request to another site.
        let is_shared = |own: SocketAddr| {
            let sharing = sites
                .iter()
                .filter(|(it, _)| it.addresses().any(|it| *it == own));
            sharing.count() > 1
        };
        warn_of_loops(source, site, marks, &is_shared);
    }
}

/// Warns of `early_data` without HTTP/3.
pub(crate) fn check_early_data(
    source: &ConfigSource<'_>,
    server: &ProcessConfig,
    position: Option<&KeyPosition>,
    sites: &[(SiteConfig, SiteMarks)],
) {
    let has_http3 = server.http3 && sites.iter().any(|(site, _)| site.tls.is_some());
    if let Some(position) = position
        && server.early_data
        && !has_http3
    {
        source.warn(
            position,
            "early_data has no effect without HTTP/3",
            "early_data = false, or [site.tls] with http3 = true",
        );
    }
}

/// Warns of classes with hosts that no site has.
pub(crate) fn check_classes(
    source: &ConfigSource<'_>,
    classes: &[(ClassConfig, KeyPosition)],
    sites: &[(SiteConfig, SiteMarks)],
) {
    // Trusted proxies report other hosts than those that select a site.
    let is_behind_proxy = |site: &SiteConfig| !site.trusted_proxies.addresses.is_empty();
    if sites.iter().any(|(site, _)| is_behind_proxy(site)) {
        return;
    }
    let is_served = |host: &SiteName| {
        let mut names = sites.iter().flat_map(|(site, _)| &site.names);
        names.any(|name| may_overlap(name, host))
    };
    for (class, position) in classes {
        let mut unserved = class.members.hosts.iter().filter(|host| !is_served(host));
        if let Some(host) = unserved.next() {
            let host = match host {
                SiteName::Wildcard(domain) => format!("*.{domain}"),
                SiteName::Exact(host) => host.clone(),
                SiteName::Default => continue,
            };
            source.warn(
                position,
                format!("hosts: no site has the name {host}"),
                "names of sites",
            );
        }
    }
}

/// Warns of a refusal of clients without a certificate at a site that requests none.
fn warn_of_denied_clients(source: &ConfigSource<'_>, site: &SiteConfig, marks: &SiteMarks) {
    // Over TLS with requested certificates, the rule refuses those without one, as intended.
    let clients = site.tls.as_ref().map(|tls| &tls.clients);
    if clients.is_some_and(|clients| *clients != ClientAuthConfig::None) {
        return;
    }
    for (rule, position) in site.access.iter().zip(&marks.access) {
        let is_refusal = matches!(rule.action, RuleAction::Deny(_) | RuleAction::Close);
        if is_refusal && is_without_certificate(&rule.conditions) {
            source.warn(
                position,
                "client_certificate = false holds for all requests: the site requests no certificates",
                "client = \"request\" in [site.tls], or the rule without it",
            );
        }
    }
}

fn is_without_certificate(conditions: &RequestConditions) -> bool {
    conditions.has_certificate == Some(false)
}

/// Warns of an origin at an address at which the same site listens: each request would come back.
fn warn_of_loops(
    source: &ConfigSource<'_>,
    site: &SiteConfig,
    marks: &SiteMarks,
    is_shared: &dyn Fn(SocketAddr) -> bool,
) {
    for (route, marks) in site.routes.iter().zip(&marks.routes) {
        let RouteTo::Origin(origin) = &route.to else {
            continue;
        };
        // Names are not looked up here: their addresses may change.
        for server in &origin.servers {
            let OriginUrl::Http { host, port, .. } = &server.url else {
                continue;
            };
            let is_own = |ip: IpAddr| {
                site.addresses().any(|own| {
                    // A socket of `[::]` accepts IPv4, too.
                    let is_family = own.ip().is_ipv6() || ip.is_ipv4();
                    let is_every = own.ip().is_unspecified() && ip.is_loopback() && is_family;
                    let is_address = own.ip() == ip || is_every;
                    own.port() == *port && *port != 0 && is_address && !is_shared(*own)
                })
            };
            let is_loop = takes_host(site, &sent_host(route, origin, host));
            if is_loop && loop_address(host).is_some_and(is_own) {
                source.warn(
                    &marks.handler,
                    format!(
                        "the origin {} is an address of this site: its requests may come back to this route",
                        server.url
                    ),
                    "the address of another server",
                );
            }
        }
    }
}

/// The address of a URL's host, if it is known without a lookup.
fn loop_address(host: &str) -> Option<IpAddr> {
    match host {
        "localhost" => Some(IpAddr::from([127, 0, 0, 1])),
        other => other.parse().ok(),
    }
}

/// The Host field of requests to an origin.
enum SentHost<'c> {
    /// That of the client, so that a site of this server has it.
    Client,
    /// This one.
    Known(&'c str),
    /// The request decides.
    Variable,
}

/// The Host field of requests to the server with the host `url_host`.
fn sent_host<'c>(
    route: &'c RouteConfig,
    origin: &'c OriginConfig,
    url_host: &'c str,
) -> SentHost<'c> {
    if let Some(host) = &route.request.host {
        // Other texts with variables may name any host.
        return match host.parts() {
            [TemplatePart::Text(host)] => SentHost::Known(host),
            [TemplatePart::Variable(Variable::Host | Variable::Authority)] => SentHost::Client,
            _ => SentHost::Variable,
        };
    }
    match &origin.host {
        OriginHost::Client => SentHost::Client,
        OriginHost::Origin => SentHost::Known(url_host),
        OriginHost::Name(name) => SentHost::Known(name),
    }
}

/// Whether a site that is alone at its address answers requests with this Host. It refuses other hosts with 421.
fn takes_host(site: &SiteConfig, host: &SentHost<'_>) -> bool {
    match host {
        SentHost::Client => true,
        SentHost::Known(host) => {
            // Names of sites have no port and are in lower case.
            let name = host_name(host).to_ascii_lowercase();
            site.names.iter().any(|it| it.includes(name.as_bytes()))
        }
        SentHost::Variable => false,
    }
}

/// The name of a Host field, without its port.
fn host_name(host: &str) -> &str {
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) => name,
        _ => host,
    }
}
