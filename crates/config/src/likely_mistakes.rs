//! Warns of valid settings that are probably mistakes: they have no effect, or another one than their keys suggest.

use std::net::{IpAddr, SocketAddr};

use crate::reader::{ConfigSource, KeyPosition};
use crate::site_marks::SiteMarks;
use crate::unreachable::may_overlap;
use crate::{
    ClassConfig, ClientAuthConfig, OriginUrl, ProcessConfig, RequestConditions, RouteTo,
    RuleAction, SiteConfig, SiteName,
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

/// Warns of `http3` without a site that uses TLS.
pub(crate) fn check_http3(
    source: &ConfigSource<'_>,
    server: &ProcessConfig,
    position: Option<&KeyPosition>,
    sites: &[(SiteConfig, SiteMarks)],
) {
    if let Some(position) = position
        && server.http3
        && !sites.iter().any(|(site, _)| site.tls.is_some())
    {
        source.warn(
            position,
            "http3 has no effect: no site has [site.tls], which HTTP/3 needs",
            "http3 = false, or [site.tls]",
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
            let host = match host.as_str() {
                "localhost" => Some(IpAddr::from([127, 0, 0, 1])),
                other => other.parse::<IpAddr>().ok(),
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
            if host.is_some_and(is_own) {
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
