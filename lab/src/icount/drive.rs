//! Generates the traffic of a measurement: either a closed loop over a few connections in one thread, so that the order
//! of events depends as little as possible on the host, or a user's command. Independent of guests.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::life::GuestLifeline;
use crate::load::{self, ExternalClock, LoadResult, LoadRun, OfferedTls, TlsSettings};
use crate::workload::urls::{UrlSpec, UrlWorkload};
use crate::workload::{PerConnection, TrafficWorkload, WorkloadVersion};

/// How requests use connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ConnectionMode {
    /// HTTP/1.1, all requests on persistent connections.
    #[value(name = "ka")]
    KeepAlive,
    /// HTTP/1.0, one request per connection.
    #[value(name = "close")]
    Close,
    /// As `ka`, over TLS 1.3.
    #[value(name = "tls")]
    Tls,
    /// One request per connection over TLS 1.3, each with a full handshake.
    #[value(name = "tls-full")]
    TlsFull,
    /// One request per connection over TLS 1.3, each with a resumed session.
    #[value(name = "tls-resumed")]
    TlsResumed,
    /// HTTP/2 over TLS 1.3, one request at a time on each connection.
    #[value(name = "h2")]
    Http2,
    /// HTTP/2 over TLS 1.3, 32 concurrent requests on each connection.
    #[value(name = "h2-streams")]
    Http2Streams,
    /// HTTP/3, one request at a time on each connection.
    #[value(name = "h3")]
    Http3,
    /// HTTP/3, 32 concurrent requests on each connection.
    #[value(name = "h3-streams")]
    Http3Streams,
    /// HTTP/3, one request per connection, each with a full handshake.
    #[value(name = "h3-full")]
    Http3Full,
}

/// Concurrent requests on a connection, in the modes that have several.
const STREAMS: u32 = 32;

impl ConnectionMode {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            ConnectionMode::KeepAlive => "ka",
            ConnectionMode::Close => "close",
            ConnectionMode::Tls => "tls",
            ConnectionMode::TlsFull => "tls-full",
            ConnectionMode::TlsResumed => "tls-resumed",
            ConnectionMode::Http2 => "h2",
            ConnectionMode::Http2Streams => "h2-streams",
            ConnectionMode::Http3 => "h3",
            ConnectionMode::Http3Streams => "h3-streams",
            ConnectionMode::Http3Full => "h3-full",
        }
    }

    /// The name in the head of a table.
    pub fn title(self) -> &'static str {
        match self {
            ConnectionMode::KeepAlive => "keep-alive",
            ConnectionMode::Close => "a connection a request",
            ConnectionMode::Tls => "keep-alive over TLS 1.3",
            ConnectionMode::TlsFull => "a full handshake a request",
            ConnectionMode::TlsResumed => "a resumed handshake a request",
            ConnectionMode::Http2 => "keep-alive over HTTP/2 and TLS 1.3",
            ConnectionMode::Http2Streams => "32 streams over HTTP/2 and TLS 1.3",
            ConnectionMode::Http3 => "keep-alive over HTTP/3",
            ConnectionMode::Http3Streams => "32 streams over HTTP/3",
            ConnectionMode::Http3Full => "a full handshake a request over HTTP/3",
        }
    }

    /// Whether the mode uses TLS.
    pub fn is_tls(self) -> bool {
        !matches!(self, ConnectionMode::KeepAlive | ConnectionMode::Close)
    }

    /// Whether the mode uses HTTP/3.
    pub fn is_http3(self) -> bool {
        self.connections().0 == WorkloadVersion::Http3
    }

    /// Whether each request has a connection.
    pub fn is_closing(self) -> bool {
        self.connections().1 != PerConnection::Unlimited
    }

    /// Concurrent requests on a connection.
    pub fn streams(self) -> u32 {
        match self {
            ConnectionMode::Http2Streams | ConnectionMode::Http3Streams => STREAMS,
            _ => 1,
        }
    }

    /// The HTTP version, and the number of requests per connection.
    pub fn connections(self) -> (WorkloadVersion, PerConnection) {
        match self {
            ConnectionMode::KeepAlive | ConnectionMode::Tls => {
                (WorkloadVersion::Http11, PerConnection::Unlimited)
            }
            ConnectionMode::Close => (WorkloadVersion::Http10, PerConnection::Fixed(1)),
            ConnectionMode::TlsFull | ConnectionMode::TlsResumed => {
                (WorkloadVersion::Http11, PerConnection::Fixed(1))
            }
            ConnectionMode::Http2 | ConnectionMode::Http2Streams => {
                (WorkloadVersion::Http2, PerConnection::Unlimited)
            }
            ConnectionMode::Http3 | ConnectionMode::Http3Streams => {
                (WorkloadVersion::Http3, PerConnection::Unlimited)
            }
            ConnectionMode::Http3Full => (WorkloadVersion::Http3, PerConnection::Fixed(1)),
        }
    }

    /// The TLS settings. Only one cipher suite and one group are offered, so that all servers select the same.
    fn tls(self) -> Option<TlsSettings> {
        self.is_tls().then(|| TlsSettings {
            name: NAME.into(),
            insecure: true,
            authorities: None,
            offered: OfferedTls::One {
                is_resuming: self == ConnectionMode::TlsResumed,
            },
        })
    }
}

