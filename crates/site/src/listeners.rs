//! The addresses on which the server listens, and each worker's sockets.

mod addresses;
mod datagrams;
mod handed_sockets;
mod http3_ports;
mod socket_activation;

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use lowroad_config::{self as config, Config};
use lowroad_engine::ListenerId;
use lowroad_engine::listener::{ListenSocket, probe};
use rustix::io::Errno;

pub use addresses::ListenerAddresses;
pub use datagrams::{HandedDatagrams, NewDatagrams};
pub use handed_sockets::{HandedSockets, SocketLabel, SocketOrigin};
pub use socket_activation::ListenerScheme;
use socket_activation::{ActivatedSockets, AdoptedDatagrams, AdoptedSocket};

/// The time within which workers must have closed a listener; a reload that needs the address again waits this long at
/// most.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause between two probes of an address that is being closed.
const PROBE_PAUSE: Duration = Duration::from_millis(10);

/// The listeners of all sites.
#[derive(Clone, Default)]
pub struct ListenerSet {
    /// The configured addresses, with their listener numbers.
    pub ids: HashMap<SocketAddr, ListenerId>,
    /// Sockets passed by the supervisor; if there are any, configured addresses are not opened.
    adopted: Vec<AdoptedSocket>,
    /// UDP sockets passed by the supervisor.
    adopted_datagrams: Vec<AdoptedDatagrams>,
    /// The actual addresses, in which the kernel has replaced port 0.
    pub addresses: Vec<(ListenerId, SocketAddr)>,
    /// Recently closed addresses, and the time until which workers may still accept connections there.
    closing: Vec<(SocketAddr, Instant)>,
    /// The listeners with datagram sockets for HTTP/3.
    datagrams: Vec<ListenerId>,
    /// The configured addresses at which HTTP/3 is impossible, and the reasons.
    without_datagrams: Vec<(SocketAddr, String)>,
    /// The addresses from which processes that this one has replaced receive datagrams. Sockets of this process would get some
    /// of those of their connections, and they some of its new ones.
    occupied_datagrams: Vec<SocketAddr>,
    /// The owner of datagram sockets, if the process was started as another user.
    pub datagram_owner: Option<u32>,
    /// No process of this server has UDP ports yet, so that a port in use belongs to another program.
    pub probes_datagrams: bool,
    next: u16,
}

/// Newly opened sockets, for each worker.
pub type NewSockets = Vec<Vec<(ListenerId, ListenSocket)>>;

impl ListenerSet {
    /// Creates a set with one listener that has its socket outside this process, as in a simulation.
    pub fn with_address(address: SocketAddr) -> ListenerSet {
        ListenerSet {
            ids: HashMap::from([(address, ListenerId(0))]),
            addresses: vec![(ListenerId(0), address)],
            next: 1,
            ..ListenerSet::default()
        }
    }

    /// The number of listener numbers assigned so far; all of them are below this number.
    pub fn count(&self) -> usize {
        usize::from(self.next)
    }

