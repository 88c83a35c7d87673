//! A DNS client (RFC 1035, RFC 2782): resolves host names and SRV names by the configured name servers, and returns the time
//! to live, which the system's resolver does not.
//!
//! It only asks recursive resolvers, over UDP, and over TCP if an answer was truncated. Each query has a random
//! identifier and a separate socket, connected to the name server, so that other hosts can't answer easily.

mod answer;

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use lowroad_engine::WorkerHandle;
use lowroad_origin::name_resolution::{
    HostName, NameAnswer, NameResolver, PendingLookup, ResolvedServer,
};
use simple_dns::{CLASS, Name, Packet, PacketFlag, Question, TYPE};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use self::answer::{AddressAnswer, DnsReply, ServiceTarget};

/// The time for an answer of one name server.
const QUERY_TIMEOUT: Duration = Duration::from_millis(1_500);
/// How often all name servers are asked.
const ROUNDS: usize = 2;
/// The number of queries for one name, if its aliases (CNAME) are not in the same answer.
const ALIASES_MAX: usize = 8;
/// The number of targets of a service of which the addresses are looked up.
const TARGETS_MAX: usize = 32;
/// The longest answer over UDP without extensions (RFC 1035 §4.2.1), with room to spare.
const UDP_LEN_MAX: usize = 1_500;
/// The bounds of the time to live: 0 would be a query for each request, and a week would keep lost servers.
const TTL_MIN: Duration = Duration::from_secs(1);
const TTL_MAX: Duration = Duration::from_secs(3_600);

/// A resolver that asks name servers.
#[derive(Clone)]
pub struct DnsResolver {
    /// The name servers; empty: those of `/etc/resolv.conf`.
    servers: Vec<SocketAddr>,
    /// The position of the name server that answered last: a silent one before it would delay each query.
    answering: Arc<AtomicUsize>,
    runtime: Handle,
}

impl NameResolver for DnsResolver {
    async fn resolve(&self, name: &HostName, _: &WorkerHandle) -> io::Result<NameAnswer> {
        // The sockets belong to the runtime beside the workers.
        let lookup = self.start(&name.host, name.port);
        lookup.await.map_err(io::Error::other)?
    }
}

impl DnsResolver {
    /// A resolver that asks these name servers, with tasks of a runtime.
    pub fn new(servers: Vec<SocketAddr>, runtime: Handle) -> DnsResolver {
        DnsResolver {
            servers,
            answering: Arc::default(),
            runtime,
        }
    }

    /// Starts a look-up, which ends with the receiver.
    pub fn start(&self, host: &str, port: u16) -> PendingLookup {
        let (mut sender, answer) = oneshot::channel();
        let (resolver, host) = (self.clone(), host.to_owned());
        self.runtime.spawn(async move {
            tokio::select! {
                found = resolver.look_up(&host, port) => {
                    // The receiver may have given up.
                    let _ = sender.send(found);
                }
                () = sender.closed() => {}
            }
        });
        answer
    }

    async fn look_up(&self, host: &str, port: u16) -> io::Result<NameAnswer> {
        let servers = match self.servers.is_empty() {
            true => system_servers().await?,
            false => self.servers.clone(),
        };
        let query = DnsQuery {
            servers: &servers,
            answering: &self.answering,
        };
        // The ports of a service are in its records.
        match port {
            0 => query.service(host).await,
            _ => query.host(host, port).await,
        }
    }
}

/// The name servers of the system.
async fn system_servers() -> io::Result<Vec<SocketAddr>> {
    let read = tokio::task::spawn_blocking(|| std::fs::read_to_string("/etc/resolv.conf"));
    let text = read.await.map_err(io::Error::other)??;
    let servers: Vec<_> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver"))
        .filter_map(|address| address.trim().parse::<IpAddr>().ok())
        .map(|address| SocketAddr::new(address, 53))
        .collect();
    match servers.is_empty() {
        true => Err(io::Error::other("/etc/resolv.conf names no name server")),
        false => Ok(servers),
    }
}

