//! Reads `[[origin]]` and the origin keys of a route. No host name is resolved: whether a file is valid does not depend
//! on the network.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use crate::named::count;
use crate::named::{self, DAY_MS, HOUR_MS};
use crate::origin_url::url;
use crate::reader::{ConfigSection, ConfigSource, ConfigValue, KeyPosition};
use crate::request::is_encoded_path;
use crate::rules::is_literal_name;
use crate::site_marks::SiteMarks;
use crate::sticky::sticky;
use crate::value::InvalidValue;
use crate::{
    BalanceConfig, HashBy, OriginCheck, OriginConfig, OriginHost, OriginProtocol, OriginServer,
    OriginTls, OriginUrl, ProxyProtocol, RouteTo, SiteConfig, SiteName,
};

/// The upper bound of name servers.
const RESOLVERS_MAX: usize = 8;
/// The upper bound of `retry_body_max`: each request in progress may buffer this much.
const RETRY_BODY_MAX: u64 = 16 << 20;

const REFUSED_IN_ROUTE: InvalidValue = InvalidValue {
    expected: "the URL of an origin",
    allowed: "http://HOST, http://HOST:PORT, http://_SERVICE._tcp.NAME, h2c://…, https://…, unix:/PATH; with a path in normal form perhaps",
};

/// Reads the origin of a route: a URL, or the name of an `[[origin]]`. A named origin has no servers until [`resolve`].
pub(crate) fn read_route_origin(
    section: &ConfigSection<'_>,
    item: &ConfigValue<'_>,
) -> Option<OriginConfig> {
    // URLs contain a colon, names cannot.
    let is_url = item.value_text().is_none_or(|text| text.contains(':'));
    if !is_url {
        // These keys belong in `[[origin]]`, which several routes may share.
        for key in [
            "connections",
            "connect_timeout",
            "retry_body_max",
            "protocol",
        ] {
            section.only_with(key, "a URL as origin; [[origin]] has its own");
        }
        return named::name(item).map(OriginConfig::named);
    }
    let server = item.read(route_url)?;
    let origin = OriginConfig {
        protocol: protocol(section, std::slice::from_ref(&server)),
        ..OriginConfig::new(server.url)
    };
    Some(with_connection_settings(section, origin))
}

/// A server's URL as it is written.
struct WrittenUrl {
    url: OriginUrl,
    /// The scheme is `h2c`: HTTP/2 by prior knowledge.
    is_h2c: bool,
}

impl WrittenUrl {
    /// Reads a URL, of which `h2c` may be the scheme.
    fn read(text: &str) -> Result<WrittenUrl, InvalidValue> {
        let (text, is_h2c) = match text.strip_prefix("h2c://") {
            Some(authority) => (format!("http://{authority}"), true),
            None => (text.to_owned(), false),
        };
        let url = service(&text).map_or_else(|| url(&text), Ok)?;
        Ok(WrittenUrl { url, is_h2c })
    }
}

/// Reads a URL of a service: `http://_SERVICE._tcp.NAME`. Its port is in SRV records (RFC 2782).
fn service(text: &str) -> Option<OriginUrl> {
    let (scheme, host) = text.split_once("://")?;
    let host = host.strip_suffix('/').unwrap_or(host);
    let mut labels = host.splitn(3, '.');
    let (service, protocol) = (labels.next()?.strip_prefix('_')?, labels.next()?);
    let is_label = |text: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=62).contains(&text.len()) && text.bytes().all(plain)
    };
    let is_name = matches!(SiteName::parse(labels.next()?), Ok(SiteName::Exact(_)));
    if !is_name || !is_label(service) || protocol != "_tcp" {
        return None;
    }
    Some(OriginUrl::Http {
        encrypted: match scheme {
            "http" => false,
            "https" => true,
            _ => return None,
        },
        host: host.to_ascii_lowercase(),
        port: 0,
    })
}

/// Reads the address of a name server, with its port perhaps.
fn resolver(text: &str) -> Result<SocketAddr, InvalidValue> {
    let address = text.parse().map(|address| SocketAddr::new(address, 53));
    address.or_else(|_| text.parse()).map_err(|_| InvalidValue {
        expected: "the address of a name server",
        allowed: "ADDRESS, ADDRESS:PORT, [ADDRESS]:PORT",
    })
}

