//! Destinations of modules' requests: a host name and a port, compared as text. No name is resolved, so permission is
//! by name and does not depend on the DNS.

use crate::SiteName;
use crate::value::InvalidValue;

/// A server, or all hosts below a name, at one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedDestination {
    /// The host; never `SiteName::Default`.
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
        // Parsing a number would also accept a sign.
        let digits = port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|port| digits && *port != 0);
        match SiteName::parse(host).map_err(|_| REFUSED)? {
            // Each destination is named: `_` would allow all.
            SiteName::Default => Err(REFUSED),
            host => Ok(AllowedDestination {
                host,
                port: port.ok_or(REFUSED)?,
            }),
        }
    }

    /// Whether it covers a host and port. The host is in the form of a URL: an IPv6 address in brackets, in any case.
    pub fn covers(&self, host: &str, port: u16) -> bool {
        let host = host.to_ascii_lowercase();
        let is_named = match &self.host {
            SiteName::Exact(name) => host == *name,
            // The dot separates whole labels: `badexample.com` is not below `example.com`.
            SiteName::Wildcard(suffix) => host
                .strip_suffix(suffix.as_str())
                .and_then(|labels| labels.strip_suffix('.'))
                .is_some_and(|labels| !labels.is_empty()),
            SiteName::Default => false,
        };
        is_named && port == self.port
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
    fn a_host_and_its_port_and_no_other() {
        assert!(covers("Example.com:80", "example.COM", 80));
        assert!(!covers("example.com:80", "example.com", 81));
        assert!(!covers("example.com:80", "a.example.com", 80));
        assert!(!covers("127.0.0.1:80", "127.1", 80));
        assert!(covers("[::1]:80", "[::1]", 80));
    }

    #[test]
    fn names_below_a_name() {
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
    fn what_is_no_destination() {
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