/// Queries to name servers.
struct DnsQuery<'s> {
    servers: &'s [SocketAddr],
    /// As in [`DnsResolver`].
    answering: &'s AtomicUsize,
}

impl DnsQuery<'_> {
    async fn host(&self, host: &str, port: u16) -> io::Result<NameAnswer> {
        let found = self.addresses(host).await?;
        let server = |address| ResolvedServer {
            address: SocketAddr::new(address, port),
            weight: None,
            is_backup: false,
        };
        Ok(NameAnswer {
            servers: found.addresses.into_iter().map(server).collect(),
            ttl: Some(found.ttl.clamp(TTL_MIN, TTL_MAX)),
        })
    }

    async fn service(&self, name: &str) -> io::Result<NameAnswer> {
        let (mut targets, mut ttl) = self
            .follow(name, TYPE::SRV, |reply, end| reply.services(end))
            .await?;
        targets.sort_by_key(|target: &ServiceTarget| target.priority);
        // The most preferred ones stay.
        targets.truncate(TARGETS_MAX);
        let first = targets.first().map(|target| target.priority);
        let (mut servers, mut failure) = (Vec::new(), None);
        for target in targets {
            match self.addresses(&target.host).await {
                Ok(found) => {
                    ttl = ttl.min(found.ttl);
                    servers.extend(found.addresses.into_iter().map(|address| ResolvedServer {
                        address: SocketAddr::new(address, target.port),
                        // A weight of 0 means the least share (RFC 2782).
                        weight: Some(u32::from(target.weight).max(1)),
                        is_backup: Some(target.priority) != first,
                    }));
                }
                Err(error) => failure = Some(error),
            }
        }
        // A target that can't be resolved is a server that is down.
        match (servers.is_empty(), failure) {
            (true, Some(error)) => Err(error),
            _ => Ok(NameAnswer {
                servers,
                // The shortest of the service and its targets.
                ttl: Some(ttl.clamp(TTL_MIN, TTL_MAX)),
            }),
        }
    }

    /// The IPv4 and IPv6 addresses of a host.
    async fn addresses(&self, host: &str) -> io::Result<AddressAnswer> {
        // At the same time: name servers answer one question each.
        let (v4, v6) = tokio::join!(
            self.follow(host, TYPE::A, |reply, end| reply.addresses(end)),
            self.follow(host, TYPE::AAAA, |reply, end| reply.addresses(end))
        );
        let (mut addresses, ttl) = match (v4, v6) {
            (Ok((mut v4, ttl_v4)), Ok((v6, ttl_v6))) => {
                // An empty answer has no time to live.
                let ttl = match (v4.is_empty(), v6.is_empty()) {
                    (false, false) => ttl_v4.min(ttl_v6),
                    (true, _) => ttl_v6,
                    (_, true) => ttl_v4,
                };
                v4.extend(v6);
                (v4, ttl)
            }
            (Ok(found), Err(_)) | (Err(_), Ok(found)) if !found.0.is_empty() => found,
            (Err(error), _) | (_, Err(error)) => return Err(error),
        };
        // Addresses to which nothing can listen, with which a name server would point at this machine.
        let unspecified = [
            IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        ];
        addresses.retain(|address| !unspecified.contains(address));
        match addresses.is_empty() {
            true => Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("{host} has no address"),
            )),
            false => Ok(AddressAnswer { addresses, ttl }),
        }
    }

    /// Asks for records of a name, and of the names that it is an alias of.
    async fn follow<T>(
        &self,
        name: &str,
        kind: TYPE,
        read: impl Fn(&DnsReply<'_>, &str) -> Vec<T>,
    ) -> io::Result<(Vec<T>, Duration)> {
        let (mut name, mut ttl) = (name.to_owned(), TTL_MAX);
        // The number is bounded, since names may be aliases of each other.
        for _ in 0..ALIASES_MAX {
            let bytes = self.ask(&name, kind).await?;
            let packet = Packet::parse(&bytes).map_err(malformed)?;
            let reply = DnsReply::new(&packet);
            let end = reply.alias_end(&name)?;
            ttl = ttl.min(reply.ttl());
            let found = read(&reply, &end);
            if !found.is_empty() || end.eq_ignore_ascii_case(&name) {
                return Ok((found, ttl));
            }
            name = end;
        }
        Err(io::Error::other(format!(
            "{name}: the name has more than {ALIASES_MAX} aliases"
        )))
    }

    /// The answer of the first name server that has one.
    async fn ask(&self, name: &str, kind: TYPE) -> io::Result<Vec<u8>> {
        let mut failure = io::Error::other("no name server");
        let (count, first) = (self.servers.len(), self.answering.load(Relaxed));
        for index in (0..count * ROUNDS).map(|number| (first + number) % count) {
            let server = self.servers[index];
            let asked = with_timeout(QUERY_TIMEOUT, ask_server(server, name, kind)).await;
            match asked {
                Ok(bytes) => {
                    self.answering.store(index, Relaxed);
                    return Ok(bytes);
                }
                // The answer is definite: other name servers would repeat it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(error),
                Err(error) => {
                    failure =
                        io::Error::new(error.kind(), format!("name server {server}: {error}"));
                }
            }
        }
        Err(failure)
    }
}