    /// The listener that accepts connections to an address: the listener of the address itself, else that of the
    /// wildcard of its family, else that of `[::]`.
    pub fn find_by_address(&self, local: SocketAddr) -> Option<ListenerId> {
        let any_v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, local.port()));
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, local.port()));
        let candidates = match local {
            // The kernel prefers the most specific socket (ip(7), ipv6(7)).
            SocketAddr::V4(_) => [local, any_v4, any],
            SocketAddr::V6(_) => [local, any, any],
        };
        let id = |candidate: SocketAddr| {
            let mut entries = self.addresses.iter();
            // Not `==`, which would also compare the flow label and scope of an IPv6 address.
            let same = |address: SocketAddr| {
                (address.ip(), address.port()) == (candidate.ip(), candidate.port())
            };
            entries
                .find(|(_, address)| same(*address))
                .map(|(id, _)| *id)
        };
        candidates.into_iter().find_map(id)
    }

    /// From now on, connections to `client_address` arrive at listener `id`.
    pub fn set_address(&mut self, id: ListenerId, client_address: SocketAddr) {
        for (listener_id, address) in &mut self.addresses {
            if *listener_id == id {
                *address = client_address;
            }
        }
    }

    /// Opens `workers` sockets for each configured address that is not open yet, or takes the sockets of the
    /// supervisor.
    ///
    /// # Errors
    /// An address that cannot be opened, and the reason. The set is unchanged then.
    pub fn open(&mut self, config: &Config, workers: usize) -> Result<NewSockets, String> {
        self.open_with(config, workers, &mut HandedSockets::default())
    }

    /// As [`ListenerSet::open`], but takes the sockets of an earlier process where it has some.
    ///
    /// # Errors
    /// As [`ListenerSet::open`].
    pub fn open_with(
        &mut self,
        config: &Config,
        workers: usize,
        handed: &mut HandedSockets,
    ) -> Result<NewSockets, String> {
        let mut new_sockets: NewSockets = (0..workers).map(|_| Vec::new()).collect();
        self.adopt(&mut new_sockets, handed)?;
        // With sockets of a supervisor, no configured address is opened.
        if !self.adopted.is_empty() {
            return Ok(new_sockets);
        }
        // Several sites may have the same address.
        let mut added = Vec::new();
        for address in config.sites.iter().flat_map(config::SiteConfig::addresses) {
            if !self.ids.contains_key(address) && !added.contains(address) {
                added.push(*address);
            }
        }
        let now = Instant::now();
        // The entries with sockets that the workers have closed by now are removed.
        self.closing.retain(|(_, end)| *end > now);
        let mut ids = Vec::new();
        for (index, address) in added.iter().enumerate() {
            let id = ListenerId(self.next + index as u16);
            // At a port that is in use by this process, a probe would find the process's own sockets; bind reports
            // conflicts there.
            let own_addresses = || self.ids.keys().chain(&added[..index]);
            let mut earlier = handed.take_configured(*address, workers);
            // The sockets of the earlier process are no conflict.
            let needs_probe = earlier.is_empty()
                && address.port() != 0
                && !own_addresses().any(|other| other.port() == address.port());
            let mut open = |address: SocketAddr| {
                if needs_probe {
                    self.probe(address)?;
                }
                open_all(address, id, &mut new_sockets, std::mem::take(&mut earlier))
            };
            let real = match open(*address) {
                // Without IPv6, the IPv4 wildcard is used instead of the IPv6 wildcard.
                Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && is_without_ipv6(&error) => {
                    open(SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port())))
                }
                result => result,
            };
            let real =
                real.map_err(|error| format!("can't listen at {address}: {}", hint(&error)))?;
            ids.push((*address, id, real));
        }
        // The addresses are added only after all of them were opened: an error leaves the set unchanged.
        for (address, id, real) in ids {
            self.ids.insert(address, id);
            self.addresses.push((id, real));
            self.next += 1;
        }
        Ok(new_sockets)
    }

    /// Where the socket of a listener came from.
    pub fn origin(&self, id: ListenerId) -> Option<SocketOrigin> {
        if let Some(socket) = self.adopted.iter().find(|socket| socket.id == id) {
            return Some(SocketOrigin::Activated {
                position: id.0,
                scheme: socket.scheme,
            });
        }
        let mut ids = self.ids.iter();
        let (address, _) = ids.find(|(_, listener_id)| **listener_id == id)?;
        Some(SocketOrigin::Configured(*address))
    }

    /// The listener with sockets from this origin.
    pub fn find_by_origin(&self, origin: SocketOrigin) -> Option<ListenerId> {
        match origin {
            SocketOrigin::Configured(address) => self.ids.get(&address).copied(),
            SocketOrigin::Activated { position, .. } => {
                let mut adopted = self.adopted.iter().map(|socket| socket.id);
                adopted.find(|id| id.0 == position)
            }
        }
    }

    /// Checks that an address is free. If this server has recently closed the address, waits until its workers have
    /// accepted the last connections there.
    fn probe(&self, address: SocketAddr) -> io::Result<()> {
        let same_port = self
            .closing
            .iter()
            .filter(|(it, _)| it.port() == address.port());
        let end = same_port.map(|(_, end)| *end).max();
        loop {
            match (probe(address), end) {
                (Err(error), Some(end))
                    if error.kind() == ErrorKind::AddrInUse && Instant::now() < end =>
                {
                    thread::sleep(PROBE_PAUSE);
                }
                (probed, _) => return probed,
            }
        }
    }

    /// Removes the addresses that a configuration no longer contains; returns their listener numbers.
    pub fn close_unused(&mut self, config: &Config) -> Vec<ListenerId> {
        let is_used = |address: &SocketAddr| {
            config
                .sites
                .iter()
                .any(|site| site.addresses().any(|listed| listed == address))
        };
        let unused: Vec<_> = self
            .ids
            .iter()
            .filter(|(address, _)| !is_used(address))
            .map(|(a, id)| (*a, *id))
            .collect();
        let end = Instant::now() + CLOSING_TIMEOUT;
        for (address, id) in &unused {
            self.ids.remove(address);
            let entry = self
                .addresses
                .iter()
                .find(|(listener_id, _)| listener_id == id);
            let real = entry.map_or(*address, |(_, real)| *real);
            // Until `end`, a new listener on the port waits for the workers to close their sockets.
            self.closing.push((real, end));
            self.addresses.retain(|(listener_id, _)| listener_id != id);
        }
        unused.into_iter().map(|(_, id)| id).collect()
    }

    /// Takes the supervisor's sockets on the first call, from the supervisor or from the earlier process.
    fn adopt(
        &mut self,
        new_sockets: &mut NewSockets,
        handed: &mut HandedSockets,
    ) -> Result<(), String> {
        // If there are listeners, the sockets were taken before, or there are none.
        if self.next > 0 {
            return Ok(());
        }
        let text = |error: io::Error| format!("can't use the supervisor's socket: {error}");
        let mut activated = ActivatedSockets {
            listeners: handed.take_activated(),
            ..ActivatedSockets::default()
        };
        if activated.listeners.is_empty() {
            activated = socket_activation::take().map_err(text)?;
        }
        self.adopted_datagrams = activated.datagrams;
        for (scheme, listener) in activated.listeners {
            let id = ListenerId(self.next);
            self.next += 1;
            let address = listener.address();
            self.adopted.push(AdoptedSocket {
                id,
                address,
                scheme,
            });
            self.addresses.extend(address.map(|address| (id, address)));
            for sockets in new_sockets.iter_mut() {
                // All workers accept from the same socket, which the supervisor passed.
                sockets.push((id, listener.share().map_err(text)?));
            }
        }
        Ok(())
    }
}

