//! The daemon's connections to the server above. A connection goes to the local address that a client used, from the
//! same address or from the probe address. A level on `lo` must not answer these connections itself, so each
//! connection's source port is exempted first.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lowroad_softirq::fetch::address_fetcher::{ConnectSource, ServerConnector};
use lowroad_softirq::level::SoftirqLevel;
use lowroad_softirq::machine::interfaces;
use lowroad_softirq::machine::listeners;
use lowroad_softirq::machine::probe_source;
use rustix::net::sockopt::{set_ip_freebind, set_ipv6_freebind};
use socket2::{Domain, Protocol, Socket, Type};

/// Maximum number of exempted ports; it exceeds the number of the daemon's concurrent connections. The exemption of
/// older ports ends, because other processes may use these ports.
const EXEMPT_MAX: usize = 64;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns a function that connects to the server at an address. The function fails if the address no longer belongs to
/// this machine.
pub fn connector(level: Arc<SoftirqLevel>) -> ServerConnector {
    let exempt_ports = Mutex::new(VecDeque::new());
    // The address is checked for each connection: if net.ipv4.ip_nonlocal_bind is set, a socket can be bound to an
    // address that has moved to another machine, and that machine would respond.
    Arc::new(move |local, from| {
        connect(&level, interfaces::with_scope(local)?, from, &exempt_ports)
    })
}

fn connect(
    level: &SoftirqLevel,
    server: SocketAddr,
    from: ConnectSource,
    exempt_ports: &Mutex<VecDeque<u16>>,
) -> io::Result<TcpStream> {
    let socket = Socket::new(
        Domain::for_address(server),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    // The programs exempt ports only for these two source addresses.
    match from {
        ConnectSource::Machine => {
            let mut any_port = server;
            any_port.set_port(0);
            socket.bind(&any_port.into())?;
        }
        ConnectSource::ProbeSource => {
            let from = probe_source::address(server);
            bind_probe_source(&socket, server, from).map_err(io::Error::other)?;
        }
    }
    if let Some(from) = socket.local_addr()?.as_socket()
        && let Ok(mut exempt_ports) = exempt_ports.lock()
    {
        // When the queue is full, the exemption of the oldest port ends.
        exempt_ports.push_back(from.port());
        if exempt_ports.len() > EXEMPT_MAX {
            let oldest = exempt_ports.pop_front().expect("there are some");
            level.exempt_port(oldest, exempt_ports.contains(&oldest));
        }
        level.exempt_port(from.port(), true);
    }
    socket.connect_timeout(&server.into(), CONNECT_TIMEOUT)?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Binds the socket to the probe address, and adds the route for the responses to it. The route is added for each
/// connection, because another level may have removed it.
pub fn bind_probe_source(socket: &Socket, server: SocketAddr, from: SocketAddr) -> io::Result<()> {
    probe_source::add(server)?;
    // The address is not configured on an interface, so bind(2) needs IP_FREEBIND (IPV6_FREEBIND): for IPv6 the route
    // alone does not suffice.
    match server {
        SocketAddr::V4(_) => set_ip_freebind(socket, true)?,
        SocketAddr::V6(_) => set_ipv6_freebind(socket, true)?,
    }
    socket.bind(&from.into())
}

/// Returns an address at which the port is served, preferably one that other machines can reach.
///
/// # Errors
/// When there is none: a message for the user.
pub fn server_address(port: u16) -> Result<SocketAddr, String> {
    served_addresses(port)?
        .into_iter()
        // `false` sorts first, so the order is: global before link-local and loopback addresses, IPv4 before IPv6.
        .min_by_key(|address| {
            (
                address.is_loopback(),
                is_link_local(address),
                address.is_ipv6(),
            )
        })
        .map(|address| SocketAddr::new(address, port))
        .ok_or_else(|| format!("the server on port {port} listens at no address of this machine"))
}

/// Returns the addresses of this machine at which a port is served.
///
/// # Errors
/// No server listens on the port: a message for the user.
pub fn served_addresses(port: u16) -> Result<Vec<IpAddr>, String> {
    let listening: Vec<IpAddr> = listeners::addresses(port).map_err(|error| error.to_string())?;
    listeners::describe_servers(port, &listening)?;
    let local_addresses = interfaces::addresses().map_err(|error| error.to_string())?;
    let local_addresses = local_addresses
        .into_iter()
        .map(|bytes| Ipv6Addr::from(bytes).to_canonical());
    // A wildcard IPv6 socket also accepts IPv4, unless it sets IPV6_V6ONLY.
    let has_any_v6 = listening.contains(&Ipv6Addr::UNSPECIFIED.into());
    let has_any_v4 = has_any_v6 || listening.contains(&Ipv4Addr::UNSPECIFIED.into());
    let is_served = |address: &IpAddr| {
        listening.contains(address)
            || match address {
                IpAddr::V4(_) => has_any_v4,
                IpAddr::V6(_) => has_any_v6,
            }
    };
    Ok(local_addresses.filter(is_served).collect())
}

/// Whether an address is link-local.
pub fn is_link_local(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}
