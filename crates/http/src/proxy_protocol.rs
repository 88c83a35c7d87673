//! The PROXY protocol, versions 1 and 2: a header before the first byte of a connection, by which a proxy reports the
//! client's address. Parser and writer. The caller must accept a header only from addresses that are trusted to send
//! one.
//!
//! Read first: `proxy-protocol.txt` of HAProxy, sections 2.1 and 2.2.

use alloc::vec::Vec;
use core::fmt::Write as _;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The length limit of a version 1 header, including its line end (section 2.1).
pub const V1_LEN_MAX: usize = 107;
/// The length limit of a version 2 header: IP addresses need 52 bytes, the rest is for extensions.
pub const V2_LEN_MAX: usize = 4096;

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const V1_START: &[u8; 6] = b"PROXY ";
const V2_START_LEN: usize = 16;
const TLV_CRC32C: u8 = 3;

/// The result of parsing the first bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyHeaderParse {
    /// More bytes are needed.
    Incomplete,
    /// A complete header.
    Header(ProxyHeader),
    /// Not a valid header; the connection is to be closed without a response.
    Refused(ProxyHeaderError),
}

/// A PROXY header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyHeader {
    /// The addresses of the proxied connection.
    pub addresses: ProxyAddresses,
    /// The length of the header in bytes.
    pub len: usize,
}

/// The addresses of the proxied connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyAddresses {
    /// A connection that the proxy forwards for a client.
    Tcp {
        /// The client's address.
        source: SocketAddr,
        /// The address to which the client connected.
        destination: SocketAddr,
    },
    /// A client's connection without an IP address.
    Unknown,
    /// The proxy's own connection, such as a health check.
    Local,
}

/// Why the bytes are not a valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyHeaderError {
    /// The connection begins with neither version's signature.
    Start,
    /// The header exceeds its length limit.
    TooLong,
    /// The line is malformed for version 1.
    Line,
    /// An unknown version or command.
    Command,
    /// An unknown address family or transport protocol, or one that does not match the connection.
    Family,
    /// Addresses or extensions that do not fit the announced length.
    Length,
    /// A wrong checksum.
    Checksum,
}

impl ProxyHeaderError {
    /// The reason, for logs.
    pub fn reason(self) -> &'static str {
        match self {
            ProxyHeaderError::Start => "the connection does not begin with a PROXY header",
            ProxyHeaderError::TooLong => "the PROXY header is too long",
            ProxyHeaderError::Line => "the line of the PROXY header is malformed",
            ProxyHeaderError::Command => "the PROXY header has an unknown version or command",
            ProxyHeaderError::Family => {
                "the PROXY header has an unknown or unexpected address family"
            }
            ProxyHeaderError::Length => "the length of the PROXY header does not match its content",
            ProxyHeaderError::Checksum => "the PROXY header's checksum is wrong",
        }
    }
}

/// Parses the header at the start of a connection.
pub fn parse(bytes: &[u8]) -> ProxyHeaderParse {
    let parsed = if starts_like(bytes, SIGNATURE) {
        parse_v2(bytes)
    } else if starts_like(bytes, V1_START) {
        parse_v1(bytes)
    } else {
        Err(ProxyHeaderError::Start)
    };
    match parsed {
        Ok(Some(header)) => ProxyHeaderParse::Header(header),
        Ok(None) => ProxyHeaderParse::Incomplete,
        Err(refused) => ProxyHeaderParse::Refused(refused),
    }
}

fn starts_like(bytes: &[u8], start: &[u8]) -> bool {
    bytes
        .iter()
        .zip(start)
        .all(|(byte, expected)| byte == expected)
}

fn parse_v1(bytes: &[u8]) -> Result<Option<ProxyHeader>, ProxyHeaderError> {
    // The search is limited, since a client could send an endless line.
    let line = &bytes[..bytes.len().min(V1_LEN_MAX)];
    let Some(end) = line.iter().position(|byte| *byte == b'\n') else {
        return match bytes.len() < V1_LEN_MAX {
            true => Ok(None),
            false => Err(ProxyHeaderError::TooLong),
        };
    };
    let line = line[..end]
        .strip_suffix(b"\r")
        .ok_or(ProxyHeaderError::Line)?;
    let line = core::str::from_utf8(line).map_err(|_| ProxyHeaderError::Line)?;
    // `starts_like` also accepts a proper prefix of the start, so a short line may still differ.
    let rest = line.strip_prefix("PROXY ").ok_or(ProxyHeaderError::Line)?;
    let addresses = parse_addresses_v1(rest).ok_or(ProxyHeaderError::Line)?;
    Ok(Some(ProxyHeader {
        addresses,
        len: end + 1,
    }))
}