/// Reads `resolver`, and reports it if no server has a name.
fn resolvers(section: &ConfigSection<'_>, servers: &[OriginServer]) -> Vec<SocketAddr> {
    let Some(item) = section.item("resolver") else {
        return Vec::new();
    };
    let has_name = |server: &OriginServer| matches!(&server.url, OriginUrl::Http { host, .. } if host.parse::<IpAddr>().is_err());
    if !servers.is_empty() && !servers.iter().any(has_name) {
        item.report(
            "no server has a name to be resolved",
            "only with a host name in servers",
        );
    }
    if item.is_empty_array() {
        item.report(
            "the list is empty",
            "at least one address; or leave the key out",
        );
    }
    let items = item.one_or_many();
    if let Some(excess) = items.get(RESOLVERS_MAX) {
        excess.report("too many name servers", format!("at most {RESOLVERS_MAX}"));
    }
    items
        .iter()
        .filter_map(|item| item.read(resolver))
        .collect()
}

/// Reads `protocol`, and reports contradictions to the URLs.
fn protocol(section: &ConfigSection<'_>, servers: &[WrittenUrl]) -> OriginProtocol {
    let is_h2c = servers.iter().any(|server| server.is_h2c);
    let choices = [
        ("http/1.1", OriginProtocol::Http1),
        ("h2", OriginProtocol::H2),
        ("auto", OriginProtocol::Auto),
    ];
    let item = section.item("protocol");
    let chosen = item.as_ref().and_then(|item| item.choice(&choices));
    match (&item, chosen) {
        (Some(item), Some(OriginProtocol::Http1 | OriginProtocol::Auto)) if is_h2c => {
            item.report("h2c: means HTTP/2 in clear text", "\"h2\", or http: URLs");
        }
        (Some(item), Some(OriginProtocol::Auto))
            if servers.iter().any(|server| !server.url.is_encrypted()) =>
        {
            item.report(
                "without TLS the protocol can't be negotiated",
                "\"h2\" or \"http/1.1\", or https: URLs only",
            );
        }
        (None, _) if is_h2c && !servers.iter().all(|server| server.is_h2c) => section.report(
            "some URLs are h2c: and others are not, but all servers speak one protocol",
            "h2c: for all, or protocol = \"h2\"",
        ),
        _ => {}
    }
    match is_h2c {
        true => OriginProtocol::H2,
        false => chosen.unwrap_or_default(),
    }
}

/// The path in the URL of a route's origin; `None` if there is none other than `/`.
pub(crate) fn url_path<'d>(item: &ConfigValue<'d>) -> Option<&'d str> {
    let (_, path) = split_path(item.value_text()?);
    (!matches!(path, "" | "/")).then_some(path)
}

/// Reads a URL that may have a path.
fn route_url(text: &str) -> Result<WrittenUrl, InvalidValue> {
    let (server, path) = split_path(text);
    let is_valid = matches!(path, "" | "/") || is_encoded_path(path);
    let server = WrittenUrl::read(server).map_err(|_| REFUSED_IN_ROUTE)?;
    is_valid.then_some(server).ok_or(REFUSED_IN_ROUTE)
}

/// Splits a URL before its path. The path of a Unix socket is a part of the server.
pub(crate) fn split_path(text: &str) -> (&str, &str) {
    let authority_start = text.find("://").map_or(text.len(), |at| at + 3);
    let slash = text[authority_start..].find('/');
    text.split_at(slash.map_or(text.len(), |slash| authority_start + slash))
}

/// Applies the connection and retry keys of a section to an origin.
fn with_connection_settings(section: &ConfigSection<'_>, origin: OriginConfig) -> OriginConfig {
    let connect_timeout_ms = origin.connect_timeout_ms;
    OriginConfig {
        connections_max: count(section, "connections", origin.connections_max, 1..=65_536),
        connect_timeout_ms: section.duration_ms("connect_timeout", connect_timeout_ms, 1..=DAY_MS),
        retry_body_max: section.size("retry_body_max", origin.retry_body_max, 0..=RETRY_BODY_MAX),
        ..origin
    }
}

/// Replaces origin names in routes and mirrors by the `[[origin]]` sections, and reports undefined names.
pub(crate) fn resolve(
    source: &ConfigSource<'_>,
    sites: &mut [(SiteConfig, SiteMarks)],
    origins: &[OriginConfig],
) {
    let names: Vec<&str> = origins.iter().map(|origin| origin.name.as_str()).collect();
    let routes = sites
        .iter_mut()
        .flat_map(|(site, marks)| site.routes.iter_mut().zip(&marks.routes));
    for (route, marks) in routes {
        let of_route = match &mut route.to {
            RouteTo::Origin(origin) => Some((&mut **origin, &marks.handler)),
            _ => None,
        };
        let mirror = route.mirror.as_mut().map(|mirror| &mut *mirror.to);
        let of_mirror = mirror.zip(marks.mirror.as_ref());
        for (origin, position) in of_route.into_iter().chain(of_mirror) {
            // An origin with servers was given by URL.
            if !origin.servers.is_empty() {
                continue;
            }
            match origins.iter().find(|defined| defined.name == origin.name) {
                // Each route holds its own copy: the schema has no table of origins.
                Some(defined) => *origin = defined.clone(),
                None => named::check_defined(source, "origin", &origin.name, position, &names),
            }
        }
    }
}

