//! Reads `[site.tls]`, and checks that sites that share an address have compatible settings. No files are accessed:
//! whether a certificate fits its key is checked when the server starts.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use lowroad_variables::Template;

use crate::reader::{ConfigSection, ConfigSource, ConfigValue, KeyPosition};
use crate::rules::is_field_value;
use crate::site::listen_address;
use crate::site_marks::SiteMarks;
use crate::{
    CertificateFiles, ClientAuthConfig, HeaderRule, PathPattern, ProcessConfig, RequestConditions,
    SiteConfig, SoftirqMode, TlsConfig, TlsVersion,
};

/// The field that names the port of HTTP/3.
const ALT_SVC: &str = "Alt-Svc";

/// How long clients remember the port of HTTP/3, in seconds: a day, as browsers do without a value.
const ADVERTISED_S: u32 = 86_400;
/// One year, the minimum for HSTS preload lists.
const HSTS_DEFAULT: &str = "max-age=31536000";
/// The field of HSTS (RFC 6797). It is for responses over TLS only (§7.2).
pub const HSTS: &str = "Strict-Transport-Security";

/// Reads the TLS settings of a site; also returns the positions of its addresses.
pub(crate) fn tls(section: ConfigSection<'_>) -> (TlsConfig, Vec<KeyPosition>) {
    let (listen, marks) = listen(&section);
    let local = section.flag("local", false);
    let automatic = section.flag("automatic", false);
    let certificates = certificates(&section);
    // Without a certificate every handshake would fail.
    if certificates.is_empty() && !local && !automatic {
        section.report(
            "no certificate is configured",
            "certificate and key; automatic = true, with [acme]; or local = true, for development",
        );
    }
    let versions = [("1.2", TlsVersion::Tls12), ("1.3", TlsVersion::Tls13)];
    let tls = TlsConfig {
        listen,
        certificates,
        local,
        automatic,
        clients: clients(&section),
        client_paths: client_paths(&section),
        version_min: section.choice("min_version", &versions, TlsVersion::default()),
        strict_sni: section.flag("strict_sni", false),
        hsts: section.item("hsts").as_ref().and_then(hsts),
        redirect: section.flag("redirect", false),
    };
    section.finish();
    (tls, marks)
}

fn listen(section: &ConfigSection<'_>) -> (Vec<SocketAddr>, Vec<KeyPosition>) {
    // The IPv6 wildcard also accepts IPv4 (ipv6(7)).
    let default = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 443));
    let Some(item) = section.item("listen") else {
        return (vec![default], vec![section.position.clone()]);
    };
    if item.is_empty_array() {
        item.report(
            "no address is listed",
            "at least one ADDR:PORT; or leave the key out",
        );
    }
    let items = item.one_or_many().into_iter();
    items.filter_map(listen_address).unzip()
}

/// Reads the certificates, each with its key and its optional OCSP staple.
fn certificates(section: &ConfigSection<'_>) -> Vec<CertificateFiles> {
    let paths = |key| {
        let item = section.item(key);
        let items = item.map(ConfigValue::one_or_many).unwrap_or_default();
        items
            .iter()
            .filter_map(ConfigValue::path)
            .collect::<Vec<_>>()
    };
    let (certificates, keys) = (paths("certificate"), paths("key"));
    let staples = paths("staple");
    // Certificates and keys are paired by order, so the lists must have equal lengths.
    if certificates.len() != keys.len() {
        section.report(
            format!(
                "there are {} certificates and {} keys",
                certificates.len(),
                keys.len()
            ),
            "as many keys as certificates, in the same order",
        );
    }
    if !staples.is_empty() && staples.len() != certificates.len() {
        section.report(
            format!(
                "there are {} certificates and {} staples",
                certificates.len(),
                staples.len()
            ),
            "none, or one for each certificate, in the same order",
        );
    }
    let staples: Vec<Option<PathBuf>> = match staples.is_empty() {
        true => vec![None; certificates.len()],
        false => staples.into_iter().map(Some).collect(),
    };
    let pairs = certificates.into_iter().zip(keys).zip(staples);
    pairs
        .map(|((certificate, key), staple)| CertificateFiles {
            certificate,
            key,
            staple,
        })
        .collect()
}

fn clients(section: &ConfigSection<'_>) -> ClientAuthConfig {
    let choices = [("request", false), ("require", true)];
    let required = section.item("client");
    let authorities = section.item("client_ca");
    match (required, authorities) {
        (None, None) => ClientAuthConfig::None,
        // Without a CA, client certificates could not be verified.
        (Some(client), None) => {
            client.report("client_ca is missing", "the authorities of clients, in PEM");
            ClientAuthConfig::None
        }
        (None, Some(authorities)) => {
            authorities.report("has no effect here", "only with client");
            ClientAuthConfig::None
        }
        (Some(client), Some(authorities)) => match (client.choice(&choices), authorities.path()) {
            (Some(true), Some(path)) => ClientAuthConfig::Require(path),
            (Some(false), Some(path)) => ClientAuthConfig::Request(path),
            _ => ClientAuthConfig::None,
        },
    }
}

fn client_paths(section: &ConfigSection<'_>) -> Vec<PathPattern> {
    let Some(item) = section.item("client_paths") else {
        return Vec::new();
    };
    if section.is_absent_or_empty("client") {
        item.report("has no effect here", "only with client");
    }
    let items = item.one_or_many();
    items.iter().filter_map(ConfigValue::pattern).collect()
}

