//! The values of conditions, and their parsers.

use std::net::IpAddr;
use std::str::FromStr;

/// The statuses of HTTP (RFC 9110 §15). A record may also have 0: a connection that was passed through.
const STATUSES: std::ops::RangeInclusive<u16> = 100..=599;

/// A range of statuses: `404`, `4xx` or `200-399`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusRange {
    first: u16,
    last: u16,
}

impl StatusRange {
    /// Whether a status is within.
    pub fn contains(&self, status: u16) -> bool {
        (self.first..=self.last).contains(&status)
    }
}

impl FromStr for StatusRange {
    type Err = String;

    fn from_str(text: &str) -> Result<StatusRange, String> {
        // `parse` alone would accept a plus sign.
        let is_number = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
        let number = |text: &str| Some(text).filter(is_number)?.parse::<u16>().ok();
        let class = text
            .strip_suffix("xx")
            .and_then(number)
            .filter(|class| (1..=5).contains(class));
        let range = match (class, text.split_once('-')) {
            (Some(class), _) => Some((class * 100, class * 100 + 99)),
            (None, Some((first, last))) => number(first).zip(number(last)),
            (None, None) => number(text).map(|status| (status, status)),
        };
        let is_status = |status: &u16| *status == 0 || STATUSES.contains(status);
        let range = range
            .filter(|(first, last)| first <= last && is_status(first) && is_status(last))
            .map(|(first, last)| StatusRange { first, last });
        range.ok_or_else(|| {
            "a status from 100 to 599 or 0, a class from 1xx to 5xx, or a range like 200-399"
                .to_owned()
        })
    }
}

/// The bits of a mapped IPv4 address before the IPv4 address (RFC 4291 section 2.5.5.2).
const MAPPED_BITS: u32 = 96;

/// A range of addresses: an address, or one with a number of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    address: IpAddr,
    bits: u32,
}

impl AddressRange {
    /// Whether an address is within.
    pub fn contains(&self, address: IpAddr) -> bool {
        let is_equal = |difference: u128, len: u32| {
            let left = len - self.bits.min(len);
            // A shift by the whole width is none in Rust, but a prefix of 0 bits contains all addresses.
            difference.checked_shr(left).unwrap_or(0) == 0
        };
        // A client of a dual-stack socket has a mapped address, which should match a range of IPv4.
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                is_equal((own.to_bits() ^ other.to_bits()).into(), 32)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => is_equal(own.to_bits() ^ other.to_bits(), 128),
            _ => false,
        }
    }
}

impl FromStr for AddressRange {
    type Err = String;

    fn from_str(text: &str) -> Result<AddressRange, String> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let parse = || {
            let address: IpAddr = address.parse().ok()?;
            let most = if address.is_ipv4() { 32 } else { 128 };
            let bits = bits.map_or(Some(most), |bits| {
                bits.parse().ok().filter(|bits| *bits <= most)
            })?;
            // A mapped address stands for the IPv4 address that the log shows.
            match (address, address.to_canonical()) {
                (IpAddr::V6(_), canonical @ IpAddr::V4(_)) if bits >= MAPPED_BITS => {
                    Some(AddressRange {
                        address: canonical,
                        bits: bits - MAPPED_BITS,
                    })
                }
                _ => Some(AddressRange { address, bits }),
            }
        };
        parse().ok_or_else(|| "ADDRESS or ADDRESS/BITS".to_owned())
    }
}

/// A pattern in which each `*` stands for any bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextPattern {
    bytes: Vec<u8>,
    ignores_case: bool,
}

impl TextPattern {
    /// A pattern of this text.
    pub fn new(text: &str, ignores_case: bool) -> TextPattern {
        TextPattern {
            bytes: text.as_bytes().to_vec(),
            ignores_case,
        }
    }

    /// Whether the pattern has this byte.
    pub fn contains(&self, byte: u8) -> bool {
        self.bytes.contains(&byte)
    }

    /// Whether the whole text matches. Takes at most the product of both lengths, since only the last `*` is retried.
    pub fn matches(&self, text: &[u8]) -> bool {
        let (mut at, mut in_text) = (0, 0);
        let mut retry: Option<(usize, usize)> = None;
        while in_text < text.len() {
            match self.bytes.get(at) {
                Some(b'*') => {
                    // Matched with no bytes at first; each retry gives the `*` one byte more.
                    retry = Some((at + 1, in_text));
                    at += 1;
                }
                Some(byte) if self.is_equal(*byte, text[in_text]) => {
                    at += 1;
                    in_text += 1;
                }
                _ => match retry {
                    Some((after, from)) => {
                        // An earlier `*` needs no retry: giving it more bytes only leaves less text for the later one.
                        retry = Some((after, from + 1));
                        (at, in_text) = (after, from + 1);
                    }
                    None => return false,
                },
            }
        }
        self.bytes[at..].iter().all(|byte| *byte == b'*')
    }

    fn is_equal(&self, one: u8, other: u8) -> bool {
        one == other || (self.ignores_case && one.eq_ignore_ascii_case(&other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_matches_any_bytes() {
        for (pattern, text, fits) in [
            ("/a", "/a", true),
            ("/a", "/ab", false),
            ("/a*", "/a", true),
            ("*.css", "/x/a.css", true),
            ("*.css", "/x/a.css?", false),
            ("/*/b*c", "/a/b/bxc", true),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("*a*a*a*b", "aaaaaaaaaaaaaaaaaaaa", false),
        ] {
            let is_fit = TextPattern::new(pattern, false).matches(text.as_bytes());
            assert_eq!(is_fit, fits, "{pattern} {text}");
        }
    }

    #[test]
    fn range_contains_addresses_of_its_family() {
        let range = |text: &str| text.parse::<AddressRange>();
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        for (text, within, without) in [
            ("10.0.0.0/8", "10.9.9.9", "11.0.0.0"),
            ("0.0.0.0/0", "1.2.3.4", "::1"),
            ("2001:db8::/32", "2001:db8::1", "2001:db9::"),
            ("::1", "::1", "::2"),
            ("192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"),
            ("::ffff:192.0.2.1", "192.0.2.1", "192.0.2.2"),
            ("::ffff:10.0.0.0/104", "::ffff:10.9.9.9", "11.0.0.0"),
        ] {
            let range = range(text).expect("a range");
            assert!(
                range.contains(address(within)) && !range.contains(address(without)),
                "{text}"
            );
        }
        for text in ["10.0.0.0/33", "a", "::/129", "1.2.3.4/", ""] {
            assert!(range(text).is_err(), "{text}");
        }
    }

    #[test]
    fn malformed_status_ranges_are_refused() {
        for text in [
            "xx", "99xx", "6xx", "0xx", "a", "-", "200-", "", "600", "99", "500-400", "+404",
            "400-4000",
        ] {
            assert!(text.parse::<StatusRange>().is_err(), "{text}");
        }
        for text in ["0", "404", "1xx", "5xx", "200-399", "404-404"] {
            assert!(text.parse::<StatusRange>().is_ok(), "{text}");
        }
    }
}
