//! Addresses of sites: names, ports, and whether they have TLS.

/// One address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteAddress {
    /// The host; none for all hosts.
    pub host: Option<String>,
    /// The port.
    pub port: u16,
    /// Whether it has TLS.
    pub is_tls: bool,
    /// Whether the certificate is of this machine's own authority.
    pub is_local: bool,
}

/// Ports of the global options.
#[derive(Clone, Copy, Debug)]
pub struct DefaultPorts {
    /// `http_port`
    pub http: u16,
    /// `https_port`
    pub https: u16,
    /// `auto_https off`
    pub is_plain: bool,
}

impl SiteAddress {
    /// Reads an address. `has_tls` if the site has the directive `tls`. `None` if it has no equal.
    pub fn parse(text: &str, ports: DefaultPorts, has_tls: bool) -> Option<SiteAddress> {
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (Some(scheme), rest),
            None => (None, text),
        };
        if rest.contains(['/', '{']) {
            return None;
        }
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port.parse::<u16>().ok()?)),
            _ => (rest, None),
        };
        // Names of sites have addresses of IPv6 without brackets.
        let host = host.trim_matches(['[', ']']);
        let host = (!host.is_empty() && host != "*" && host != "0.0.0.0").then(|| host.to_string());
        let is_tls = match (scheme, port) {
            (Some("https"), _) => true,
            (Some(_), _) => false,
            (None, Some(port)) if port == ports.http => false,
            (None, Some(port)) if port == ports.https => true,
            // Names have TLS at other ports, too; an address without a name only if it has a certificate.
            _ => has_tls || (host.is_some() && !ports.is_plain),
        };
        // Without a port, the scheme decides.
        let default = if is_tls { ports.https } else { ports.http };
        Some(SiteAddress {
            is_local: host.as_deref().is_some_and(is_local_name),
            host,
            port: port.unwrap_or(default),
            is_tls,
        })
    }
}

/// Whether no public authority issues a certificate for a name.
fn is_local_name(name: &str) -> bool {
    let is_address = name.parse::<std::net::IpAddr>().is_ok();
    let ends = [".localhost", ".local", ".internal", ".home.arpa"];
    is_address || !name.contains('.') || ends.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_their_defaults() {
        let ports = DefaultPorts {
            http: 80,
            https: 443,
            is_plain: false,
        };
        for (text, expected) in [
            ("a.example", Some((Some("a.example"), 443, true, false))),
            (
                "http://a.example",
                Some((Some("a.example"), 80, false, false)),
            ),
            (
                "a.example:8443",
                Some((Some("a.example"), 8443, true, false)),
            ),
            ("a.example:80", Some((Some("a.example"), 80, false, false))),
            ("localhost", Some((Some("localhost"), 443, true, true))),
            (":8080", Some((None, 8080, false, false))),
            (":443", Some((None, 443, true, false))),
            ("https://[::1]:8443", Some((Some("::1"), 8443, true, true))),
            ("a.example/x", None),
        ] {
            let found = SiteAddress::parse(text, ports, false);
            let found = found.map(|it| (it.host, it.port, it.is_tls, it.is_local));
            let expected = expected
                .map(|(host, port, tls, local)| (host.map(str::to_string), port, tls, local));
            assert_eq!(found, expected, "{text}");
        }
    }
}
