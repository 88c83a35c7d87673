//! A QUIC connection of a client, on its socket.

use std::collections::VecDeque;
use std::io::{self, ErrorKind as Io};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use lowroad_quic::{
    Admission, ConnectionKey, EcnBits, IncomingDatagram, ProcessWorker, QuicCipher,
    QuicClientCipher, QuicEndpoint, QuicEndpointConfig, QuicEvent, QuicKeys, QuicLimits,
    QuicSettings, UsedTokens, random_bytes,
};
use lowroad_tls::TlsClock;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::three::NO_ERROR;

/// Windows so large that a server never waits for them.
const WINDOW_LEN: u32 = 1 << 24;
/// Receive buffer of a socket: as many bytes as a server may send before it learns of a loss.
const RECEIVE_BUFFER_LEN: usize = 4 << 20;
/// Maximum number of datagrams that are received in a turn, so that other clients are served in between.
const DATAGRAMS_MAX: usize = 256;
/// Maximum number of datagrams that are encrypted at once.
const TRAIN_LEN_MAX: usize = 10;

/// A connection, with the events that the caller has not processed.
pub(crate) struct QuicTransport {
    socket: UdpSocket,
    server: SocketAddr,
    pub endpoint: QuicEndpoint,
    pub key: ConnectionKey,
    pub events: VecDeque<QuicEvent>,
    /// The zero of QUIC's time.
    begin_ns: u64,
    now_ns: u64,
    /// Encrypted datagrams, sent up to `sent_len`.
    train: Vec<u8>,
    sent_len: usize,
    segment_len: usize,
}

impl QuicTransport {
    /// Starts a connection; `send` sends its first datagram.
    ///
    /// # Errors
    /// An immediate error of the system.
    pub(crate) fn connect(
        address: SocketAddr,
        cipher: &QuicClientCipher,
        server_name: &str,
        now_ns: u64,
    ) -> Result<QuicTransport, Errno> {
        let socket = connected_socket(address)?;
        let seed = random_bytes().ok_or(Errno::IO)?;
        let config = endpoint_config(seed);
        let mut endpoint = QuicEndpoint::client(&config, Instant::now());
        // The connection begins at time 0 of its endpoint.
        endpoint.advance(0);
        let mut first_id = [0; 8];
        first_id.copy_from_slice(&random_bytes().ok_or(Errno::IO)?[..8]);
        let key = endpoint
            .connect(cipher, &config.settings, first_id, address, server_name, ())
            .map_err(|_| Errno::INVAL)?;
        Ok(QuicTransport {
            socket,
            server: address,
            endpoint,
            key,
            events: VecDeque::new(),
            begin_ns: now_ns,
            now_ns,
            train: Vec::new(),
            sent_len: 0,
            segment_len: 1,
        })
    }

    fn now_us(&self) -> u64 {
        self.now_ns.saturating_sub(self.begin_ns) / 1000
    }

