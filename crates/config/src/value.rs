//! Readers of single values, for the configuration file and the command line.
//!
//! They take text without keys or positions; [`InvalidValue`] explains why a value was refused.

pub use crate::origin_url::url as origin_url;

use crate::named::DAY_MS;
use crate::{AcceptLimit, SoftirqMode};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// Explains why a value is invalid; the texts complete the sentence `"TEXT" is not …`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidValue {
    /// The expected kind of value: `a size`.
    pub expected: &'static str,
    /// The allowed values.
    pub allowed: &'static str,
}

impl fmt::Display for InvalidValue {
    /// Writes only the allowed values: a file and a command line phrase the rest differently.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.allowed)
    }
}

/// A number of bytes: `65536`, `64K`, `256M`, `1G`, in powers of 1024.
///
/// # Errors
/// Refuses any other text, and numbers that do not fit 64 bits.
pub fn size(text: &str) -> Result<u64, InvalidValue> {
    let refused = InvalidValue {
        expected: "a size",
        allowed: "a number of bytes, or a number with K, M or G (powers of 1024): 65536, 64K, 256M, 1G",
    };
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    // The multiplication is checked: a value that overflows is a typing error.
    decimal(digits)
        .and_then(|count| count.checked_mul(1 << shift))
        .ok_or(refused)
}

/// A whole number.
///
/// # Errors
/// Refuses any other text, and numbers that do not fit 64 bits.
pub fn count(text: &str) -> Result<u64, InvalidValue> {
    decimal(text).ok_or(InvalidValue {
        expected: "a number",
        allowed: "a whole number",
    })
}

/// A duration in milliseconds: `500ms`, `15s`, `2m`, `1h`; a bare number is in seconds.
///
/// # Errors
/// Refuses any other text, and numbers that do not fit 64 bits.
pub fn duration_ms(text: &str) -> Result<u64, InvalidValue> {
    let refused = InvalidValue {
        expected: "a duration",
        allowed: "a number of seconds, or a number with ms, s, m, h, d, w or y: 15, 500ms, 15s, 2m, 1h, 7d",
    };
    // The unit begins at the first character that is not a digit.
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let unit_ms = match unit {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => DAY_MS,
        "w" => 7 * DAY_MS,
        // A year without a leap day, as max-age values usually count it.
        "y" => 365 * DAY_MS,
        _ => return Err(refused),
    };
    decimal(digits)
        .and_then(|count| count.checked_mul(unit_ms))
        .ok_or(refused)
}

/// An address to listen on: `192.0.2.1:80`, `[2001:db8::1]:80`. `8080` is `127.0.0.1:8080`; `*:80` is `[::]:80`, all
/// addresses of the machine including IPv4. With port 0 the system chooses a port.
///
/// # Errors
/// Refuses any other text, including host names: resolving a name could block and yield changing results.
pub fn address(text: &str) -> Result<SocketAddr, InvalidValue> {
    let refused = InvalidValue {
        expected: "ADDR:PORT",
        allowed: "ADDR:PORT, [ADDR6]:PORT, PORT (127.0.0.1 only), *:PORT (all addresses, IPv4 and IPv6); PORT 0 is any free one",
    };
    let address = if let Some(port) = text.strip_prefix("*:") {
        // The IPv6 wildcard also accepts IPv4 (ipv6(7)).
        port_number(port).map(|port| SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))
    } else if let Some(port) = port_number(text) {
        // A bare port listens on the loopback address only, which is the safe default.
        Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    } else {
        text.parse().ok()
    };
    address.ok_or(refused)
}

/// The number of connections to accept per wake-up: `one`, `all`, or a number.
///
/// # Errors
/// Refuses any other text, and numbers outside of 1 to 65 536.
pub fn accept(text: &str) -> Result<AcceptLimit, InvalidValue> {
    let refused = InvalidValue {
        expected: "an accept strategy",
        allowed: "\"one\", \"all\", or a number from 1 to 65536",
    };
    match text {
        "one" => Ok(AcceptLimit::One),
        "all" => Ok(AcceptLimit::All),
        _ => decimal(text)
            .and_then(|count| u32::try_from(count).ok())
            .filter(|count| (1..=65_536).contains(count))
            .map(AcceptLimit::UpTo)
            .ok_or(refused),
    }
}

/// The mode of the softirq level: `off`, `auto`, or an interface.
///
/// # Errors
/// Refuses a text that cannot be the name of an interface.
pub fn softirq(text: &str) -> Result<SoftirqMode, InvalidValue> {
    // IFNAMSIZ is 16 with the terminating NUL.
    let is_name = (1..16).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'/')
        && text != "-";
    match text {
        "off" => Ok(SoftirqMode::Off),
        "auto" => Ok(SoftirqMode::Auto),
        name if is_name => Ok(SoftirqMode::Interface(name.to_owned())),
        _ => Err(InvalidValue {
            expected: "a setting of the soft-interrupt level",
            allowed: "\"off\", \"auto\", or an interface, like \"eth0\"",
        }),
    }
}