fn parse_addresses_v1(rest: &str) -> Option<ProxyAddresses> {
    // Section 2.1: anything after UNKNOWN is ignored.
    if rest == "UNKNOWN" || rest.starts_with("UNKNOWN ") {
        return Some(ProxyAddresses::Unknown);
    }
    let mut words = rest.split(' ');
    let family = words.next()?;
    let mut address = || -> Option<IpAddr> {
        let word = words.next()?;
        match family {
            "TCP4" => word.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
            "TCP6" => word.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
            _ => None,
        }
    };
    let (source, destination) = (address()?, address()?);
    let mut port = || words.next().and_then(port);
    let source = SocketAddr::new(source, port()?);
    let destination = SocketAddr::new(destination, port()?);
    words.next().is_none().then_some(ProxyAddresses::Tcp {
        source,
        destination,
    })
}

/// Parses decimal digits without a sign or leading zeros.
fn port(word: &str) -> Option<u16> {
    let digits = word.bytes().all(|byte| byte.is_ascii_digit());
    let canonical = word == "0" || !word.starts_with('0');
    (digits && canonical).then(|| word.parse().ok()).flatten()
}

fn parse_v2(bytes: &[u8]) -> Result<Option<ProxyHeader>, ProxyHeaderError> {
    let Some((start, rest)) = bytes.split_at_checked(V2_START_LEN) else {
        return Ok(None);
    };
    let (command, family) = (start[12], start[13]);
    let len = usize::from(u16::from_be_bytes([start[14], start[15]]));
    if !matches!(command, 0x20 | 0x21) {
        return Err(ProxyHeaderError::Command);
    }
    let whole_len = V2_START_LEN + len;
    // The length is checked before the rest arrives, so that the server does not wait for a false length.
    if whole_len > V2_LEN_MAX {
        return Err(ProxyHeaderError::TooLong);
    }
    let Some(rest) = rest.get(..len) else {
        return Ok(None);
    };
    let addresses = match command {
        // LOCAL: family and addresses are ignored (section 2.2).
        0x20 => ProxyAddresses::Local,
        _ => {
            let (addresses, extensions_at) = parse_addresses_v2(family, rest)?;
            check_extensions(&bytes[..whole_len], V2_START_LEN + extensions_at)?;
            addresses
        }
    };
    Ok(Some(ProxyHeader {
        addresses,
        len: whole_len,
    }))
}

/// The addresses in a version 2 header, and the offset of the extensions.
fn parse_addresses_v2(
    family: u8,
    block: &[u8],
) -> Result<(ProxyAddresses, usize), ProxyHeaderError> {
    let len = match family {
        0x00 => 0,
        0x11 => 12,
        0x21 => 36,
        // Unix sockets: there is no IP address, but the address block has to be skipped.
        0x31 => 216,
        _ => return Err(ProxyHeaderError::Family),
    };
    let block = block.get(..len).ok_or(ProxyHeaderError::Length)?;
    let port = |at: usize| u16::from_be_bytes([block[at], block[at + 1]]);
    let addresses = match family {
        0x11 => ProxyAddresses::Tcp {
            source: SocketAddr::new(v4(&block[..4]), port(8)),
            destination: SocketAddr::new(v4(&block[4..8]), port(10)),
        },
        0x21 => ProxyAddresses::Tcp {
            source: SocketAddr::new(v6(&block[..16]), port(32)),
            destination: SocketAddr::new(v6(&block[16..32]), port(34)),
        },
        _ => ProxyAddresses::Unknown,
    };
    Ok((addresses, len))
}

fn v4(octets: &[u8]) -> IpAddr {
    let octets: [u8; 4] = octets.try_into().expect("four octets");
    IpAddr::from(octets)
}

