//! Reads what a route says of an origin: its URL, and how it is reached. Looks no name up, so that a file is as good
//! whether the network is there or not.

use std::net::IpAddr;
use std::path::PathBuf;

use crate::named::DAY_MS;
use crate::process::count;
use crate::reader::{Item, Section};
use crate::value::Refused;
use crate::{Name, Origin, OriginUrl};

const REFUSED: Refused = Refused {
    what: "the URL of an origin",
    allowed: "http://HOST, http://HOST:PORT, unix:/PATH; without a path, since paths are passed on as they come",
};

/// The origin of a route.
pub(crate) fn origin(section: &Section<'_>, item: &Item<'_>) -> Option<Origin> {
    let default = Origin::new(item.read(url)?);
    let connect_timeout_ms = default.connect_timeout_ms;
    Some(Origin {
        connections_max: count(section, "connections", default.connections_max, 1..=65_536),
        connect_timeout_ms: section.duration_ms("connect_timeout", connect_timeout_ms, 1..=DAY_MS),
        ..default
    })
}

/// Reads `http://HOST:PORT` or `unix:/PATH`.
///
/// # Errors
/// Any other text.
pub fn url(text: &str) -> Result<OriginUrl, Refused> {
    if let Some(path) = text.strip_prefix("unix:") {
        let is_path = path.starts_with('/') && !path.chars().any(char::is_control);
        return is_path
            .then(|| OriginUrl::Unix(PathBuf::from(path)))
            .ok_or(REFUSED);
    }
    let authority = text.strip_prefix("http://").ok_or(REFUSED)?;
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port_number(port).ok_or(REFUSED)?),
        _ => (authority, 80),
    };
    let host = match host.strip_prefix('[') {
        Some(inner) => {
            let address = inner.strip_suffix(']').ok_or(REFUSED)?;
            address.parse::<IpAddr>().map_err(|_| REFUSED)?.to_string()
        }
        None => match Name::parse(host) {
            Ok(Name::Exact(host)) => host,
            _ => return Err(REFUSED),
        },
    };
    Ok(OriginUrl::Http { host, port })
}

fn port_number(text: &str) -> Option<u16> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| is_number && *port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(host: &str, port: u16) -> Result<OriginUrl, Refused> {
        let host = host.to_string();
        Ok(OriginUrl::Http { host, port })
    }

    #[test]
    fn an_origin_is_a_url_without_a_path() {
        assert_eq!(url("http://127.0.0.1:3000"), http("127.0.0.1", 3000));
        assert_eq!(url("http://App.internal/"), http("app.internal", 80));
        assert_eq!(url("http://[::1]:81"), http("::1", 81));
        assert_eq!(url("http://[::1]"), http("::1", 80));
        let socket = OriginUrl::Unix("/run/app.sock".into());
        assert_eq!(url("unix:/run/app.sock"), Ok(socket));
        for text in [
            "",
            "127.0.0.1:3000",
            "http://",
            "http://a/b",
            "http://a:0",
            "http://a:x",
            "http://a:+1",
            "http://[::1",
            "http://u@a",
            "http://_",
            "http://*.a",
            "unix:run",
            "ftp://a",
        ] {
            assert_eq!(url(text), Err(REFUSED), "{text}");
        }
    }
}
