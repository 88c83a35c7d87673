//! Who listens on a port of this network namespace, by the kernel's own table.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The addresses on which somebody listens on a TCP port.
///
/// # Errors
/// When the kernel's table can't be read.
pub fn addresses(port: u16) -> std::io::Result<Vec<IpAddr>> {
    let mut found = Vec::new();
    // Of the thread, not of the process: it may have entered another namespace.
    for table in ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"] {
        match std::fs::read_to_string(table) {
            Ok(text) => found.extend(listening(&text, port)),
            // Without IPv6 there is no such table.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// Where to ask the server that listens on these addresses: an error if there are several, which may
/// be different servers.
///
/// # Errors
/// A text for the user.
pub fn one_to_ask(port: u16, addresses: &[IpAddr]) -> Result<SocketAddr, String> {
    let any_v4 = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let any_v6 = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let special: Vec<_> = addresses
        .iter()
        .filter(|address| **address != any_v4 && **address != any_v6)
        .collect();
    match (special.as_slice(), addresses) {
        (_, []) => Err(format!(
            "nothing listens on port {port} here; start the server first"
        )),
        ([], _) if addresses.contains(&any_v4) => {
            Ok(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port))
        }
        // A socket for all IPv6 addresses takes IPv4 too, unless it says otherwise.
        ([], _) => Ok(SocketAddr::new(Ipv6Addr::LOCALHOST.into(), port)),
        ([one], [_]) => Ok(SocketAddr::new(**one, port)),
        _ => Err(format!(
            "several sockets listen on port {port} at different addresses ({}), and may answer \
             differently; let one listen on all addresses",
            addresses
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        )),
    }
}

fn listening(table: &str, port: u16) -> Vec<IpAddr> {
    table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let mut fields = line.split_ascii_whitespace().skip(1);
            let (address, local_port) = fields.next()?.split_once(':')?;
            let state = fields.nth(1)?;
            let is_it = state == "0A" && u16::from_str_radix(local_port, 16) == Ok(port);
            is_it.then(|| parse(address)).flatten()
        })
        .collect()
}

/// Words of 32 bits in hexadecimal, each as the machine has it.
fn parse(text: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let digits = text.get(at * 8..at * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    if text.len() == 8 {
        return Some(Ipv4Addr::from(word(0)?).into());
    }
    let mut bytes = [0; 16];
    for at in 0..4 {
        bytes[at * 4..at * 4 + 4].copy_from_slice(&word(at)?);
    }
    Some(Ipv6Addr::from(bytes).to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "  sl  local_address rem_address   st tx_queue rx_queue\n   \
        0: 0100007F:0050 00000000:0000 0A 00000000:00000000 00:00000000\n   \
        1: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000\n   \
        2: 0100007F:0050 0100007F:9000 01 00000000:00000000 00:00000000\n";

    #[test]
    fn listeners_are_found_by_port_and_state() {
        assert_eq!(listening(TABLE, 80), [IpAddr::from([127, 0, 0, 1])]);
        assert_eq!(listening(TABLE, 8080), [IpAddr::from([0, 0, 0, 0])]);
        assert!(listening(TABLE, 81).is_empty());
        let v6 = "x\n 0: 00000000000000000000000001000000:0050 0:0 0A x\n";
        assert_eq!(listening(v6, 80), [IpAddr::from(Ipv6Addr::LOCALHOST)]);
    }

    #[test]
    fn one_server_is_asked() {
        let local = IpAddr::from([127, 0, 0, 1]);
        let any = IpAddr::from([0, 0, 0, 0]);
        let any_v6 = IpAddr::from(Ipv6Addr::UNSPECIFIED);
        let other = IpAddr::from([10, 0, 0, 1]);
        let ask = |addresses: &[IpAddr]| one_to_ask(80, addresses).map(|found| found.ip());
        assert_eq!(ask(&[any, any_v6]), Ok(local));
        assert_eq!(ask(&[any_v6]), Ok(Ipv6Addr::LOCALHOST.into()));
        assert_eq!(ask(&[other]), Ok(other));
        assert!(ask(&[]).expect_err("none").contains("nothing listens"));
        assert!(ask(&[other, local]).expect_err("two").contains("several"));
        assert!(ask(&[other, any]).expect_err("two").contains("several"));
    }
}