fn v6(octets: &[u8]) -> IpAddr {
    let octets: [u8; 16] = octets.try_into().expect("sixteen octets");
    IpAddr::from(octets)
}

/// Validates the extensions (type, length, value) from `at` on; a checksum must be correct.
fn check_extensions(header: &[u8], mut at: usize) -> Result<(), ProxyHeaderError> {
    while at < header.len() {
        let start = header.get(at..at + 3).ok_or(ProxyHeaderError::Length)?;
        let len = usize::from(u16::from_be_bytes([start[1], start[2]]));
        let value_at = at + 3;
        let value = header.get(value_at..value_at + len);
        let value = value.ok_or(ProxyHeaderError::Length)?;
        // Section 2.2.3: a checksum, if present, must be verified.
        if start[0] == TLV_CRC32C {
            let checksum: [u8; 4] = value.try_into().map_err(|_| ProxyHeaderError::Length)?;
            if u32::from_be_bytes(checksum) != crc32c_without(header, value_at) {
                return Err(ProxyHeaderError::Checksum);
            }
        }
        at = value_at + len;
    }
    Ok(())
}

/// The CRC32c of the header with its four checksum bytes set to zero.
fn crc32c_without(header: &[u8], checksum_at: usize) -> u32 {
    let zeroed = checksum_at..checksum_at + 4;
    let bytes = header.iter().enumerate();
    !bytes.fold(!0, |sum, (at, byte)| {
        let byte = if zeroed.contains(&at) { 0 } else { *byte };
        // 0x82f63b78 is the reflected polynomial of CRC32c.
        let step = |sum: u32, _| (sum >> 1) ^ (0x82f6_3b78 & (sum & 1).wrapping_neg());
        (0..8).fold(sum ^ u32::from(byte), step)
    })
}

/// Writes a header of version 1.
pub fn write_v1(out: &mut Vec<u8>, addresses: ProxyAddresses) {
    let line = match same_family(addresses) {
        ProxyAddresses::Tcp {
            source,
            destination,
        } => {
            let family = if source.is_ipv4() { 4 } else { 6 };
            let (from, into) = (source.ip(), destination.ip());
            let mut line = alloc::string::String::new();
            let (source, destination) = (source.port(), destination.port());
            write!(
                line,
                "PROXY TCP{family} {from} {into} {source} {destination}\r\n"
            )
            .expect("strings take everything");
            line
        }
        // Version 1 cannot express `Local`.
        ProxyAddresses::Unknown | ProxyAddresses::Local => "PROXY UNKNOWN\r\n".into(),
    };
    out.extend_from_slice(line.as_bytes());
}

/// Writes a header of version 2, without extensions.
pub fn write_v2(out: &mut Vec<u8>, addresses: ProxyAddresses) {
    out.extend_from_slice(SIGNATURE);
    match same_family(addresses) {
        ProxyAddresses::Local => out.extend_from_slice(&[0x20, 0, 0, 0]),
        ProxyAddresses::Unknown => out.extend_from_slice(&[0x21, 0, 0, 0]),
        ProxyAddresses::Tcp {
            source,
            destination,
        } => {
            let (family, len) = if source.is_ipv4() {
                (0x11, 12)
            } else {
                (0x21, 36)
            };
            // 0x21: version 2, command PROXY.
            out.extend_from_slice(&[0x21, family, 0, len]);
            for end in [source, destination] {
                match end.ip() {
                    IpAddr::V4(address) => out.extend_from_slice(&address.octets()),
                    IpAddr::V6(address) => out.extend_from_slice(&address.octets()),
                }
            }
            for end in [source, destination] {
                out.extend_from_slice(&end.port().to_be_bytes());
            }
        }
    }
}

/// The addresses of a header have one family: if they differ, both become IPv6 (IPv4-mapped).
fn same_family(addresses: ProxyAddresses) -> ProxyAddresses {
    match addresses {
        ProxyAddresses::Tcp {
            source,
            destination,
        } if source.is_ipv4() != destination.is_ipv4() => ProxyAddresses::Tcp {
            source: mapped(source),
            destination: mapped(destination),
        },
        addresses => addresses,
    }
}

fn mapped(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    SocketAddr::new(IpAddr::V6(ip), address.port())
}

#[cfg(test)]
mod tests;