/// Reads `true` for the default, or the value of the field.
fn hsts(item: &ConfigValue<'_>) -> Option<String> {
    match (item.value_bool(), item.value_text()) {
        (Some(true), _) => Some(HSTS_DEFAULT.into()),
        (Some(false), _) => None,
        // `max-age` is required (RFC 6797 §6.1.1).
        (None, Some(text)) if text.contains("max-age=") && is_field_value(text) => {
            Some(text.into())
        }
        _ => {
            item.refuse(
                "the value of Strict-Transport-Security",
                "true (a year), or like \"max-age=63072000; includeSubDomains\"",
            );
            None
        }
    }
}

/// The header rule that sends Strict-Transport-Security (RFC 6797).
pub(crate) fn hsts_rule(tls: &TlsConfig) -> Option<HeaderRule> {
    Some(HeaderRule {
        pattern: PathPattern::everything(),
        table: usize::MAX,
        conditions: RequestConditions::default(),
        set: vec![(HSTS.into(), Template::literal(tls.hsts.as_ref()?))],
        append: Vec::new(),
        default: Vec::new(),
        remove: Vec::new(),
    })
}

/// Adds the field that tells clients of HTTP/1 and HTTP/2 the port of HTTP/3 (RFC 7838, RFC 9114 §3.1.1). A response of an
/// origin may have one that names the origin's port, so it is replaced.
pub(crate) fn advertise_http3(site: &mut SiteConfig) {
    if !can_have_http3(site) {
        return;
    }
    let addresses = site.tls_addresses();
    let mut ports = addresses.iter().map(SocketAddr::port);
    // The kernel chooses the number that replaces 0. A stored head has one port, which must be right at each address.
    let Some(port) = ports.next().filter(|port| *port != 0) else {
        return;
    };
    let is_own = |rule: &HeaderRule| {
        rule.set
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case(ALT_SVC))
    };
    if ports.any(|it| it != port) || site.headers.iter().any(is_own) {
        return;
    }
    site.headers.push(advertisement(port));
}

/// Whether clients of a site may use HTTP/3. PROXY headers exist for TCP alone, so behind a proxy that sends them, UDP would
/// hide the clients' addresses.
fn can_have_http3(site: &SiteConfig) -> bool {
    site.proxy_protocol.is_empty()
}

/// The header rule that advertises HTTP/3 at a port.
fn advertisement(port: u16) -> HeaderRule {
    let value = format!("h3=\":{port}\"; ma={ADVERTISED_S}");
    HeaderRule {
        pattern: PathPattern::everything(),
        table: usize::MAX,
        conditions: RequestConditions::default(),
        set: vec![(ALT_SVC.into(), Template::literal(&value))],
        append: Vec::new(),
        default: Vec::new(),
        remove: Vec::new(),
    }
}

impl crate::Config {
    /// Whether a TLS address also accepts HTTP/3.
    pub fn has_http3(&self, address: SocketAddr) -> bool {
        let mut sites = self.sites.iter();
        self.server.http3
            && sites.all(|it| !it.tls_addresses().contains(&address) || can_have_http3(it))
    }

    /// Ends the advertisement of HTTP/3 by the sites at an address with an unusable UDP port. An advertisement is the same at all
    /// addresses of a site, and other sites keep theirs.
    pub fn withdraw_http3(&mut self, address: SocketAddr) {
        let withdrawn = advertisement(address.port());
        for site in &mut self.sites {
            if site.tls_addresses().contains(&address) {
                site.headers.retain(|rule| *rule != withdrawn);
            }
        }
    }
}

/// Checks that an address has TLS for all of its sites or for none, and that its sites agree on the settings that are
/// used before SNI selects a site.
pub(crate) fn check(
    source: &ConfigSource<'_>,
    sites: &[(SiteConfig, SiteMarks)],
    server: &ProcessConfig,
) {
    for (index, (site, marks)) in sites.iter().enumerate() {
        let Some(tls) = &site.tls else { continue };
        for (address, position) in tls.listen.iter().zip(&marks.tls) {
            // Whether a socket speaks TLS is decided before the first byte arrives.
            let plain = sites.iter().position(|(it, _)| it.listen.contains(address));
            if let Some(other) = plain {
                source.report(
                    position,
                    format!("{address} is without TLS in site[{other}].listen"),
                    "either of both",
                );
            }
            let earlier = sites[..index].iter().enumerate();
            let shared = earlier.filter_map(|(other, (site, _))| Some((other, site.tls.as_ref()?)));
            // These settings are used before the handshake selects a site by SNI.
            let mut differing = shared.filter(|(_, other)| {
                let is_equal =
                    (&other.clients, other.version_min) == (&tls.clients, tls.version_min);
                other.listen.contains(address) && !is_equal
            });
            if let Some((other, _)) = differing.next() {
                source.report(
                    position,
                    format!("{address} is an address of site[{other}] too, with another client, client_ca or min_version"),
                    "the same for all sites of an address: they apply before the client has named the site",
                );
            }
        }
        let Some(position) = marks.tls.first() else {
            continue;
        };
        if tls.redirect && site.listen.is_empty() {
            source.report(
                position,
                "redirect, but the site has no listener without TLS",
                "listen in [[site]], as listen = \"*:80\"",
            );
        }
        // Browsers ignore the field over plain http (RFC 6797 §8.1).
        if tls.hsts.is_some() && !tls.redirect && !site.listen.is_empty() {
            source.report(
                position,
                "hsts, but the site also has listeners without TLS, where browsers ignore it",
                "redirect = true, or no listen in [[site]]",
            );
        }
        if site.listen.is_empty() && server.softirq != SoftirqMode::Off {
            let only_tls = sites.iter().all(|(site, _)| site.listen.is_empty());
            if only_tls && index == 0 {
                source.report(
                    position,
                    "server.softirq answers only unencrypted requests, but there is no listener without TLS",
                    "softirq = \"off\"",
                );
            }
        }
    }
}
