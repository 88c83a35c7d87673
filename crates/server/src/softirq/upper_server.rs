//! Finds the Lowroad server above a level, if there is one, and reads its counters. Other servers' requests can't be
//! counted, since their sockets do not distinguish requests.

use std::net::SocketAddr;

use super::namespace::is_in_namespace;
use crate::admin;

/// The counters of a server since its start. They include all its ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerCounts {
    /// The server's process.
    pub process: u32,
    /// Time since its start.
    pub age_s: u64,
    /// Requests.
    pub requests: u64,
    /// Bytes of response heads and bodies that were sent.
    pub bytes: u64,
}

/// Returns the server that listens on one of these ports in this network namespace. If several do, as after a restart,
/// returns the youngest; the old process only completes its requests.
#[must_use]
pub fn find_server(ports: &[u16]) -> Option<ServerCounts> {
    let found = admin::statuses();
    let found = found.iter().filter_map(|text| read(text, ports));
    let local_servers = found.filter(|server| is_in_namespace(server.process));
    local_servers.min_by_key(|server| server.age_s)
}

/// Parses the output of `lowroad status`. `None`: the server listens on other ports, or the format differs.
fn read(text: &str, ports: &[u16]) -> Option<ServerCounts> {
    let lines = || text.lines().filter_map(|line| line.trim().split_once(' '));
    let value = |name: &str| {
        lines()
            .find(|(other, _)| *other == name)
            .map(|(_, value)| value.trim())
    };
    let listens = lines()
        .filter(|(name, _)| *name == "listens")
        .filter_map(|(_, address)| address.trim().parse::<SocketAddr>().ok())
        // The address does not matter, because a level in front of a port covers all addresses.
        .any(|address| ports.contains(&address.port()));
    // Another version of Lowroad may have another output format; such a server is ignored.
    let (process, uptime) = value("process")?.split_once(", up ")?;
    listens.then_some(ServerCounts {
        process: process.parse().ok()?,
        age_s: uptime.strip_suffix(" s")?.parse().ok()?,
        requests: value("requests")?.parse().ok()?,
        bytes: value("sent_bytes")?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "lowroad 0.1.0\n  process                7, up 60 s\n  listens                0.0.0.0:80\n  \
                        listens                [::1]:8080\n  requests               5\n  sent_bytes             900\n";

    #[test]
    fn status_is_parsed_only_if_server_listens_on_a_port() {
        let above = ServerCounts {
            process: 7,
            age_s: 60,
            requests: 5,
            bytes: 900,
        };
        assert_eq!(read(TEXT, &[8080]), Some(above));
        assert_eq!(read(TEXT, &[81, 80]), Some(above));
        assert_eq!(read(TEXT, &[81]), None);
        assert_eq!(read("what", &[80]), None);
        assert_eq!(read(&TEXT.replace("sent_", "other_"), &[80]), None);
    }
}
