//! Parses the URL of an origin.

use std::net::IpAddr;

use crate::server_address;
use crate::value::InvalidValue;
use crate::{OriginUrl, SiteName};

/// The refusal of a text that is no such URL.
const REFUSED: InvalidValue = InvalidValue {
    expected: "the URL of an origin",
    allowed: "http://HOST, http://HOST:PORT, http://_SERVICE._tcp.NAME, h2c://…, https://…, unix:/PATH; with a path only as the origin of a route",
};

/// Reads `http://HOST:PORT`, `https://HOST:PORT` or `unix:/PATH`.
///
/// # Errors
/// Any other text.
pub fn url(text: &str) -> Result<OriginUrl, InvalidValue> {
    if let Some(path) = text.strip_prefix("unix:") {
        return server_address::unix_path(path)
            .map(OriginUrl::Unix)
            .map_err(refused);
    }
    let (encrypted, authority) = match text.strip_prefix("https://") {
        Some(authority) => (true, authority),
        None => (false, text.strip_prefix("http://").ok_or(REFUSED)?),
    };
    // The default ports (RFC 9110 §4.2.1, §4.2.2).
    let port_default = if encrypted { 443 } else { 80 };
    // An empty path and `/` are equivalent (RFC 9110 §4.2.3).
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    let (host, port) = match authority.rsplit_once(':') {
        // In `[::1]` the last colon belongs to the address.
        Some((host, port)) if !port.ends_with(']') => (host, port_number(port).ok_or(REFUSED)?),
        _ => (authority, port_default),
    };
    let host = match host.strip_prefix('[') {
        Some(inner) => {
            let address = inner.strip_suffix(']').ok_or(REFUSED)?;
            let address = address.parse::<IpAddr>().map_err(|_| REFUSED)?;
            address.to_canonical().to_string()
        }
        None => match SiteName::parse(host) {
            Ok(SiteName::Exact(host)) => host,
            _ => return Err(REFUSED),
        },
    };
    if let Ok(ip) = host.parse() {
        server_address::check_ip(ip).map_err(refused)?;
    }
    Ok(OriginUrl::Http {
        encrypted,
        host,
        port,
    })
}

/// The refusal of an address, with its reason.
fn refused(reason: &'static str) -> InvalidValue {
    InvalidValue {
        allowed: reason,
        ..REFUSED
    }
}

fn port_number(text: &str) -> Option<u16> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| is_number && *port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(host: &str, port: u16) -> Result<OriginUrl, InvalidValue> {
        Ok(OriginUrl::Http {
            encrypted: false,
            host: host.to_string(),
            port,
        })
    }

    #[test]
    fn origin_url_has_scheme_and_authority_but_no_path() {
        assert_eq!(url("http://127.0.0.1:3000"), http("127.0.0.1", 3000));
        assert_eq!(url("http://App.internal/"), http("app.internal", 80));
        assert_eq!(url("http://[::1]:81"), http("::1", 81));
        assert_eq!(url("http://[::1]"), http("::1", 80));
        let encrypted = url("https://a.b").expect("a URL");
        assert_eq!(encrypted.to_string(), "https://a.b:443");
        assert_eq!(encrypted.authority(), "a.b");
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
            "ftp://a",
        ] {
            assert_eq!(url(text), Err(REFUSED), "{text}");
        }
    }

    #[test]
    fn unusable_addresses_are_refused_with_the_reason() {
        for text in [
            "unix:run",
            "unix:/",
            "http://[ff02::1]",
            "http://255.255.255.255",
        ] {
            let refusal = url(text).expect_err(text);
            assert!(
                refusal.expected == REFUSED.expected && refusal != REFUSED,
                "{text}"
            );
        }
        assert_eq!(url("unix:///run/app.sock"), url("unix:/run/app.sock"));
        assert_eq!(url("http://[::ffff:10.0.0.1]:81"), http("10.0.0.1", 81));
        assert_eq!(url("http://0.0.0.0:81"), http("0.0.0.0", 81));
    }
}
