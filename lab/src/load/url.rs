//! Parser for URLs on the command line: `http://host:port/path@weight`. Not a general URL parser: it rejects user names
//! and fragments, and decodes nothing.

use std::net::Ipv6Addr;

/// A URL on the command line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TargetUrl {
    /// Whether the scheme is `https`.
    pub tls: bool,
    /// Name or address, without the brackets of IPv6.
    pub name: String,
    pub port: u16,
    /// Path and query.
    pub path: String,
    pub weight: f64,
}

impl TargetUrl {
    /// # Errors
    /// The text names the fault.
    pub(crate) fn parse(text: &str) -> Result<TargetUrl, String> {
        let url_error = |reason: &str| Err(format!("{text:?}: {reason}"));
        let (tls, rest) = if let Some(rest) = text.strip_prefix("http://") {
            (false, rest)
        } else if let Some(rest) = text.strip_prefix("https://") {
            (true, rest)
        } else {
            return url_error("a URL begins with http:// or https://");
        };
        let (authority, path) = match rest.find(['/', '?']) {
            Some(path_start) => rest.split_at(path_start),
            None => (rest, ""),
        };
        let (path, weight) = match split_weight(path) {
            Ok(parts) => parts,
            Err(reason) => return url_error(reason),
        };
        if path
            .bytes()
            .any(|byte| byte <= b' ' || byte == 0x7f || byte == b'#')
        {
            return url_error("a path has no spaces, control characters or #: write them as %20");
        }
        let Some((name, port)) = split_authority(authority, if tls { 443 } else { 80 }) else {
            return url_error(
                "after // a name or address is required, optionally with a port: http://127.0.0.1:80/",
            );
        };
        // A query may directly follow the authority; the empty path before it means / (RFC 9110 section 4.2.3).
        let slash = if path.starts_with('/') { "" } else { "/" };
        Ok(TargetUrl {
            tls,
            name,
            port,
            path: format!("{slash}{path}"),
            weight,
        })
    }

    /// Scheme and authority.
    pub(crate) fn origin(&self) -> String {
        format!(
            "{}://{}",
            if self.tls { "https" } else { "http" },
            self.host()
        )
    }

    /// The value of the `Host` field.
    pub(crate) fn host(&self) -> String {
        // An IPv6 address needs brackets in an authority (RFC 3986 section 3.2.2).
        let name = match self.name.parse::<Ipv6Addr>() {
            Ok(address) => format!("[{address}]"),
            Err(_) => self.name.clone(),
        };
        match (self.tls, self.port) {
            (false, 80) | (true, 443) => name,
            (_, port) => format!("{name}:{port}"),
        }
    }
}

/// Splits `/path@3` into path and weight: a number after the last `@` is the weight.
fn split_weight(path: &str) -> Result<(&str, f64), &'static str> {
    let Some((path_without_weight, number)) = path.rsplit_once('@') else {
        return Ok((path, 1.0));
    };
    // An @ is valid in a path, so only a number behind it is a weight.
    match number.parse::<f64>() {
        Ok(weight) if weight > 0.0 && weight.is_finite() => Ok((path_without_weight, weight)),
        Ok(_) => Err("a weight is more than 0"),
        Err(_) => Ok((path, 1.0)),
    }
}

fn split_authority(authority: &str, default_port: u16) -> Option<(String, u16)> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        address.parse::<Ipv6Addr>().ok()?;
        return Some((address.to_string(), port_of(port, default_port)?));
    }
    let (name, port) = match authority.find(':') {
        Some(port_start) => authority.split_at(port_start),
        None => (authority, ""),
    };
    // An underscore is invalid in a host name (RFC 952) but occurs in internal names.
    let right = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if name.is_empty() || !name.bytes().all(right) {
        return None;
    }
    Some((name.to_string(), port_of(port, default_port)?))
}

fn port_of(text: &str, default_port: u16) -> Option<u16> {
    match text.strip_prefix(':') {
        None if text.is_empty() => Some(default_port),
        None => None,
        Some(port) => port.parse().ok().filter(|port| *port != 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_parsing_yields_port_path_and_weight() {
        let url = TargetUrl::parse("http://127.0.0.1:8080/a?b=c@3").expect("right");
        assert_eq!(
            (url.port, url.path.as_str(), url.weight),
            (8080, "/a?b=c", 3.0)
        );
        assert_eq!(url.host(), "127.0.0.1:8080");
        let url = TargetUrl::parse("https://example.com").expect("right");
        assert_eq!((url.tls, url.port, url.path.as_str()), (true, 443, "/"));
        assert_eq!(url.origin(), "https://example.com");
        let url = TargetUrl::parse("http://[::1]:81/@x").expect("right");
        assert_eq!(
            (url.host().as_str(), url.path.as_str()),
            ("[::1]:81", "/@x")
        );
    }

    #[test]
    fn invalid_urls_are_rejected() {
        for wrong in [
            "localhost/",
            "ftp://a/",
            "http:///a",
            "http://a:0/",
            "http://a:99999/",
            "http://a b/",
            "http://[::1/",
            "http://u@h/",
            "http://a/x y",
            "http://a/x@0",
        ] {
            assert!(TargetUrl::parse(wrong).is_err(), "{wrong}");
        }
    }
}