/// Reads one `[[origin]]`; also returns the position of its name.
pub(crate) fn origin(section: ConfigSection<'_>) -> Option<(OriginConfig, KeyPosition)> {
    let name_item = section.required("name");
    let name = name_item.as_ref().and_then(named::name);
    let servers = section.required("servers").map(ConfigValue::one_or_many);
    // An origin without servers could only answer 502.
    if servers.as_ref().is_some_and(Vec::is_empty) {
        section.report("no server is listed", "at least one URL in servers");
    }
    let servers = servers.unwrap_or_default();
    let mut known = HashSet::new();
    let read = servers.iter().filter_map(|item| {
        let (server, written) = server(item)?;
        // A group has each address once, with the settings of the first entry.
        if !known.insert(written.url.clone()) {
            let message = format!("{} is listed twice", written.url);
            item.warn(message, "each server once; weight for a larger share");
        }
        Some((server, written))
    });
    let (servers, urls): (Vec<OriginServer>, Vec<WrittenUrl>) = read.unzip();
    let protocol = protocol(&section, &urls);
    let default = with_connection_settings(&section, OriginConfig::named(name.unwrap_or_default()));
    let is_encrypted = servers.iter().any(|server| server.url.is_encrypted());
    let tls = match is_encrypted {
        true => section.section("tls").map(tls),
        // Without an https server, `[origin.tls]` would suggest encryption but have no effect.
        false => {
            section.only_with("tls", "a server whose URL is https:");
            None
        }
    };
    let tries = section.count("tries", u64::from(default.tries_max), 1..=16);
    let percent = section.count("retry_percent", u64::from(default.retry_percent), 0..=100);
    let resolvers = resolvers(&section, &servers);
    let origin = OriginConfig {
        servers,
        resolvers,
        balance: balance(&section),
        sticky: section
            .item("sticky")
            .and_then(|item| sticky(&item, &default.name)),
        check: section.section("check").map(check),
        // Without the key (`None`), the route's timeout applies.
        timeout_ms: section
            .item("timeout")
            .map(|_| section.duration_ms("timeout", 30_000, 1..=DAY_MS)),
        tries_max: tries as u32,
        retry_percent: percent as u32,
        host: section
            .item("host")
            .and_then(|item| host(&item))
            .unwrap_or_default(),
        tls: tls.unwrap_or_default(),
        protocol,
        proxy_protocol: proxy_protocol(&section, is_encrypted, protocol),
        ..default
    };
    section.finish();
    Some((origin, name_item?.position))
}

/// Reads a server: a URL, or a table that contains one.
fn server(item: &ConfigValue<'_>) -> Option<(OriginServer, WrittenUrl)> {
    if item.value_text().is_some() {
        let written = item.read(WrittenUrl::read)?;
        return Some((OriginServer::new(written.url.clone()), written));
    }
    let section = item.section()?;
    let written = section
        .required("url")
        .and_then(|item| item.read(WrittenUrl::read));
    let weight = section.count("weight", 1, 1..=1000);
    let backup = section.flag("backup", false);
    section.finish();
    let written = written?;
    let server = OriginServer {
        url: written.url.clone(),
        weight: weight as u32,
        backup,
    };
    Some((server, written))
}

fn balance(section: &ConfigSection<'_>) -> BalanceConfig {
    let choices = [
        ("round-robin", 0),
        ("least-connections", 1),
        ("random", 2),
        ("hash", 3),
    ];
    let chosen = section.choice("balance", &choices, 0);
    if chosen != 3 {
        section.only_with("hash", "balance = \"hash\"");
    }
    match chosen {
        0 => BalanceConfig::RoundRobin,
        1 => BalanceConfig::LeastConnections,
        2 => BalanceConfig::Random,
        _ => {
            let hash_key = section.item("hash").and_then(|item| item.read(hash_by));
            BalanceConfig::Hash(hash_key.unwrap_or_default())
        }
    }
}

pub(crate) fn hash_by(text: &str) -> Result<HashBy, InvalidValue> {
    match text.split_once(':') {
        None if text == "url" => Ok(HashBy::Url),
        None if text == "address" => Ok(HashBy::Address),
        Some(("header", name)) if is_literal_name(name) => Ok(HashBy::Header(name.into())),
        Some(("cookie", name)) if is_literal_name(name) => Ok(HashBy::Cookie(name.into())),
        _ => Err(InvalidValue {
            expected: "the key of a request",
            allowed: "\"url\", \"address\", \"header:NAME\", \"cookie:NAME\"",
        }),
    }
}