/// The name in the certificates of guests.
pub(super) const NAME: &str = "guest.test";
/// Maximum time without input. It is generous: an emulated guest may need seconds where a real machine needs
/// milliseconds.
const SILENCE_MAX: Duration = Duration::from_secs(100);
/// Time within which the refusal of a datagram arrives.
const PROBE_TIMEOUT: Duration = Duration::from_millis(200);
/// Maximum duration of a measurement.
const DURATION_MAX: Duration = Duration::from_secs(600);
/// Maximum time without input, in the guest's time, of which a second may take ten on the host. Loading programs into
/// the kernel takes three seconds.
const SILENCE_GUEST_MAX: Duration = Duration::from_secs(10);
const DURATION_GUEST_MAX: Duration = Duration::from_secs(100);

/// The server under measurement.
pub struct DriveTarget<'a> {
    /// Detects the end of the guest.
    pub life: &'a GuestLifeline,
    /// The server's address.
    pub address: SocketAddr,
    /// TLS settings, if TLS is used.
    pub tls: Option<TlsSettings>,
    /// Concurrent requests on a connection.
    pub streams: u32,
    /// The virtual time of a guest that runs in steps.
    pub time: Option<Arc<dyn ExternalClock>>,
}

/// The amount of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveQuota {
    /// This many requests.
    Requests(u64),
    /// All requests of this many connections: the traffic is the same for every server and any number of simultaneous
    /// connections.
    Connections {
        /// Number of connections.
        count: u64,
        /// Total of their requests.
        requests: u64,
    },
}

impl DriveQuota {
    fn requests(self) -> u64 {
        match self {
            DriveQuota::Requests(requests) | DriveQuota::Connections { requests, .. } => requests,
        }
    }
}

/// The kind of traffic.
#[derive(Clone)]
pub enum DriveRequest {
    /// One page, which must be answered with status 200.
    Page(String, ConnectionMode),
    /// A page by POST, with a body of this many bytes.
    Post(String, ConnectionMode, usize),
    /// The traffic of a workload; its name is for messages.
    Workload(&'static str, Arc<dyn TrafficWorkload>),
    /// A command that makes exactly `{requests}` requests (or `{n}`) over `{connections}` connections (or `{c}`) to
    /// `{url}`.
    Command(String),
}

impl DriveRequest {
    /// The label of the figures.
    pub fn label(&self) -> String {
        match self {
            DriveRequest::Page(path, mode) | DriveRequest::Post(path, mode, _) => {
                format!("{path} {}", mode.name())
            }
            DriveRequest::Workload(name, _) => (*name).to_owned(),
            DriveRequest::Command(command) => command.clone(),
        }
    }

    fn is_http3(&self) -> bool {
        match self {
            DriveRequest::Page(_, mode) | DriveRequest::Post(_, mode, _) => mode.is_http3(),
            DriveRequest::Workload(..) | DriveRequest::Command(_) => false,
        }
    }

    /// Concurrent requests on a connection.
    pub fn streams(&self) -> u32 {
        match self {
            DriveRequest::Page(_, mode) | DriveRequest::Post(_, mode, _) => mode.streams(),
            DriveRequest::Workload(..) | DriveRequest::Command(_) => 1,
        }
    }

