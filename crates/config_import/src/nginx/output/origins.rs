//! Origins: `proxy_pass`, `grpc_pass` and `upstream` as URL of a route or as `[[origin]]`.

use crate::nginx::level::{Definitions, Upstream};
use crate::nginx::settings::UpstreamSettings;
use crate::origin_tables::{OriginGroup, OriginTables};
use crate::toml_values::quoted;

/// The parts of the URL of `proxy_pass` or `grpc_pass`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassUrl {
    /// Whether the scheme is https or grpcs.
    pub is_tls: bool,
    /// Whether the scheme is grpc or grpcs, which means HTTP/2.
    pub is_h2: bool,
    /// `HOST:PORT`, `unix:/PATH` or the name of an upstream.
    pub authority: String,
    /// The path, which replaces that of the location; none without a path in the URL.
    pub path: Option<String>,
}

impl PassUrl {
    /// Reads the URL; none for another scheme.
    pub fn parse(url: &str) -> Option<PassUrl> {
        let (scheme, rest) = url.split_once("://")?;
        let (is_tls, is_h2) = match scheme {
            "http" => (false, false),
            "https" => (true, false),
            "grpc" => (false, true),
            "grpcs" => (true, true),
            _ => return None,
        };
        let (authority, path) = match rest.strip_prefix("unix:") {
            // After a socket's path, nginx begins the path of the URL with a colon.
            Some(socket) => match socket.split_once(':') {
                Some((socket, path)) => (
                    format!("unix:{socket}"),
                    (!path.is_empty()).then(|| path.to_string()),
                ),
                None => (rest.to_string(), None),
            },
            None => match rest.find('/') {
                Some(index) => (rest[..index].to_string(), Some(rest[index..].to_string())),
                None => (rest.to_string(), None),
            },
        };
        Some(PassUrl {
            is_tls,
            is_h2,
            authority,
            path,
        })
    }

    /// Whether HTTP/2 needs the key `protocol`, since the URL does not state it.
    fn needs_protocol(&self) -> bool {
        self.is_h2 && (self.is_tls || self.authority.starts_with("unix:"))
    }

    fn server_url(&self, address: &str) -> String {
        match address.strip_prefix("unix:") {
            Some(socket) => format!("unix:/{}", socket.trim_start_matches('/')),
            None => {
                let scheme = match (self.is_tls, self.is_h2) {
                    (true, _) => "https",
                    (false, true) => "h2c",
                    (false, false) => "http",
                };
                format!("{scheme}://{address}")
            }
        }
    }
}

/// The value of `origin` in a route.
pub struct RouteOrigin {
    /// URL or name.
    pub value: String,
    /// Whether it is a URL, so that the route has the keys of connections.
    pub is_url: bool,
}

/// The origin of a route: its URL if that suffices, else a group.
pub fn route_origin(
    tables: &mut OriginTables,
    url: &PassUrl,
    settings: &UpstreamSettings,
    definitions: &Definitions,
    entry: usize,
) -> RouteOrigin {
    let url = &PassUrl {
        is_h2: url.is_h2 || settings.is_h2,
        ..url.clone()
    };
    let upstream = definitions.upstreams.get(&url.authority);
    let host = origin_host(url, settings, upstream.is_some());
    // With a URL alone, the Host is the client's, and TLS and tries have their defaults.
    if upstream.is_none()
        && host.is_none()
        && !url.is_tls
        && settings.tries.is_none()
        && !url.needs_protocol()
    {
        return RouteOrigin {
            value: url.server_url(&url.authority),
            is_url: true,
        };
    }
    let tls = tls_keys(url, settings);
    let is_unverified = tls.contains(&("verify", "false".to_string()));
    let group = OriginGroup {
        keys: origin_keys(url, settings, upstream, host),
        tls,
        tls_comment: match is_unverified {
            true => "nginx doesn't verify certificates unless proxy_ssl_verify is on.",
            false => "",
        },
        check: Vec::new(),
    };
    RouteOrigin {
        value: tables.name_of(group, &url.authority, entry),
        is_url: false,
    }
}

