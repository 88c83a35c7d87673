//! Listening sockets of this network namespace, read from the kernel's tables.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemListener {
    /// Maximum length of the accept queue.
    pub backlog: u32,
    /// Whether the socket uses Multipath TCP.
    pub is_mptcp: bool,
}

/// The addresses with listeners on a TCP port.
///
/// # Errors
/// If the kernel's table can't be read.
pub fn addresses(port: u16) -> std::io::Result<Vec<IpAddr>> {
    let mut found = Vec::new();
    // The thread's table, not the process's: the thread may have entered another namespace.
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

/// Describes the servers that the daemon fetches from: each address is fetched from the listener bound to it. Fails if
/// nothing listens.
///
/// # Errors
/// A text for the user.
pub fn describe_servers(port: u16, addresses: &[IpAddr]) -> Result<String, String> {
    match addresses {
        [] => Err(format!(
            "nothing listens on port {port} here; start the server first"
        )),
        [address] if !address.is_unspecified() => Ok(format!("a server listens at {address}")),
        _ if addresses.iter().all(IpAddr::is_unspecified) => Ok(
            "a server listens at all addresses; responses are fetched from the address of each request".to_owned(),
        ),
        _ => Ok(format!(
            "servers listen at {}; each response is fetched from its own address",
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
            // 0A: TCP_LISTEN.
            let is_listening = state == "0A" && u16::from_str_radix(local_port, 16) == Ok(port);
            is_listening.then(|| parse(address)).flatten()
        })
        .collect()
}

/// Parses an address in /proc/net/tcp: hexadecimal words of 32 bits in host byte order.
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
    fn description_names_the_listening_addresses() {
        let any = IpAddr::from([0, 0, 0, 0]);
        let other = IpAddr::from([10, 0, 0, 1]);
        let ask = |addresses: &[IpAddr]| describe_servers(80, addresses);
        let text = |addresses: &[IpAddr]| ask(addresses).expect("somebody");
        assert!(text(&[any, Ipv6Addr::UNSPECIFIED.into()]).contains("all addresses"));
        assert!(text(&[other]).ends_with("at 10.0.0.1"));
        assert!(text(&[any, other]).contains("0.0.0.0, 10.0.0.1; each"));
        assert!(ask(&[]).expect_err("none").contains("nothing listens"));
    }
}
