//! The client filter of a level and its workers: address prefixes from the command line.

use std::net::IpAddr;

use lowroad_softirq::level::SoftirqLevel;
use lowroad_softirq::level::clients::ClientPrefix;

/// Divides clients into those that Lowroad answers and those that it leaves to the server. The longest matching prefix
/// decides. A client is left to the server if that prefix is denied, or if some prefixes are allowed and none of them
/// matches.
#[derive(Debug)]
pub struct ClientRanges {
    denied: Vec<ClientPrefix>,
    allowed: Vec<ClientPrefix>,
}

/// The prefix that contains all addresses.
const ALL_ADDRESSES: ClientPrefix = (0, [0; 16]);

impl ClientRanges {
    /// Parses the prefixes of `--deny` and `--allow`.
    ///
    /// # Errors
    /// A message for the user.
    pub fn from_arguments(deny: &[String], allow: &[String]) -> Result<ClientRanges, String> {
        let mut denied = prefixes("--deny", deny)?;
        let allowed = prefixes("--allow", allow)?;
        // Allowing all addresses is not a restriction.
        if !allowed.is_empty() && !allowed.contains(&ALL_ADDRESSES) {
            denied.push(ALL_ADDRESSES);
        }
        Ok(ClientRanges { denied, allowed })
    }

    /// Whether no client is left to the server.
    pub fn includes_all(&self) -> bool {
        self.denied.is_empty()
    }

    /// The prefixes of clients that are left to the server.
    pub fn denied(&self) -> &[ClientPrefix] {
        &self.denied
    }

    /// Prefixes of answered clients, within the denied prefixes.
    pub fn allowed(&self) -> &[ClientPrefix] {
        &self.allowed
    }

    /// Writes the prefixes to the maps of the level's programs.
    ///
    /// # Errors
    /// A message for the user.
    pub fn apply(&self, level: &SoftirqLevel) -> Result<(), String> {
        level
            .set_clients(&self.denied, &self.allowed)
            .map_err(|error| error.to_string())
    }
}

fn prefixes(option: &str, texts: &[String]) -> Result<Vec<ClientPrefix>, String> {
    let read = |text: &String| prefix(text).map_err(|reason| format!("{option} {text}: {reason}"));
    texts.iter().map(read).collect()
}

/// Parses a prefix to its length in bits and its address. An IPv4 address is mapped to IPv6, as in `::ffff:a.b.c.d`.
fn prefix(text: &str) -> Result<ClientPrefix, String> {
    let syntax_error = || "invalid (allowed: ADDRESS or ADDRESS/BITS)".to_owned();
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (
            address,
            Some(bits.parse::<u32>().map_err(|_| syntax_error())?),
        ),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| syntax_error())?;
    let (bytes, offset) = match address {
        IpAddr::V4(address) => (address.to_ipv6_mapped().octets(), 96),
        IpAddr::V6(address) => (address.octets(), 0),
    };
    let bits_max = 128 - offset;
    let bits = bits.unwrap_or(bits_max);
    if bits > bits_max {
        return Err(format!("an address has {bits_max} bits, not {bits}"));
    }
    let bits = offset + bits;
    // Host bits are cleared: the kernel keeps keys unchanged, so each prefix needs one canonical form.
    let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
    let masked = u128::from_be_bytes(bytes) & mask;
    Ok((bits, masked.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_parsed_to_length_and_address() {
        let v4 = |a, b, c, d| {
            std::net::Ipv4Addr::new(a, b, c, d)
                .to_ipv6_mapped()
                .octets()
        };
        assert_eq!(prefix("10.1.2.3/8"), Ok((104, v4(10, 0, 0, 0))));
        assert_eq!(prefix("10.1.2.3"), Ok((128, v4(10, 1, 2, 3))));
        assert_eq!(prefix("::/0"), Ok((0, [0; 16])));
        for bad in [
            "",
            "x",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/4294967295",
            "1.2.3.4/",
        ] {
            assert!(prefix(bad).is_err(), "{bad}");
        }
        let said = prefixes("--deny", &["1.2.3.4/99".to_owned()]);
        let said = said.expect_err("too many");
        assert_eq!(said, "--deny 1.2.3.4/99: an address has 32 bits, not 99");
    }
}