    /// The traffic as a workload, with TLS settings if TLS is used.
    ///
    /// # Errors
    /// The request is a command.
    pub fn traffic(
        &self,
        address: SocketAddr,
    ) -> Result<(Arc<dyn TrafficWorkload>, Option<TlsSettings>), String> {
        Ok(match self {
            DriveRequest::Command(command) => {
                return Err(format!("{command}: a command is not a workload"));
            }
            DriveRequest::Workload(_, workload) => (workload.clone(), None),
            DriveRequest::Page(path, mode) => {
                let workload = urls(address, UrlSpec::get(path), *mode)?;
                (Arc::new(workload), mode.tls())
            }
            DriveRequest::Post(path, mode, len) => {
                let mut spec = UrlSpec::get(path);
                (spec.method, spec.body) = ("POST".to_owned(), vec![b'x'; *len]);
                (Arc::new(urls(address, spec, *mode)?), mode.tls())
            }
        })
    }
}

/// Sends `requests` requests over `connections` simultaneous connections.
///
/// # Errors
/// A connection failed, a response was wrong, input stopped, or the guest ended; the text names which.
pub fn drive(
    life: &GuestLifeline,
    address: SocketAddr,
    request: &DriveRequest,
    requests: u64,
    connections: u32,
) -> Result<(), String> {
    if let DriveRequest::Command(command) = request {
        return drive_with_command(address, command, requests, connections);
    }
    if request.is_http3() {
        await_datagram_port(address, SILENCE_GUEST_MAX)?;
    }
    let (workload, tls) = request.traffic(address)?;
    let target = DriveTarget {
        life,
        address,
        tls,
        streams: request.streams(),
        time: None,
    };
    // `stop` is never set: the run ends by its quota or by timeouts.
    let stop = AtomicBool::new(false);
    let (label, quota) = (request.label(), DriveQuota::Requests(requests));
    drive_with_load(target, &label, workload, quota, connections, &stop).map(drop)
}

/// Waits until a program receives datagrams at this address. Servers open the UDP port after the TCP port.
fn await_datagram_port(address: SocketAddr, patience: Duration) -> Result<(), String> {
    let probe = || -> io::Result<()> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect(address)?;
        socket.set_read_timeout(Some(PROBE_TIMEOUT))?;
        // Too short for QUIC, so that the server discards it.
        socket.send(&[0])?;
        socket.recv(&mut [0]).map(drop)
    };
    let end = Instant::now() + patience;
    loop {
        match probe() {
            // ICMP port unreachable.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                if Instant::now() > end {
                    return Err(format!("no program receives datagrams at {address}"));
                }
                sleep(PROBE_TIMEOUT);
            }
            // Silence: the datagram has a receiver.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(format!("{address}: {error}")),
            Ok(()) => return Ok(()),
        }
    }
}

fn urls(
    address: SocketAddr,
    mut spec: UrlSpec,
    mode: ConnectionMode,
) -> Result<UrlWorkload, String> {
    let (version, per_connection) = mode.connections();
    // An error page costs fewer instructions than the page, and must not count as one.
    spec.expected_status = Some(200);
    let host = match mode.is_tls() {
        true => NAME.to_owned(),
        false => address.ip().to_string(),
    };
    UrlWorkload::new(vec![spec], &host, version, per_connection, false)
}

/// Generates the requests of a workload, until `stop` is set.
///
/// # Errors
/// As for [`drive`].
pub fn drive_with_load(
    target: DriveTarget<'_>,
    label: &str,
    workload: Arc<dyn TrafficWorkload>,
    quota: DriveQuota,
    connections: u32,
    stop: &AtomicBool,
) -> Result<LoadResult, String> {
    let mut load = LoadRun::plain(target.address, workload);
    load.target.tls = target.tls;
    let (requests, openings) = match quota {
        DriveQuota::Requests(count) => (Some(count), None),
        DriveQuota::Connections { count, .. } => (None, Some(count)),
    };
    let (duration, timeout) = match target.time {
        None => (DURATION_MAX, SILENCE_MAX),
        Some(_) => (DURATION_GUEST_MAX, SILENCE_GUEST_MAX),
    };
    // No warm-up: the caller counts instructions around the whole run, and executes its warm-up separately.
    let load = LoadRun {
        time: target.time,
        pipeline: target.streams,
        connections,
        duration,
        requests,
        openings,
        timeout,
        ..load
    };
    let outcome = target
        .life
        .watch(stop, |halt| load::run(&load, &mut |_| {}, halt));
    let outcome = outcome.map_err(|error| error.to_string())?;
    let requests = quota.requests();
    if is_right(&outcome, requests) {
        return Ok(outcome);
    }
    let reason = match outcome.errors {
        0 => "the server closed connections before all requests were sent".to_owned(),
        _ => format!("{:?}", outcome.errors_by_kind),
    };
    Err(format!(
        "{} of {requests} requests for {label} done: {reason}; by status {:?}",
        outcome.requests, outcome.statuses
    ))
}