async fn with_timeout<T>(
    time: Duration,
    work: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let done = tokio::time::timeout(time, work).await;
    done.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")))
}

async fn ask_server(server: SocketAddr, name: &str, kind: TYPE) -> io::Result<Vec<u8>> {
    let mut id = [0; 2];
    getrandom::fill(&mut id).map_err(io::Error::other)?;
    let id = u16::from_be_bytes(id);
    let query = encode(id, name, kind)?;
    let local: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // A new port for each query, so that its answer is hard to forge.
    let socket = UdpSocket::bind(local).await?;
    socket.connect(server).await?;
    socket.send(&query).await?;
    let mut buffer = vec![0; UDP_LEN_MAX];
    loop {
        let len = socket.recv(&mut buffer).await?;
        // A datagram that is no answer to this query may be forged, and the real one may follow.
        match answer::check(&buffer[..len], id, name, kind) {
            Some(Ok(false)) => {
                buffer.truncate(len);
                return Ok(buffer);
            }
            Some(Ok(true)) => return ask_by_tcp(server, &query, id, name, kind).await,
            Some(Err(error)) => return Err(error),
            None => {}
        }
    }
}

async fn ask_by_tcp(
    server: SocketAddr,
    query: &[u8],
    id: u16,
    name: &str,
    kind: TYPE,
) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let len = u16::try_from(query.len()).map_err(io::Error::other)?;
    stream
        .write_all(&[&len.to_be_bytes(), query].concat())
        .await?;
    // At most 64 KiB, by the length's type.
    let len = stream.read_u16().await?;
    let mut bytes = vec![0; usize::from(len)];
    stream.read_exact(&mut bytes).await?;
    match answer::check(&bytes, id, name, kind) {
        Some(Ok(_)) => Ok(bytes),
        Some(Err(error)) => Err(error),
        // Unlike over UDP, no other answer can follow.
        None => Err(io::Error::other("the answer is not one to the query")),
    }
}

fn encode(id: u16, name: &str, kind: TYPE) -> io::Result<Vec<u8>> {
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let name = Name::new(name).map_err(malformed)?;
    let question = Question::new(name, kind.into(), CLASS::IN.into(), false);
    packet.questions.push(question);
    packet.build_bytes_vec().map_err(malformed)
}

fn malformed(error: simple_dns::SimpleDnsError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("DNS: {error}"))
}