    /// The time of the next timer.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        let due_us = self.endpoint.due_us()?;
        Some(self.begin_ns + due_us * 1000)
    }

    /// Receives datagrams, and handles timers that are due. Returns the number of bytes, and whether more may wait.
    ///
    /// # Errors
    /// The socket reports that no program receives datagrams at the server's port.
    pub(crate) fn receive(&mut self, scratch: &mut [u8], now_ns: u64) -> io::Result<(usize, bool)> {
        self.now_ns = now_ns;
        let (mut received_len, mut count) = (0, 0);
        // Bounded, so that other connections of the thread get their turn.
        while count < DATAGRAMS_MAX {
            let len = match self.socket.recv(scratch) {
                Ok(len) => len,
                Err(error) if error.kind() == Io::WouldBlock => break,
                Err(error) if error.kind() == Io::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let datagram = IncomingDatagram {
                from: self.server,
                local_ip: None,
                ecn: EcnBits::default(),
                bytes: BytesMut::from(&scratch[..len]),
            };
            let now_us = self.now_us();
            self.endpoint.take(datagram, now_us, |_| Admission::Refuse);
            received_len += len;
            count += 1;
        }
        self.endpoint.advance(self.now_us());
        self.take_events();
        Ok((received_len, count == DATAGRAMS_MAX))
    }

    fn take_events(&mut self) {
        while let Some(event) = self.endpoint.next_event(self.key) {
            self.events.push_back(event);
        }
    }

    /// Writes bytes to a stream, and ends it. Returns whether QUIC has taken all of them.
    pub(crate) fn write_stream(&mut self, stream: u64, parts: &mut Vec<Bytes>) -> bool {
        let written = self.endpoint.write(self.key, stream, parts);
        parts.retain(|part| !part.is_empty());
        // The server may have stopped the stream: then the rest is not needed.
        let is_done = written.is_err() || parts.is_empty();
        if is_done {
            _ = self.endpoint.finish(self.key, stream);
        }
        is_done
    }

    /// Whether datagrams wait for the socket to accept them.
    pub(crate) fn has_unsent(&self) -> bool {
        self.sent_len < self.train.len()
    }

    /// Sends all datagrams that the congestion window allows.
    ///
    /// # Errors
    /// The socket reports that no program receives datagrams at the server's port.
    pub(crate) fn send(&mut self, now_ns: u64) -> io::Result<()> {
        self.now_ns = now_ns;
        if !self.send_train()? {
            return Ok(());
        }
        while let Some(key) = self.endpoint.next_touched() {
            self.take_events();
            loop {
                let now_us = self.now_us();
                let emitted = self
                    .endpoint
                    .emit(key, now_us, TRAIN_LEN_MAX, &mut self.train);
                let Some(train) = emitted else {
                    break;
                };
                self.train.truncate(train.len);
                (self.sent_len, self.segment_len) = (0, train.segment_len.max(1));
                // The train stays; the rest of the connection's output follows it.
                if !self.send_train()? {
                    self.endpoint.postpone(key);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Sends the rest of the encrypted datagrams. Returns whether the socket has accepted all of them.
    fn send_train(&mut self) -> io::Result<bool> {
        while self.has_unsent() {
            let end = self.train.len().min(self.sent_len + self.segment_len);
            match self.socket.send(&self.train[self.sent_len..end]) {
                Ok(_) => self.sent_len = end,
                Err(error) if error.kind() == Io::WouldBlock => return Ok(false),
                Err(error) if error.kind() == Io::Interrupted => {}
                Err(error) if error.kind() == Io::ConnectionRefused => return Err(error),
                // Other errors concern a datagram, for example one that is too long for the path: it counts as lost.
                Err(_) => self.sent_len = end,
            }
        }
        self.train.clear();
        self.sent_len = 0;
        Ok(true)
    }
}

impl Drop for QuicTransport {
    /// Tells the server of the end; otherwise it would repeat its last datagrams until a timeout.
    fn drop(&mut self) {
        let now_us = self.now_us();
        self.endpoint.close(self.key, NO_ERROR, "", now_us);
        _ = self.send(self.now_ns);
    }
}

impl AsFd for QuicTransport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A socket that receives only the server's datagrams, and its ICMP errors.
fn connected_socket(address: SocketAddr) -> Result<UdpSocket, Errno> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
    // Only privileged processes may exceed the system's maximum.
    if sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_LEN).is_err() {
        sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_LEN)?;
    }
    rustix::net::connect(&socket, &address)?;
    Ok(UdpSocket::from(socket))
}

fn endpoint_config(seed: [u8; 32]) -> QuicEndpointConfig {
    QuicEndpointConfig {
        // A client has its cipher for each connection.
        cipher: QuicCipher::null(),
        keys: QuicKeys::new(&seed),
        place: ProcessWorker {
            generation: 0,
            worker: 0,
        },
        seed,
        settings: QuicSettings {
            stream_window: WINDOW_LEN,
            window_first: WINDOW_LEN,
            window_max: WINDOW_LEN,
            ..QuicSettings::default()
        },
        limits: QuicLimits::default(),
        // Only servers date tokens.
        clock: TlsClock::new(0),
        used_tokens: Arc::new(UsedTokens::default()),
    }
}