/// Whether all requests were answered. A few may be lost because the server closed an idle connection at the same time
/// (RFC 9112 section 9.5): Apache's event MPM closes idle connections when it is busy. If the quota is in connections,
/// the remaining requests of a closed connection are not sent.
fn is_right(outcome: &LoadResult, requests: u64) -> bool {
    // The tolerance: one closed connection in this many requests, and this many lost requests for each closed
    // connection.
    const FEW: u64 = 200;
    const FEW_LEFT: u64 = 40;
    let closed = outcome.errors_by_kind.get("closed").copied();
    let closed = closed.unwrap_or(0);
    let missing = requests.abs_diff(outcome.requests);
    // If the quota is in connections, a connection that was closed early loses several requests.
    let is_few = closed * FEW <= requests && missing * FEW_LEFT <= requests;
    outcome.errors == closed && (missing == 0 || (closed > 0 && missing >= closed && is_few))
}

fn drive_with_command(
    address: SocketAddr,
    command: &str,
    requests: u64,
    connections: u32,
) -> Result<(), String> {
    let (requests, connections) = (requests.to_string(), connections.to_string());
    let filled = command
        .replace("{requests}", &requests)
        .replace("{n}", &requests)
        .replace("{connections}", &connections)
        .replace("{c}", &connections)
        .replace("{url}", &format!("http://{address}"));
    let output = Command::new("sh").args(["-c", &filled]).output();
    let output = output.map_err(|error| format!("--drive: sh: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let output_text = [output.stdout, output.stderr].concat();
    Err(format!(
        "--drive {filled}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output_text).trim()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: &str = "127.0.0.1:80";

    #[test]
    fn few_requests_may_race_with_connection_close() {
        let outcome = |requests, closed: u64, resets: u64| LoadResult {
            requests,
            errors: closed + resets,
            errors_by_kind: [("closed", closed), ("reset", resets)]
                .map(|(kind, count)| (kind.to_owned(), count))
                .into(),
            ..LoadResult::default()
        };
        assert!(is_right(&outcome(1000, 0, 0), 1000));
        assert!(is_right(&outcome(995, 5, 0), 1000));
        assert!(!is_right(&outcome(994, 6, 0), 1000));
        assert!(!is_right(&outcome(999, 0, 1), 1000));
        assert!(is_right(&outcome(980, 1, 0), 1000), "it had more to ask");
        assert!(!is_right(&outcome(970, 1, 0), 1000));
        assert!(!is_right(&outcome(999, 0, 0), 1000));
    }

    #[test]
    fn drive_command_gets_placeholders_and_reports_failure() {
        let address = ADDRESS.parse().expect("an address");
        let asked = |text: &str| DriveRequest::Command(text.to_owned());
        let right = "test {n} = 7 && test {c} = 3 && test {url} = http://127.0.0.1:80";
        let mut other = Command::new("true").spawn().expect("a process");
        let life = GuestLifeline::from_child(&other).expect("a descriptor");
        other.wait().expect("an end");
        assert_eq!(drive(&life, address, &asked(right), 7, 3), Ok(()));
        let right = "test {requests} = 7 && test {connections} = 3";
        assert_eq!(drive(&life, address, &asked(right), 7, 3), Ok(()));
        let why =
            drive(&life, address, &asked("echo no luck; exit 4"), 7, 3).expect_err("a failure");
        assert!(why.contains("no luck") && why.contains('4'), "{why}");
    }

    #[test]
    fn datagram_port_is_open_or_refused() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = socket.local_addr().expect("its address");
        assert_eq!(await_datagram_port(address, Duration::ZERO), Ok(()));
        drop(socket);
        let refused = await_datagram_port(address, Duration::ZERO);
        assert!(refused.is_err(), "{refused:?}");
    }
}