fn check(section: ConfigSection<'_>) -> OriginCheck {
    let default = OriginCheck::default();
    let read_count = |key, default: u32| section.count(key, u64::from(default), 1..=100) as u32;
    let check = OriginCheck {
        path: section
            .item("path")
            .and_then(|item| item.read(path))
            .unwrap_or(default.path),
        interval_ms: section.duration_ms("interval", default.interval_ms, 100..=HOUR_MS),
        timeout_ms: section.duration_ms("timeout", default.timeout_ms, 1..=HOUR_MS),
        statuses: section
            .item("status")
            .and_then(|item| item.read(statuses))
            .unwrap_or(default.statuses),
        rise: read_count("rise", default.rise),
        fall: read_count("fall", default.fall),
    };
    section.finish();
    check
}

/// Reads a path in the form of a request target.
fn path(text: &str) -> Result<String, InvalidValue> {
    // The path is written unchanged into a request line.
    let is_path = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_path.then(|| text.to_string()).ok_or(InvalidValue {
        expected: "a path",
        allowed: "/PATH, with a query perhaps, percent-encoded",
    })
}

/// Reads status codes and ranges: `200-299,404`.
fn statuses(text: &str) -> Result<Vec<(u16, u16)>, InvalidValue> {
    let status = |text: &str| {
        // `parse` would also accept "+20" and "0200".
        let three = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
        let status: Option<u16> = three.then(|| text.parse().ok()).flatten();
        status.filter(|status| (100..=599).contains(status))
    };
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (status(first.trim())?, status(last.trim())?);
        (first <= last).then_some((first, last))
    };
    let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
    ranges.ok_or(InvalidValue {
        expected: "a list of statuses",
        allowed: "statuses and ranges of them: \"200\", \"200-299,404\"",
    })
}

fn host(item: &ConfigValue<'_>) -> Option<OriginHost> {
    item.read(|text| match text {
        "client" => Ok(OriginHost::Client),
        "origin" => Ok(OriginHost::Origin),
        // The host is parsed as the authority of a URL, which has the same syntax.
        name => match url(&format!("http://{name}")) {
            // `url` accepts a trailing slash, which a host cannot have.
            Ok(_) if !name.ends_with('/') => Ok(OriginHost::Name(name.into())),
            _ => Err(InvalidValue {
                expected: "a host",
                allowed: "\"client\", \"origin\", or a host name, with :PORT perhaps",
            }),
        },
    })
}

fn tls(section: ConfigSection<'_>) -> OriginTls {
    // TLS client authentication needs a certificate and its key.
    let file = |key| section.item(key).and_then(|item| item.path());
    let (certificate, key) = (file("certificate"), file("key"));
    if certificate.is_some() != key.is_some() {
        section.report("one of certificate and key is missing", "both, or none");
    }
    let tls = OriginTls {
        verify: section.flag("verify", true),
        authorities: file("ca"),
        name: section.item("name").and_then(|item| item.read(tls_name)),
        identity: certificate.zip(key),
    };
    section.finish();
    tls
}

fn tls_name(text: &str) -> Result<String, InvalidValue> {
    match SiteName::parse(text) {
        Ok(SiteName::Exact(name)) => Ok(name),
        _ => Err(InvalidValue {
            expected: "a name that a certificate can have",
            allowed: "a host name or an address",
        }),
    }
}

fn proxy_protocol(
    section: &ConfigSection<'_>,
    is_encrypted: bool,
    protocol: OriginProtocol,
) -> Option<ProxyProtocol> {
    // A connection with a PROXY header belongs to one client, and one with HTTP/2 to all.
    if protocol == OriginProtocol::H2 {
        section.only_with("proxy_protocol", "protocol = \"http/1.1\"");
        return None;
    }
    if is_encrypted {
        section.only_with("proxy_protocol", "servers whose URLs are http: or unix:");
        return None;
    }
    let choices = [("v1", ProxyProtocol::V1), ("v2", ProxyProtocol::V2)];
    section.item("proxy_protocol")?.choice(&choices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_lists_and_ranges_are_parsed() {
        assert_eq!(statuses("200-299, 404"), Ok(vec![(200, 299), (404, 404)]));
        for wrong in ["", "20", "2000", "299-200", "200,", "+20", "700", "2x0"] {
            assert!(statuses(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn hash_key_is_parsed() {
        assert_eq!(hash_by("cookie:a"), Ok(HashBy::Cookie("a".into())));
        assert_eq!(hash_by("address"), Ok(HashBy::Address));
        for wrong in [
            "",
            "uri",
            "header:",
            "header:a b",
            "header:a*",
            "cookie",
            "cookie:a*",
        ] {
            assert!(hash_by(wrong).is_err(), "{wrong:?}");
        }
    }
}