/// The number of workers: `auto` (0, one for each CPU) or a number.
///
/// # Errors
/// Refuses any other text, and numbers above 1024.
pub fn workers(text: &str) -> Result<usize, InvalidValue> {
    let refused = InvalidValue {
        expected: "a number of workers",
        allowed: "\"auto\" (one for each CPU), or a number from 1 to 1024",
    };
    match text {
        "auto" => Ok(0),
        _ => decimal(text)
            .and_then(|count| usize::try_from(count).ok())
            .filter(|count| *count <= 1024)
            .ok_or(refused),
    }
}

fn port_number(text: &str) -> Option<u16> {
    decimal(text).and_then(|port| u16::try_from(port).ok())
}

/// Accepts digits only: `str::parse` would accept a plus sign.
fn decimal(text: &str) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        text.parse().ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_parses_binary_units() {
        for (text, size_bytes) in [
            ("0", 0),
            ("1", 1),
            ("64K", 65_536),
            ("256M", 1 << 28),
            ("2G", 1 << 31),
        ] {
            assert_eq!(size(text), Ok(size_bytes), "{text}");
        }
        let last = format!("{}K", u64::MAX >> 10);
        assert_eq!(size(&last), Ok(u64::MAX - 1023));
        let over = format!("{}K", (u64::MAX >> 10) + 1);
        for text in [
            "",
            "K",
            "-1",
            "+1",
            "1.5M",
            "1k",
            "1KB",
            "1 K",
            " 1",
            "0x10",
            "é",
            "1é",
            "18446744073709551616",
            &over,
        ] {
            assert_eq!(
                size(text).map_err(|refused| refused.expected),
                Err("a size"),
                "{text:?}"
            );
        }
    }

    #[test]
    fn duration_parses_units() {
        for (text, milliseconds) in [
            ("0", 0),
            ("15", 15_000),
            ("500ms", 500),
            ("15s", 15_000),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("400d", 34_560_000_000),
            ("2w", 1_209_600_000),
            ("1y", 31_536_000_000),
        ] {
            assert_eq!(duration_ms(text), Ok(milliseconds), "{text}");
        }
        for text in [
            "",
            "s",
            "ms",
            "-1s",
            "1.5s",
            "1 s",
            "1S",
            "1D",
            "1mo",
            "1s2",
            "1é",
            "18446744073709551615h",
        ] {
            assert_eq!(
                duration_ms(text).map_err(|refused| refused.expected),
                Err("a duration"),
                "{text:?}"
            );
        }
    }

    #[test]
    fn addresses() {
        for (text, expected) in [
            ("192.0.2.1:80", "192.0.2.1:80"),
            ("[2001:db8::1]:443", "[2001:db8::1]:443"),
            ("8080", "127.0.0.1:8080"),
            ("0", "127.0.0.1:0"),
            ("*:80", "[::]:80"),
            ("0.0.0.0:65535", "0.0.0.0:65535"),
        ] {
            let found = address(text).map(|found| found.to_string());
            assert_eq!(found, Ok(expected.to_string()), "{text}");
        }
        for text in [
            "",
            "80x",
            ":80",
            "*",
            "*:",
            "127.0.0.1",
            "127.0.0.1:",
            "65536",
            "::1:80",
            "localhost:80",
            "+80",
            "*:+80",
            "1.2.3.4:80 ",
            "1.2.3.4:65536",
            "01.2.3.4:80",
            "a",
        ] {
            assert_eq!(
                address(text).map_err(|refused| refused.expected),
                Err("ADDR:PORT"),
                "{text:?}"
            );
        }
        let refused = address("a").expect_err("no address");
        assert_eq!(refused.to_string(), refused.allowed);
    }

    #[test]
    fn accept_and_workers_parse_words_and_numbers() {
        for (text, strategy) in [
            ("one", AcceptLimit::One),
            ("all", AcceptLimit::All),
            ("1", AcceptLimit::UpTo(1)),
            ("65536", AcceptLimit::UpTo(65_536)),
        ] {
            assert_eq!(accept(text), Ok(strategy), "{text}");
        }
        for text in ["", "0", "65537", "One", "-1", "4294967297"] {
            assert!(accept(text).is_err(), "{text:?}");
        }
        assert_eq!(
            (workers("auto"), workers("0"), workers("1024")),
            (Ok(0), Ok(0), Ok(1024))
        );
        assert!(
            ["", "1025", "Auto", "-1", "1.0"]
                .iter()
                .all(|text| workers(text).is_err())
        );
    }
}
