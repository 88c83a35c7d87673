//! The addresses at which a server can be reached: the same checks for the configuration and for servers that operators
//! add.

use std::net::IpAddr;
use std::path::PathBuf;

/// The longest path of a Unix socket, in bytes: `sun_path` without its final NUL (unix(7)).
const UNIX_PATH_LEN_MAX: usize = 107;

/// Checks the address of a server.
///
/// # Errors
/// No server can be reached there: the reason.
pub fn check(ip: IpAddr, port: u16) -> Result<(), &'static str> {
    if port == 0 {
        return Err("a server's port is 1 to 65535");
    }
    check_ip(ip)
}

/// Checks the IP address of a server.
///
/// # Errors
/// No server can be reached there: the reason.
pub fn check_ip(ip: IpAddr) -> Result<(), &'static str> {
    // An IPv4 address in IPv6 form is the same server.
    let ip = ip.to_canonical();
    match ip {
        _ if ip.is_multicast() => Err("a server has no multicast address"),
        IpAddr::V4(ip) if ip.is_broadcast() => Err("a server has no broadcast address"),
        _ => Ok(()),
    }
}

/// The path of `unix:/PATH` without its scheme, without repeated slashes: paths of the same socket are equal.
///
/// # Errors
/// No socket can have this path: the reason.
pub fn unix_path(text: &str) -> Result<PathBuf, &'static str> {
    if !text.starts_with('/') {
        return Err("the path of a socket is absolute: unix:/PATH");
    }
    if text.chars().any(char::is_control) {
        return Err("the path of a socket contains no control characters");
    }
    // A socket is no folder; the components of a path don't show the difference.
    if text.ends_with('/') {
        return Err("the path of a socket names a file: unix:/PATH");
    }
    let path: PathBuf = PathBuf::from(text).components().collect();
    match path.as_os_str().len() <= UNIX_PATH_LEN_MAX {
        true => Ok(path),
        false => Err("the path of a socket has at most 107 bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusable_addresses_are_refused() {
        for address in [
            "224.0.0.1",
            "239.1.2.3",
            "ff02::1",
            "255.255.255.255",
            "::ffff:255.255.255.255",
        ] {
            let ip = address.parse().expect("an address");
            assert!(check(ip, 80).is_err(), "{address}");
        }
        for address in [
            "127.0.0.1",
            "0.0.0.0",
            "::",
            "10.0.0.255",
            "::1",
            "fe80::1",
            "::ffff:10.0.0.1",
        ] {
            let ip = address.parse().expect("an address");
            assert_eq!(check(ip, 80), Ok(()), "{address}");
            assert!(check(ip, 0).is_err());
        }
    }

    #[test]
    fn path_of_a_socket_has_one_form() {
        for text in ["/run/a.sock", "//run/a.sock", "///run//./a.sock"] {
            assert_eq!(unix_path(text), Ok("/run/a.sock".into()), "{text}");
        }
        let longest = format!("/{}", "a".repeat(UNIX_PATH_LEN_MAX - 1));
        assert_eq!(unix_path(&longest), Ok(PathBuf::from(&longest)));
        let long = longest + "a";
        for text in [
            "",
            "/",
            "run",
            "/run/",
            "/a\0b",
            "/a\nb",
            "/a\u{9b}b",
            &long,
        ] {
            assert!(unix_path(text).is_err(), "{text:?}");
        }
    }
}
