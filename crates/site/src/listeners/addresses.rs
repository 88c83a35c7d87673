//! The listeners of each site: the listeners of its configured addresses, or the supervisor's sockets that replace
//! them.

use std::collections::HashSet;
use std::net::SocketAddr;

use lowroad_config as config;
use lowroad_engine::ListenerId;

use super::ListenerSet;
use super::socket_activation::{AdoptedSocket, ListenerScheme};

/// The listeners of the sites of a configuration.
pub struct ListenerAddresses<'l> {
    listeners: &'l ListenerSet,
    adopted: Vec<(ListenerId, SocketRole)>,
    /// All configured TLS addresses.
    tls: HashSet<SocketAddr>,
}

/// The sites that use a socket of the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SocketRole {
    /// Sites with this address, without TLS.
    Plain(SocketAddr),
    /// All sites with any address without TLS.
    AllPlain,
    /// Sites with this address, over TLS.
    Tls(SocketAddr),
    /// No site: the socket is named https, but no site uses TLS.
    None,
}

impl ListenerSet {
    /// The listeners of the sites in `sites`.
    pub fn addresses_for(&self, sites: &[config::SiteConfig]) -> ListenerAddresses<'_> {
        let tls_list = || {
            sites
                .iter()
                .flat_map(config::SiteConfig::tls_addresses)
                .copied()
        };
        // Only the roles of adopted sockets need this list.
        let plain: Vec<SocketAddr> = match self.adopted.is_empty() {
            true => Vec::new(),
            false => sites
                .iter()
                .flat_map(|it| it.listen.iter().copied())
                .collect(),
        };
        let role = |socket: &AdoptedSocket| (socket.id, role(socket, &plain, tls_list));
        ListenerAddresses {
            listeners: self,
            adopted: self.adopted.iter().map(role).collect(),
            tls: tls_list().collect(),
        }
    }
}

impl ListenerAddresses<'_> {
    /// The listeners of a site.
    pub fn for_site(&self, site: &config::SiteConfig) -> Vec<ListenerId> {
        let ids = &self.listeners.ids;
        // With sockets of a supervisor, no configured address is open, and `ids` is empty.
        let configured = site.addresses().filter_map(|address| ids.get(address));
        let is_served = |role: SocketRole| match role {
            SocketRole::Plain(address) => site.listen.contains(&address),
            SocketRole::AllPlain => !site.listen.is_empty(),
            SocketRole::Tls(address) => site.tls_addresses().contains(&address),
            SocketRole::None => false,
        };
        let adopted = self.adopted.iter();
        let adopted = adopted.filter(|(_, role)| is_served(*role));
        configured
            .chain(adopted.map(|(id, _)| id))
            .copied()
            .collect()
    }

    /// The configured TLS address of a listener; `None` for a listener without TLS.
    pub fn tls_address(&self, id: ListenerId) -> Option<SocketAddr> {
        let adopted = self
            .adopted
            .iter()
            .find(|(listener_id, _)| *listener_id == id);
        if let Some((_, role)) = adopted {
            return match role {
                SocketRole::Tls(address) => Some(*address),
                _ => None,
            };
        }
        let mut ids = self.listeners.ids.iter();
        let (address, _) = ids.find(|(_, listener_id)| **listener_id == id)?;
        self.tls.get(address).copied()
    }

    /// The TLS listeners, with their configured addresses.
    pub fn tls_ids(&self) -> Vec<(SocketAddr, ListenerId)> {
        let ids = &self.listeners.ids;
        let configured = self.tls.iter();
        let configured = configured.filter_map(|address| Some((*address, *ids.get(address)?)));
        let adopted = self.adopted.iter().filter_map(|(id, role)| match role {
            SocketRole::Tls(address) => Some((*address, *id)),
            _ => None,
        });
        configured.chain(adopted).collect()
    }

    /// Problems of the supervisor's sockets, as texts for the log.
    pub fn faults(&self) -> impl Iterator<Item = &'static str> {
        let unused = self
            .adopted
            .iter()
            .filter(|(_, role)| *role == SocketRole::None);
        unused.map(|_| "the supervisor passed a socket named https, but no site has TLS: nothing is served there")
    }
}

