//! The UDP ports of the listeners with HTTP/3: opened, taken from an earlier process, or from a supervisor.

use std::io;
use std::net::SocketAddr;

use lowroad_config::Config;
use lowroad_engine::ListenerId;
use lowroad_engine::datagram_socket::PortSockets;
use rustix::io::Errno;

use super::socket_activation::AdoptedDatagrams;
use super::{HandedDatagrams, ListenerSet, NewDatagrams, datagrams, hint};

/// The reason for which a UDP port can't be used while a process that this one has replaced receives from it.
const OCCUPIED: &str = "the process before the upgrade receives there until its last connection has ended; then reload again";

/// The reason for which HTTP/3 is impossible at a TCP socket of the supervisor.
const NO_ADOPTED_SOCKET: &str = "systemd passes only a TCP socket there; add ListenDatagram= to its unit, and start the server anew";

/// A listener with HTTP/3.
struct DatagramListener {
    id: ListenerId,
    /// The actual address.
    address: SocketAddr,
    /// The TLS address of the sites.
    configured: SocketAddr,
}

impl ListenerSet {
    /// Opens `workers` datagram sockets for each TLS listener, if HTTP/3 is on, after its listening sockets, or takes those
    /// of an earlier process. An address that can't be opened is served by TCP alone
    /// ([`ListenerSet::without_datagrams`]), as is a socket of the supervisor without a UDP socket at its address.
    ///
    /// # Errors
    /// The process has too few descriptors or too little memory, so that a part of the sockets would be missing.
    pub fn open_datagrams(
        &mut self,
        config: &Config,
        workers: usize,
        handed: &mut HandedDatagrams,
    ) -> Result<NewDatagrams, String> {
        let mut new_sockets: NewDatagrams = (0..workers).map(|_| Vec::new()).collect();
        self.without_datagrams.clear();
        for listener in self.datagram_listeners(config) {
            let DatagramListener { id, address, .. } = listener;
            // Workers keep their sockets over reloads.
            if self.datagrams.contains(&id) {
                continue;
            }
            let origin = self.origin(id);
            let earlier = origin.map_or(Ok(None), |origin| handed.take(origin, workers));
            let ports = earlier.and_then(|ports| match ports {
                Some(ports) => Ok(ports),
                None => self.open_port(address, workers, handed),
            });
            match ports {
                Ok(ports) => {
                    // The workers close theirs when a reload turns HTTP/3 off.
                    if origin.is_some_and(|it| it.is_activated()) {
                        self.keep_adopted(address, &ports)?;
                    }
                    for (sockets, port) in new_sockets.iter_mut().zip(ports) {
                        sockets.push((id, port));
                    }
                    self.datagrams.push(id);
                }
                Err(error) if is_exhausted(&error) => {
                    return Err(format!("can't open the UDP port of {address}: {error}"));
                }
                Err(error) => {
                    let hint = hint(&error).replace("-ltnp", "-lunp");
                    self.without_datagrams.push((listener.configured, hint));
                }
            }
        }
        self.occupied_datagrams.extend(handed.occupied());
        Ok(new_sockets)
    }

    /// The addresses from which processes that this one has replaced receive datagrams.
    pub fn occupied_datagrams(&self) -> &[SocketAddr] {
        &self.occupied_datagrams
    }

    /// Makes all addresses available to [`ListenerSet::open_datagrams`]: the processes that this one has replaced have ended.
    pub fn release_occupied(&mut self) {
        self.occupied_datagrams.clear();
    }

    fn open_port(
        &self,
        address: SocketAddr,
        workers: usize,
        handed: &HandedDatagrams,
    ) -> io::Result<Vec<PortSockets>> {
        // Another socket would share the port with the supervisor's, which gets a part of the datagrams.
        if !self.adopted.is_empty() {
            return self.share_adopted(address, workers);
        }
        let occupied = self.occupied_datagrams.iter().copied();
        if occupied
            .chain(handed.occupied())
            .any(|it| datagrams::overlap(it, address))
        {
            return Err(io::Error::other(OCCUPIED));
        }
        // A wildcard address of this server may have the port, too.
        let is_own = self
            .http3_addresses()
            .any(|own| own.port() == address.port());
        if self.probes_datagrams && !is_own {
            datagrams::probe(address)?;
        }
        datagrams::open(address, self.datagram_owner, workers)
    }

    /// Shares the UDP socket that the supervisor has bound to this address.
    fn share_adopted(&self, address: SocketAddr, workers: usize) -> io::Result<Vec<PortSockets>> {
        let mut adopted = self.adopted_datagrams.iter();
        let adopted = adopted.find(|it| it.address == address);
        let adopted = adopted.ok_or_else(|| io::Error::other(self.lacks_adopted()))?;
        datagrams::distribute_adopted(adopted.socket.share()?, workers)
    }

    /// The reason for which no UDP socket of the supervisor is at an address.
    fn lacks_adopted(&self) -> String {
        let others = self.adopted_datagrams.iter();
        let others: Vec<String> = others.map(|it| it.address.to_string()).collect();
        match others.is_empty() {
            true => NO_ADOPTED_SOCKET.to_owned(),
            false => format!(
                "systemd passes UDP sockets at other addresses: {}",
                others.join(", ")
            ),
        }
    }

    /// Keeps a socket that the earlier process has passed, for the time after a reload without HTTP/3.
    fn keep_adopted(&mut self, address: SocketAddr, ports: &[PortSockets]) -> Result<(), String> {
        if self
            .adopted_datagrams
            .iter()
            .any(|it| it.address == address)
        {
            return Ok(());
        }
        let shared = ports.first().map(|port| port.socket.share()).transpose();
        let shared =
            shared.map_err(|error| format!("can't keep the UDP port of {address}: {error}"))?;
        self.adopted_datagrams
            .extend(shared.and_then(AdoptedDatagrams::new));
        Ok(())
    }

    /// The configured addresses at which HTTP/3 is impossible since the last [`ListenerSet::open_datagrams`], and the reasons.
    pub fn without_datagrams(&self) -> &[(SocketAddr, String)] {
        &self.without_datagrams
    }

    /// The addresses with HTTP/3.
    pub fn http3_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let addresses = self.addresses.iter();
        let own = addresses.filter(|(id, _)| self.datagrams.contains(id));
        own.map(|(_, address)| *address)
    }

    /// The listeners with HTTP/3.
    fn datagram_listeners(&self, config: &Config) -> Vec<DatagramListener> {
        let addresses = self.addresses_for(&config.sites);
        let all = self.addresses.iter().copied();
        let with_tls = all.filter_map(|(id, address)| {
            Some(DatagramListener {
                id,
                address,
                configured: addresses.tls_address(id)?,
            })
        });
        with_tls
            .filter(|it| config.has_http3(it.configured))
            .collect()
    }

    /// Removes the datagram sockets that a configuration no longer contains; returns their listeners.
    pub fn close_unused_datagrams(&mut self, config: &Config) -> Vec<ListenerId> {
        let used = self.datagram_listeners(config);
        let is_used = |id: &ListenerId| used.iter().any(|used| used.id == *id);
        let unused = self.datagrams.iter().copied().filter(|id| !is_used(id));
        let unused: Vec<ListenerId> = unused.collect();
        self.datagrams.retain(is_used);
        unused
    }
}

/// Whether the process or the system is out of descriptors or memory.
fn is_exhausted(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
    )
}
