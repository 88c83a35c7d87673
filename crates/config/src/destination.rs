//! The destinations that a module may send requests to: a host name and a port. They are compared as text; no name is
//! resolved, so a permission does not depend on the DNS.

use crate::SiteName;
use crate::value::InvalidValue;

/// A host, or all hosts below a domain, at one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedDestination {
    /// The host, or the domain above the hosts; never `SiteName::Default`.
    pub host: SiteName,
    /// The port.
    pub port: u16,
}

const REFUSED: InvalidValue = InvalidValue {
    expected: "HOST:PORT",
    allowed: "example.com:80, *.example.com:80 (one or more labels in front), 192.0.2.1:8080, [2001:db8::1]:80",
};

impl AllowedDestination {
    /// Reads `HOST:PORT`.
    ///
    /// # Errors
    /// Any other text, every host (`_`) and port 0.
    pub fn parse(text: &str) -> Result<AllowedDestination, InvalidValue> {
        let (host, port) = text.rsplit_once(':').ok_or(REFUSED)?;
        // `parse` would also accept a sign.
        let digits = port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|port| digits && *port != 0);
        match SiteName::parse(host).map_err(|_| REFUSED)? {
            // `_` would allow all hosts.
            SiteName::Default => Err(REFUSED),
            host => Ok(AllowedDestination {
                host,
                port: port.ok_or(REFUSED)?,
            }),
        }
    }

    /// Whether this destination includes a host and port. `host` has the form of a URL: an IPv6 address is in brackets.
    /// Its case is ignored.
    pub fn covers(&self, host: &str, port: u16) -> bool {
        let host = host.to_ascii_lowercase();
        port == self.port && self.host.includes(host.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(text: &str, host: &str, port: u16) -> bool {
        AllowedDestination::parse(text)
            .expect("a destination")
            .covers(host, port)
    }

    #[test]
    fn destination_covers_only_its_host_and_port() {
        assert!(covers("Example.com:80", "example.COM", 80));
        assert!(!covers("example.com:80", "example.com", 81));
        assert!(!covers("example.com:80", "a.example.com", 80));
        assert!(!covers("127.0.0.1:80", "127.1", 80));
        assert!(covers("[::1]:80", "[::1]", 80));
    }

    #[test]
    fn wildcard_destination_covers_subdomains_only() {
        assert!(covers("*.example.com:80", "a.b.example.com", 80));
        for host in [
            "example.com",
            ".example.com",
            "badexample.com",
            "example.com.a",
        ] {
            assert!(!covers("*.example.com:80", host, 80), "{host}");
        }
    }

    #[test]
    fn invalid_destinations_are_refused() {
        for text in [
            "",
            "example.com",
            "example.com:",
            ":80",
            "*:80",
            "_:80",
            "a:0",
            "a:+80",
            "a:65536",
            "a/b:80",
            "u@a:80",
            "http://a:80",
            "::1:80",
            "a.*:80",
        ] {
            assert!(AllowedDestination::parse(text).is_err(), "{text}");
        }
    }
}
