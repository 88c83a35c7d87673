//! Which addresses the process listens at, and the sockets for each worker.

mod adopted;
mod places;

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use lowroad_config::{self as config, Config};
use lowroad_engine::ListenerId;
use lowroad_engine::listener::{Listener, probe};
use rustix::io::Errno;

use adopted::AdoptedSocket;
pub use places::Places;

/// How long workers may take to close a listener that is given up; a reload that wants its address again waits so long.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause before such an address is tried again.
const PROBE_PAUSE: Duration = Duration::from_millis(10);

/// The addresses in use.
#[derive(Clone, Default)]
pub struct Listeners {
    /// What the configuration calls them, and their numbers.
    pub ids: HashMap<SocketAddr, ListenerId>,
    /// Sockets that the supervisor handed over; they take the place of all addresses.
    adopted: Vec<AdoptedSocket>,
    /// Where they really are: a port 0 has become another.
    pub addresses: Vec<(ListenerId, SocketAddr)>,
    /// Addresses given up lately, and until when workers may still take the last connections there.
    closing: Vec<(SocketAddr, Instant)>,
    next: u16,
}

/// Sockets newly opened, for each worker.
pub type Opened = Vec<Vec<(ListenerId, Listener)>>;

impl Listeners {
    /// One listener at an address whose socket is elsewhere, as in a simulation.
    pub fn with_address(address: SocketAddr) -> Listeners {
        Listeners {
            ids: HashMap::from([(address, ListenerId(0))]),
            addresses: vec![(ListenerId(0), address)],
            next: 1,
            ..Listeners::default()
        }
    }

    /// Numbers given out so far: all are below.
    pub fn count(&self) -> usize {
        usize::from(self.next)
    }

    /// Where a connection to an address comes in: there, or where all addresses of its kind are meant, or all.
    pub fn at(&self, local: SocketAddr) -> Option<ListenerId> {
        let any_v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, local.port()));
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, local.port()));
        let candidates = match local {
            SocketAddr::V4(_) => [local, any_v4, any],
            SocketAddr::V6(_) => [local, any, any],
        };
        let id = |wanted: SocketAddr| {
            let mut known = self.addresses.iter();
            let same = |address: SocketAddr| {
                (address.ip(), address.port()) == (wanted.ip(), wanted.port())
            };
            known.find(|(_, address)| same(*address)).map(|(id, _)| *id)
        };
        candidates.into_iter().find_map(id)
    }

    /// Connections to `asked` come in there from now on.
    pub fn stand_for(&mut self, id: ListenerId, asked: SocketAddr) {
        for (known, address) in &mut self.addresses {
            if *known == id {
                *address = asked;
            }
        }
    }

    /// Opens sockets for every address of the configuration that is not open yet, `workers` each;
    /// or takes those that the supervisor handed over.
    ///
    /// # Errors
    /// A text that says which address can't be had and why. Nothing is changed then.
    pub fn open(&mut self, config: &Config, workers: usize) -> Result<Opened, String> {
        let mut opened: Opened = (0..workers).map(|_| Vec::new()).collect();
        self.adopt(&mut opened)?;
        if !self.adopted.is_empty() {
            return Ok(opened);
        }
        let mut added = Vec::new();
        for address in config.sites.iter().flat_map(config::Site::addresses) {
            if !self.ids.contains_key(address) && !added.contains(address) {
                added.push(*address);
            }
        }
        let now = Instant::now();
        self.closing.retain(|(_, end)| *end > now);
        let mut ids = Vec::new();
        for (at, address) in added.iter().enumerate() {
            let id = ListenerId(self.next + at as u16);
            // A port of ours is ours at other addresses too; what else is wrong, bind tells.
            let others = || self.ids.keys().chain(&added[..at]);
            let free = address.port() != 0 && !others().any(|own| own.port() == address.port());
            let mut open = |address: SocketAddr| {
                if free {
                    self.probe(address)?;
                }
                open_all(address, id, &mut opened)
            };
            let real = match open(*address) {
                // Without IPv6 all addresses are those of IPv4.
                Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && is_without_ipv6(&error) => {
                    open(SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port())))
                }
                opened => opened,
            };
            let real =
                real.map_err(|error| format!("can't listen at {address}: {}", hint(&error)))?;
            ids.push((*address, id, real));
        }
        for (address, id, real) in ids {
            self.ids.insert(address, id);
            self.addresses.push((id, real));
            self.next += 1;
        }
        Ok(opened)
    }

    /// Whether an address is free. One that this server gave up a moment ago stays in use until its workers have taken
    /// the last connections and closed it, which is waited for.
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

    /// Forgets the addresses that a configuration does not name any more, and returns them.
    pub fn close_unused(&mut self, config: &Config) -> Vec<ListenerId> {
        let used = |address: &SocketAddr| {
            config
                .sites
                .iter()
                .any(|site| site.addresses().any(|own| own == address))
        };
        let unused: Vec<_> = self
            .ids
            .iter()
            .filter(|(address, _)| !used(address))
            .map(|(a, id)| (*a, *id))
            .collect();
        let end = Instant::now() + CLOSING_TIMEOUT;
        for (address, id) in &unused {
            self.ids.remove(address);
            let known = self.addresses.iter().find(|(known, _)| known == id);
            let real = known.map_or(*address, |(_, real)| *real);
            self.closing.push((real, end));
            self.addresses.retain(|(known, _)| known != id);
        }
        unused.into_iter().map(|(_, id)| id).collect()
    }

    /// Takes the supervisor's sockets, the first time that it is asked to.
    fn adopt(&mut self, opened: &mut Opened) -> Result<(), String> {
        if self.next > 0 {
            return Ok(());
        }
        let text = |error: io::Error| format!("can't take the supervisor's socket: {error}");
        for (scheme, listener) in adopted::take().map_err(text)? {
            let id = ListenerId(self.next);
            self.next += 1;
            let address = listener.address();
            self.adopted.push(AdoptedSocket {
                id,
                address,
                scheme,
            });
            self.addresses.extend(address.map(|address| (id, address)));
            for sockets in opened.iter_mut() {
                sockets.push((id, listener.share().map_err(text)?));
            }
        }
        Ok(())
    }
}

/// The kernel has no IPv6, or the supervisor forbids it.
fn is_without_ipv6(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL)
    )
}

/// Opens a socket for each worker; returns where they are.
fn open_all(address: SocketAddr, id: ListenerId, opened: &mut Opened) -> io::Result<SocketAddr> {
    let mut real = address;
    for sockets in opened {
        let listener = Listener::open(real)?;
        real = listener.address().unwrap_or(real);
        sockets.push((id, listener));
    }
    Ok(real)
}

fn hint(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::AddrInUse => "another program listens there (ss -ltnp shows which)".into(),
        ErrorKind::PermissionDenied => "ports below 1024 need root or CAP_NET_BIND_SERVICE".into(),
        ErrorKind::AddrNotAvailable => "this machine has no such address".into(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_come_in_where_the_address_is_meant_most_closely() {
        let listening = |addresses: &[&str]| Listeners {
            addresses: (0..)
                .zip(addresses)
                .map(|(id, text)| (ListenerId(id), text.parse().expect("an address")))
                .collect(),
            ..Listeners::default()
        };
        let at = |listeners: &Listeners, text: &str| {
            let found = listeners.at(text.parse().expect("an address"));
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