/// The key `host`; none if the client's Host is sent on, which is the default of Lowroad but not of nginx.
fn origin_host(url: &PassUrl, settings: &UpstreamSettings, is_upstream: bool) -> Option<String> {
    match settings.host.as_deref() {
        Some("client") => None,
        Some(host) => Some(host.to_string()),
        // nginx sends the name of the upstream, which is not the name of a server.
        None if is_upstream && !url.authority.contains('_') => Some(url.authority.clone()),
        // nginx' $proxy_host is localhost for a Unix socket.
        None if url.authority.starts_with("unix:") => Some("localhost".to_string()),
        None => Some("origin".to_string()),
    }
}

fn origin_keys(
    url: &PassUrl,
    settings: &UpstreamSettings,
    upstream: Option<&Upstream>,
    host: Option<String>,
) -> Vec<(&'static str, String)> {
    let servers = match upstream {
        None => quoted(&url.server_url(&url.authority)),
        Some(upstream) => server_list(url, upstream),
    };
    let mut keys = vec![("servers", servers)];
    let has_socket = |upstream: &Upstream| {
        let mut servers = upstream.servers.iter();
        servers.any(|server| server.address.starts_with("unix:"))
    };
    if url.needs_protocol() || url.is_h2 && upstream.is_some_and(has_socket) {
        keys.push(("protocol", quoted("h2")));
    }
    if let Some(upstream) = upstream {
        keys.extend(
            upstream
                .keys
                .iter()
                // Addresses need no name servers.
                .filter(|(key, _)| **key != "resolver" || upstream.has_name())
                .map(|(key, value)| (*key, value.clone())),
        );
    }
    keys.extend(host.map(|host| ("host", quoted(&host))));
    keys.extend(
        settings
            .connect_timeout
            .clone()
            .map(|time| ("connect_timeout", time)),
    );
    keys.extend(settings.tries.clone().map(|tries| ("tries", tries)));
    keys
}

fn server_list(url: &PassUrl, upstream: &Upstream) -> String {
    let servers = upstream.servers.iter().map(|server| {
        let address = quoted(&url.server_url(&server.address));
        match server.keys.is_empty() {
            true => address,
            false => {
                let keys = server
                    .keys
                    .iter()
                    .map(|(key, value)| format!(", {key} = {value}"));
                format!("{{ url = {address}{} }}", keys.collect::<String>())
            }
        }
    });
    let servers: Vec<String> = servers.collect();
    match &servers[..] {
        [server] if server.starts_with('"') => server.clone(),
        _ => format!("[{}]", servers.join(", ")),
    }
}

fn tls_keys(url: &PassUrl, settings: &UpstreamSettings) -> Vec<(&'static str, String)> {
    if !url.is_tls {
        return Vec::new();
    }
    let mut keys: Vec<(&'static str, String)> = settings
        .tls
        .iter()
        .map(|(key, value)| (*key, value.clone()))
        .collect();
    if !settings.verifies {
        keys.insert(0, ("verify", "false".to_string()));
        // Without verification there are no authorities.
        keys.retain(|(key, _)| *key != "ca");
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_proxy_pass_are_read() {
        let parts = |url: &str| PassUrl::parse(url).map(|it| (it.authority, it.path));
        assert_eq!(parts("http://app"), Some(("app".into(), None)));
        assert_eq!(
            parts("http://app/x/"),
            Some(("app".into(), Some("/x/".into())))
        );
        assert_eq!(
            parts("http://unix:/run/a.sock"),
            Some(("unix:/run/a.sock".into(), None))
        );
        assert_eq!(
            parts("http://unix:/run/a.sock:/b"),
            Some(("unix:/run/a.sock".into(), Some("/b".into())))
        );
        assert_eq!(parts("grpc://a"), Some(("a".into(), None)));
        assert_eq!(parts("scgi://a"), None);
    }
}
