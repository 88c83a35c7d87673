//! The source of an image's address: the value of `--ip`, and of `ip=` on the image's command line.

use std::fmt;
use std::net::Ipv4Addr;

use lowroad_net::AddressSource;

/// The source of an image's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageAddress {
    /// From a DHCP server.
    Dhcp,
    /// The address is configured by the operator.
    Static {
        /// The image's address.
        address: Ipv4Addr,
        /// The network's prefix length, 0 to 32.
        prefix_len: u8,
        /// The router to other networks, if there is one.
        gateway: Option<Ipv4Addr>,
    },
}

impl ImageAddress {
    /// Parses `dhcp`, `192.0.2.2/24` or `192.0.2.2/24,192.0.2.1`, where the last address is the gateway.
    ///
    /// # Errors
    /// The allowed forms.
    pub fn parse(text: &str) -> Result<ImageAddress, String> {
        let parsed = match text {
            "dhcp" => Some(ImageAddress::Dhcp),
            text => parse_static(text),
        };
        parsed.ok_or_else(|| "dhcp, ADDRESS/PREFIX or ADDRESS/PREFIX,GATEWAY".to_string())
    }

    /// The address source as the network stack's type.
    pub fn address(self) -> AddressSource {
        match self {
            ImageAddress::Dhcp => AddressSource::Dhcp,
            ImageAddress::Static {
                address,
                prefix_len,
                gateway,
            } => AddressSource::Static {
                address,
                prefix_len,
                gateway,
            },
        }
    }
}

fn parse_static(text: &str) -> Option<ImageAddress> {
    let (network, gateway) = match text.split_once(',') {
        Some((network, gateway)) => (network, Some(gateway.parse().ok()?)),
        None => (text, None),
    };
    let (address, prefix_len) = network.split_once('/')?;
    Some(ImageAddress::Static {
        address: address.parse().ok()?,
        prefix_len: prefix_len.parse().ok().filter(|len| *len <= 32)?,
        gateway,
    })
}

impl fmt::Display for ImageAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImageAddress::Dhcp => formatter.write_str("dhcp"),
            ImageAddress::Static {
                address,
                prefix_len,
                gateway,
            } => {
                write!(formatter, "{address}/{prefix_len}")?;
                gateway.map_or(Ok(()), |gateway| write!(formatter, ",{gateway}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_is_the_parsed_text() {
        for text in ["dhcp", "192.0.2.2/24", "192.0.2.2/24,192.0.2.1"] {
            assert_eq!(
                ImageAddress::parse(text)
                    .map(|ip| ip.to_string())
                    .as_deref(),
                Ok(text)
            );
        }
        for text in [
            "",
            "192.0.2.2",
            "192.0.2.2/33",
            "192.0.2.2/24,",
            "192.0.2/24",
            "DHCP",
        ] {
            assert!(ImageAddress::parse(text).is_err(), "{text}");
        }
    }
}