/// Selects the role of a socket, in this order: by a configured address that equals the socket's address; by a
/// configured address with the same port; by the socket's name alone; by the protocols that are configured. An address
/// must fit the protocol that the socket's name states.
fn role<T: Iterator<Item = SocketAddr>>(
    socket: &AdoptedSocket,
    plain: &[SocketAddr],
    tls: impl Fn() -> T,
) -> SocketRole {
    let same = |configured: &SocketAddr| {
        socket
            .address
            .is_some_and(|actual| is_equivalent(actual, *configured))
    };
    let same_port = |configured: &SocketAddr| {
        socket
            .address
            .is_some_and(|actual| actual.port() == configured.port())
    };
    let plain_at = || plain.iter().copied().find(|it| same(it));
    let tls_at = || tls().find(same);
    let tls_near = || tls_at().or_else(|| tls().find(same_port));
    match socket.scheme {
        Some(ListenerScheme::Http) => plain_at().map_or(SocketRole::AllPlain, SocketRole::Plain),
        Some(ListenerScheme::Https) => tls_near()
            .or_else(|| tls().next())
            .map_or(SocketRole::None, SocketRole::Tls),
        None => {
            if let Some(address) = plain_at() {
                return SocketRole::Plain(address);
            }
            if let Some(address) = tls_at() {
                return SocketRole::Tls(address);
            }
            // A port that is configured for plain text is not used for TLS.
            let is_plain = plain.iter().any(same_port);
            match tls_near().filter(|_| !is_plain) {
                Some(address) => SocketRole::Tls(address),
                // Here TLS is the only configured protocol.
                None if plain.is_empty() => {
                    tls().next().map_or(SocketRole::AllPlain, SocketRole::Tls)
                }
                None => SocketRole::AllPlain,
            }
        }
    }
}

/// Whether the address of a supervisor's socket equals a configured address; the IPv4 and the IPv6 wildcard count as
/// equal.
fn is_equivalent(adopted: SocketAddr, configured: SocketAddr) -> bool {
    let both_any = adopted.ip().is_unspecified() && configured.ip().is_unspecified();
    adopted == configured || both_any && adopted.port() == configured.port()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adopted_socket_role_follows_its_name_and_address() {
        let at = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let plain = [at("[::]:80"), at("192.0.2.1:8080")];
        let tls = [at("[::]:443"), at("192.0.2.1:8443")];
        let (http, https) = (Some(ListenerScheme::Http), Some(ListenerScheme::Https));
        let of = |plain: &[SocketAddr], tls: &[SocketAddr], address: Option<&str>, scheme| {
            let socket = AdoptedSocket {
                id: ListenerId(0),
                address: address.map(at),
                scheme,
            };
            role(&socket, plain, || tls.iter().copied())
        };
        for (address, scheme, want) in [
            (Some("0.0.0.0:80"), None, SocketRole::Plain(plain[0])),
            (Some("0.0.0.0:443"), None, SocketRole::Tls(tls[0])),
            // Another address with the port of a TLS address.
            (Some("192.0.2.7:443"), None, SocketRole::Tls(tls[0])),
            (Some("127.0.0.1:8443"), None, SocketRole::Tls(tls[1])),
            (Some("127.0.0.1:8080"), None, SocketRole::AllPlain),
            (Some("127.0.0.1:1"), None, SocketRole::AllPlain),
            (Some("127.0.0.1:1"), http, SocketRole::AllPlain),
            (Some("127.0.0.1:443"), http, SocketRole::AllPlain),
            (Some("192.0.2.1:8080"), http, SocketRole::Plain(plain[1])),
            (Some("127.0.0.1:1"), https, SocketRole::Tls(tls[0])),
            (Some("192.0.2.1:8443"), https, SocketRole::Tls(tls[1])),
            (Some("127.0.0.1:80"), https, SocketRole::Tls(tls[0])),
            (None, None, SocketRole::AllPlain),
            (None, http, SocketRole::AllPlain),
            (None, https, SocketRole::Tls(tls[0])),
        ] {
            assert_eq!(
                of(&plain, &tls, address, scheme),
                want,
                "{address:?} {scheme:?}"
            );
        }
        assert_eq!(
            of(&[], &tls, Some("127.0.0.1:1"), None),
            SocketRole::Tls(tls[0])
        );
        assert_eq!(
            of(&plain, &[], Some("127.0.0.1:443"), https),
            SocketRole::None
        );
        assert_eq!(
            of(&plain, &[], Some("127.0.0.1:443"), None),
            SocketRole::AllPlain
        );
    }
}