/// Whether IPv6 is unavailable, in the kernel or by the supervisor's sandbox.
fn is_without_ipv6(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        // ADDRNOTAVAIL: IPv6 is disabled (sysctl disable_ipv6).
        Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL)
    )
}

/// Opens a socket for each worker, after the `earlier` ones are used up; returns the actual address.
fn open_all(
    address: SocketAddr,
    id: ListenerId,
    new_sockets: &mut NewSockets,
    earlier: Vec<ListenSocket>,
) -> io::Result<SocketAddr> {
    let mut real = address;
    let mut earlier = earlier.into_iter();
    for sockets in new_sockets {
        // Port 0 is resolved by the first socket; the other sockets share the port by SO_REUSEPORT.
        let listener = match earlier.next() {
            Some(listener) => listener,
            None => ListenSocket::open(real)?,
        };
        real = listener.address().unwrap_or(real);
        sockets.push((id, listener));
    }
    Ok(real)
}

fn hint(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::AddrInUse => "another program listens there (ss -ltnp shows which)".into(),
        ErrorKind::PermissionDenied => {
            "ports below 1024 require root or CAP_NET_BIND_SERVICE".into()
        }
        ErrorKind::AddrNotAvailable => "this machine has no such address".into(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_belongs_to_most_specific_listener() {
        let listening = |addresses: &[&str]| ListenerSet {
            addresses: (0..)
                .zip(addresses)
                .map(|(id, text)| (ListenerId(id), text.parse().expect("an address")))
                .collect(),
            ..ListenerSet::default()
        };
        let at = |listeners: &ListenerSet, text: &str| {
            let found = listeners.find_by_address(text.parse().expect("an address"));
            found.map(|id| id.0)
        };
        let all = listening(&["[::]:80", "0.0.0.0:80", "192.0.2.1:80", "[2001:db8::1]:80"]);
        assert_eq!(at(&all, "192.0.2.1:80"), Some(2));
        assert_eq!(at(&all, "192.0.2.2:80"), Some(1));
        assert_eq!(at(&all, "[2001:db8::1]:80"), Some(3));
        assert_eq!(at(&all, "[2001:db8::2]:80"), Some(0));
        assert_eq!(at(&all, "192.0.2.1:81"), None);
        let both = listening(&["[::]:80"]);
        assert_eq!(at(&both, "192.0.2.1:80"), Some(0));
    }
}
