//! A server of HTTP/3 on one socket, to run other clients and test suites against the crate:
//!
//! ```text
//! cargo run -p lowroad-quic --example serve_http3 -- ADDRESS FOLDER [retry]
//! ```
//!
//! FOLDER gets a certificate authority (`ca.pem`). With `retry` all clients must prove their address.

mod http_connection;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::BytesMut;
use lowroad_quic::{
    Admission, ConnectionKey, EcnBits, IncomingDatagram, ProcessWorker, QuicCipher, QuicEndpoint,
    QuicEndpointConfig, QuicEvent, QuicKeys, QuicLimits, QuicSettings, UsedTokens,
};
use lowroad_tls::authority::LocalAuthority;
use lowroad_tls::certificates::{CertificateMap, CertificateStore};
use lowroad_tls::{TicketKeys, TicketService, TlsAcceptor, TlsClock, TlsServerSettings};

use crate::http_connection::HttpConnection;

const USAGE: &str = "usage: serve_http3 ADDRESS FOLDER [retry]";
/// Datagrams of a train: as many as one call with segmentation offload takes.
const TRAIN_MAX: usize = 44;
/// The longest wait: the clock of tokens and certificates has a resolution of a second.
const WAIT_MAX_US: u64 = 1_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [address, folder, options @ ..] = &args[..] else {
        return Err(USAGE.into());
    };
    let clock = TlsClock::new(unix_s());
    let mut config = endpoint_config(Path::new(folder), &clock)?;
    if options.first().is_some_and(|option| option == "retry") {
        config.limits.retry_from = 0;
    }
    let socket = UdpSocket::bind(address)?;
    println!("listening on {}", socket.local_addr()?);
    serve(&socket, config, &clock)?;
    Ok(())
}

fn unix_s() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

fn endpoint_config(
    folder: &Path,
    clock: &TlsClock,
) -> Result<QuicEndpointConfig, Box<dyn std::error::Error>> {
    let authority = LocalAuthority::open(folder, "localhost", clock.unix_s())?;
    let pair = authority.sign(&["localhost", "127.0.0.1"], clock.unix_s())?;
    let mut certificates = CertificateMap::new();
    certificates.add(&pair);
    // Clients that connect to an address send no name.
    certificates.add_default(&pair);
    let mut settings = TlsServerSettings::new(CertificateStore::new(certificates), clock.clone());
    let keys = TicketKeys::new(3600, clock.unix_s())?;
    settings.tickets = Some(TicketService::new(keys, clock.clone())?);
    let acceptor = TlsAcceptor::new(&settings)?;
    Ok(QuicEndpointConfig {
        cipher: QuicCipher::tls(acceptor.for_quic()),
        keys: QuicKeys::new(&random()?),
        place: ProcessWorker {
            generation: 0,
            worker: 0,
        },
        seed: random()?,
        settings: QuicSettings::default(),
        limits: QuicLimits::default(),
        clock: clock.clone(),
        used_tokens: Arc::new(UsedTokens::default()),
    })
}

fn random() -> Result<[u8; 32], &'static str> {
    let mut bytes = [0; 32];
    let filled = aws_lc_rs::rand::fill(&mut bytes);
    filled.map_err(|_| "the system has no random bytes")?;
    Ok(bytes)
}

fn serve(socket: &UdpSocket, config: QuicEndpointConfig, clock: &TlsClock) -> io::Result<()> {
    let epoch = Instant::now();
    let now_us = || epoch.elapsed().as_micros() as u64;
    let mut endpoint: QuicEndpoint = QuicEndpoint::server(config, epoch);
    let mut connections: BTreeMap<ConnectionKey, HttpConnection> = BTreeMap::new();
    // The longest datagram of UDP.
    let (mut buffer, mut out) = (vec![0; 65_536], Vec::new());
    loop {
        // The timeout of a socket must not be zero.
        let due_us = endpoint.due_us().unwrap_or(u64::MAX);
        let wait_us = due_us.saturating_sub(now_us()).clamp(1, WAIT_MAX_US);
        socket.set_read_timeout(Some(Duration::from_micros(wait_us)))?;
        match socket.recv_from(&mut buffer) {
            Ok((len, from)) => {
                let datagram = IncomingDatagram {
                    from,
                    local_ip: None,
                    ecn: EcnBits::default(),
                    bytes: BytesMut::from(&buffer[..len]),
                };
                endpoint.take(datagram, now_us(), |_| Admission::Accept(()));
            }
            Err(error) if is_transient(error.kind()) => {}
            Err(error) => return Err(error),
        }
        // Certificates and tokens expire by this clock.
        clock.set(unix_s());
        endpoint.advance(now_us());
        while let Some(key) = endpoint.next_touched() {
            process(&mut endpoint, key, &mut connections);
            while let Some(train) = endpoint.emit(key, now_us(), TRAIN_MAX, &mut out) {
                for segment in out[..train.len].chunks(train.segment_len) {
                    send(socket, segment, train.to)?;
                }
            }
        }
        while let Some(train) = endpoint.emit_answer(&mut out) {
            send(socket, &out[..train.len], train.to)?;
        }
    }
}

fn process(
    endpoint: &mut QuicEndpoint,
    key: ConnectionKey,
    connections: &mut BTreeMap<ConnectionKey, HttpConnection>,
) {
    while let Some(event) = endpoint.next_event(key) {
        match event {
            QuicEvent::Opened => _ = connections.insert(key, HttpConnection::new()),
            QuicEvent::Over(reason) => {
                println!("connection {} is over: {reason:?}", key.0);
                connections.remove(&key);
                continue;
            }
            _ => {}
        }
        if let Some(http) = connections.get_mut(&key) {
            http.process(endpoint, key, event);
        }
    }
}

/// A datagram that the socket does not accept is lost, as on the network.
fn send(socket: &UdpSocket, bytes: &[u8], to: SocketAddr) -> io::Result<()> {
    match socket.send_to(bytes, to) {
        Ok(_) => Ok(()),
        Err(error) if is_transient(error.kind()) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Timeouts, and ICMP messages for earlier datagrams.
fn is_transient(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::WouldBlock
            | ErrorKind::TimedOut
            | ErrorKind::Interrupted
            | ErrorKind::ConnectionRefused
    )
}
