//! The transport of a connection: a non-blocking socket, plain or with TLS, or QUIC.

use std::io::{self, ErrorKind as Io, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use lowroad_quic::QuicClientCipher;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use super::three::H3LoadClient;
use crate::workload::WorkloadVersion;

/// The parameters of new TLS connections.
#[derive(Clone)]
pub(crate) struct TlsStart {
    pub http1: Arc<ClientConfig>,
    pub http2: Arc<ClientConfig>,
    pub http3: QuicClientCipher,
    pub name: ServerName<'static>,
}

/// The transport of a connection.
pub(crate) enum LoadTransport {
    Stream(StreamTransport),
    /// HTTP/3 brings its own transport.
    Http3(Box<H3LoadClient>),
}

/// A TCP connection.
pub(crate) struct StreamTransport {
    stream: TcpStream,
    tls: Option<Box<ClientConnection>>,
}

/// The result of an attempt to receive.
pub(crate) enum ReceiveResult {
    Bytes(usize),
    Empty,
    End,
    Failed(io::Error),
}

impl LoadTransport {
    /// The HTTP/3 connection, if it is one.
    pub(crate) fn http3(&mut self) -> Option<&mut H3LoadClient> {
        match self {
            LoadTransport::Stream(_) => None,
            LoadTransport::Http3(h3) => Some(h3),
        }
    }

    /// The TCP connection, if it is one.
    pub(crate) fn stream(&mut self) -> Option<&mut StreamTransport> {
        match self {
            LoadTransport::Stream(stream) => Some(stream),
            LoadTransport::Http3(_) => None,
        }
    }

    /// Whether the server's limits allow one more request.
    pub(crate) fn can_open_stream(&self) -> bool {
        match self {
            LoadTransport::Stream(_) => true,
            LoadTransport::Http3(h3) => h3.can_open_stream(),
        }
    }

    /// Whether the connection is HTTP/3.
    pub(crate) fn is_http3(&self) -> bool {
        matches!(self, LoadTransport::Http3(_))
    }

    /// Sends as much as the socket accepts; returns the number of bytes.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            LoadTransport::Stream(stream) => stream.send(bytes),
            // Requests are written to streams.
            LoadTransport::Http3(_) => Ok(bytes.len()),
        }
    }

    /// Whether output waits for the socket.
    pub(crate) fn has_unsent(&self) -> bool {
        match self {
            LoadTransport::Stream(stream) => stream.has_unsent(),
            LoadTransport::Http3(h3) => h3.quic.has_unsent(),
        }
    }

    /// Sends the output that the transport has buffered.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn flush(&mut self, now_ns: u64) -> io::Result<()> {
        match self {
            LoadTransport::Stream(stream) => stream.flush(),
            LoadTransport::Http3(h3) => h3.quic.send(now_ns),
        }
    }
}

impl AsFd for LoadTransport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            LoadTransport::Stream(stream) => stream.stream.as_fd(),
            LoadTransport::Http3(h3) => h3.quic.as_fd(),
        }
    }
}

impl StreamTransport {
    /// Starts a connection; it is established once the socket becomes writable.
    ///
    /// # Errors
    /// An immediate error of the system.
    pub(crate) fn connect(
        address: SocketAddr,
        tls: Option<&TlsStart>,
        version: WorkloadVersion,
        receive_buffer_len: Option<usize>,
    ) -> Result<StreamTransport, Errno> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        // Nagle's algorithm would delay pipelined requests until the previous ones are acknowledged.
        sockopt::set_tcp_nodelay(&socket, true)?;
        // Before connect(2), as the SYN announces the window scale, which depends on this size (tcp(7)).
        if let Some(len) = receive_buffer_len {
            sockopt::set_socket_recv_buffer_size(&socket, len)?;
        }
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error),
        }
        let tls = tls.map(|start| {
            let config = match version {
                // ALPN offers only the selected version, so that a server can't choose another.
                WorkloadVersion::Http2 => &start.http2,
                _ => &start.http1,
            };
            let connection = ClientConnection::new(config.clone(), start.name.clone());
            Box::new(connection.expect("a name and a configuration that were checked"))
        });
        Ok(StreamTransport {
            stream: TcpStream::from(socket),
            tls,
        })
    }

    /// The error of the connection attempt, if it failed.
    pub(crate) fn connect_error(&self) -> Option<io::Error> {
        self.stream.take_error().unwrap_or_else(Some)
    }

    /// Whether requests can be sent: the TLS handshake, if any, is complete.
    pub(crate) fn is_ready(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| !tls.is_handshaking())
    }

    /// Whether HTTP/2 may be used: the server selected it by ALPN, or there is no ALPN (prior knowledge).
    pub(crate) fn is_http2(&self) -> bool {
        let alpn = self.tls.as_ref().map(|tls| tls.alpn_protocol());
        alpn.is_none_or(|protocol| protocol == Some(b"h2"))
    }

    /// Advances the handshake as far as possible without blocking.
    ///
    /// # Errors
    /// The handshake failed.
    pub(crate) fn handshake(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            return Ok(());
        };
        while tls.is_handshaking() {
            match tls.complete_io(&mut self.stream) {
                Ok(_) => {}
                Err(error) if error.kind() == Io::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> ReceiveResult {
        let Some(tls) = &mut self.tls else {
            return received(self.stream.read(buffer));
        };
        loop {
            match tls.reader().read(buffer) {
                Err(error) if error.kind() == Io::WouldBlock => {}
                // A close without close_notify is harmless: the framing of HTTP detects truncated responses.
                Err(error) if error.kind() == Io::UnexpectedEof => return ReceiveResult::End,
                result => return received(result),
            }
            match tls.read_tls(&mut self.stream) {
                Ok(0) => return ReceiveResult::End,
                Ok(_) => {}
                result => return received(result),
            }
            if let Err(error) = tls.process_new_packets() {
                return ReceiveResult::Failed(io::Error::new(Io::InvalidData, error));
            }
        }
    }

    /// Sends as much as the socket accepts; returns the number of bytes.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = match &mut self.tls {
            None => self.stream.write(bytes),
            Some(tls) => send_tls(tls, &mut self.stream, bytes),
        };
        match sent {
            Err(error) if matches!(error.kind(), Io::WouldBlock | Io::Interrupted) => Ok(0),
            sent => sent,
        }
    }

    /// Whether TLS holds records that the socket has not accepted yet.
    pub(crate) fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Sends the records that TLS has buffered.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match &mut self.tls {
            None => Ok(()),
            Some(tls) => flush_tls(tls, &mut self.stream),
        }
    }
}

fn received(result: io::Result<usize>) -> ReceiveResult {
    match result {
        Ok(0) => ReceiveResult::End,
        Ok(len) => ReceiveResult::Bytes(len),
        Err(error) if matches!(error.kind(), Io::WouldBlock | Io::Interrupted) => {
            ReceiveResult::Empty
        }
        Err(error) => ReceiveResult::Failed(error),
    }
}

fn send_tls(tls: &mut ClientConnection, stream: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    // Buffered records are sent first. rustls accepts nothing while its buffer is full, so a return value of 0 always
    // means that the socket is full.
    flush_tls(tls, stream)?;
    if tls.wants_write() {
        return Ok(0);
    }
    let len = tls.writer().write(bytes)?;
    flush_tls(tls, stream)?;
    Ok(len)
}

fn flush_tls(tls: &mut ClientConnection, stream: &mut TcpStream) -> io::Result<()> {
    while tls.wants_write() {
        match tls.write_tls(stream) {
            Ok(_) => {}
            Err(error) if error.kind() == Io::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
