//! The transport of a connection, through which all its bytes are received and sent. Without TLS, bytes are passed
//! unchanged to the socket, and files are sent with sendfile. With TLS, bytes are decrypted and encrypted here or by
//! the kernel.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;

use crate::buffer::SendBuffer;
use crate::driver::{
    AcceptedSocket, ConnectionToken, IoDriver, ReceiveOutcome, SendCompletion, SendOutcome,
};
use crate::file::OpenFile;
use crate::tls_session::{LayerFault, TlsInfo, TlsSession};

mod tls;

use tls::TlsTransport;

/// The transport of one connection.
pub(crate) struct ClientTransport<S> {
    /// `None` if the connection's bytes are those of a QUIC connection (`h3`).
    socket: Option<S>,
    /// The client's address.
    pub peer: IpAddr,
    /// The client's port; 0 if it is not known.
    pub peer_port: u16,
    /// The proxy that sent the peer's address in its PROXY header; boxed, since few connections have one.
    pub proxy: Option<Box<IpAddr>>,
    /// No PROXY header is expected, or it was read.
    pub is_proxy_header_done: bool,
    tls_transport: Option<Box<TlsTransport>>,
}

/// Received bytes, decrypted if there is a TLS session.
pub(crate) enum Plaintext<B> {
    /// Bytes without TLS, in the driver's buffer.
    Lent(B),
    /// Decrypted; may be empty.
    Plain(Vec<u8>),
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for Plaintext<B> {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match self {
            Plaintext::Lent(buffer) => buffer.as_ref(),
            Plaintext::Plain(plain) => plain,
        }
    }
}

/// The result of a send.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TransferOutcome {
    /// `len` bytes of the buffer were consumed, and `wire_len` bytes were sent on the wire.
    Bytes { len: usize, wire_len: usize },
    /// This many bytes were sent, and the socket is full; a writable event will follow.
    Filled(usize),
    /// The socket is full; a writable event will follow.
    Full,
    /// The driver has taken the buffer, see [`SendOutcome::Underway`].
    Underway,
    /// The connection is broken.
    Broken,
}

impl From<SendOutcome> for TransferOutcome {
    /// The result of a send without TLS.
    #[inline(always)]
    fn from(sent: SendOutcome) -> TransferOutcome {
        match sent {
            SendOutcome::Bytes(len) => TransferOutcome::Bytes { len, wire_len: len },
            SendOutcome::Filled(len) => TransferOutcome::Filled(len),
            SendOutcome::Full => TransferOutcome::Full,
            SendOutcome::Underway => TransferOutcome::Underway,
            SendOutcome::Broken => TransferOutcome::Broken,
        }
    }
}

impl<S> ClientTransport<S> {
    /// The transport of an accepted socket.
    pub fn new(accepted: AcceptedSocket<S>) -> ClientTransport<S> {
        ClientTransport {
            socket: Some(accepted.socket),
            peer: accepted.peer,
            peer_port: accepted.peer_port,
            proxy: None,
            is_proxy_header_done: true,
            tls_transport: None,
        }
    }

    /// The transport of a connection over QUIC, which has no socket.
    pub fn without_socket(peer: SocketAddr) -> ClientTransport<S> {
        ClientTransport {
            socket: None,
            peer: peer.ip(),
            peer_port: peer.port(),
            proxy: None,
            is_proxy_header_done: true,
            tls_transport: None,
        }
    }

    /// The parameters of the TLS session; `None` without TLS and during the handshake.
    pub fn tls(&self) -> Option<&Arc<TlsInfo>> {
        self.tls_transport.as_ref()?.info()
    }

    /// Whether the TLS handshake is in progress: nothing can be sent.
    pub fn is_handshaking(&self) -> bool {
        self.tls_transport
            .as_ref()
            .is_some_and(|tls_transport| tls_transport.info().is_none())
    }

    /// Why the TLS session failed.
    pub fn fault(&self) -> Option<LayerFault> {
        self.tls_transport.as_ref()?.fault()
    }

    /// Whether the handshake was completed since the last call.
    pub fn take_handshake_done(&mut self) -> bool {
        self.tls_transport
            .as_mut()
            .is_some_and(|tls_transport| tls_transport.take_handshake_done())
    }

    /// Sets the TLS session of a connection that has received nothing.
    pub fn set_tls(&mut self, session: Option<Box<dyn TlsSession>>) {
        self.tls_transport = session.map(|session| Box::new(TlsTransport::new(session)));
    }

    /// Continues without TLS, for a client that sent clear text.
    pub fn remove_tls(&mut self) {
        self.tls_transport = None;
    }

    /// The socket; `None` over QUIC.
    pub fn socket(&self) -> Option<&S> {
        self.socket.as_ref()
    }

    /// See [`IoDriver::register`].
    pub fn register(
        &self,
        driver: &mut impl IoDriver<Socket = S>,
        token: ConnectionToken,
    ) -> io::Result<()> {
        match &self.socket {
            Some(socket) => driver.register(socket, token),
            None => Ok(()),
        }
    }

    /// Receives bytes from the client; decrypted bytes are put into `plain`. Always inlined, since the result would
    /// otherwise be copied on return.
    #[inline(always)]
    pub fn receive<D>(
        &mut self,
        driver: &mut D,
        token: ConnectionToken,
        plain: &mut Vec<u8>,
    ) -> ReceiveOutcome<Plaintext<D::RecvBuffer>>
    where
        D: IoDriver<Socket = S>,
    {
        let Some(socket) = &self.socket else {
            return ReceiveOutcome::Empty;
        };
        if let Some(tls_transport) = &mut self.tls_transport
            && self.is_proxy_header_done
        {
            // The session is used only after the PROXY header, which is never encrypted.
            return tls_transport.receive(driver, socket, token, plain);
        }
        match driver.receive(socket, token) {
            ReceiveOutcome::Bytes { buffer, more } => ReceiveOutcome::Bytes {
                buffer: Plaintext::Lent(buffer),
                more,
            },
            ReceiveOutcome::Empty => ReceiveOutcome::Empty,
            ReceiveOutcome::End => ReceiveOutcome::End,
            ReceiveOutcome::Broken => ReceiveOutcome::Broken,
        }
    }

    /// Decrypts bytes that arrived with the PROXY header. Returns whether there is a TLS session.
    pub fn open(
        &mut self,
        driver: &mut impl IoDriver<Socket = S>,
        token: ConnectionToken,
        bytes: &[u8],
        plain: &mut Vec<u8>,
    ) -> bool {
        let (Some(tls_transport), Some(socket)) = (&mut self.tls_transport, &self.socket) else {
            return false;
        };
        tls_transport.open(driver, socket, token, bytes, plain);
        true
    }

    /// Sends the start of `buffer`, see [`IoDriver::send`]. No encrypted bytes may be unsent.
    #[inline(always)]
    pub fn send(
        &mut self,
        driver: &mut impl IoDriver<Socket = S>,
        token: ConnectionToken,
        buffer: &mut SendBuffer,
        more: bool,
    ) -> TransferOutcome {
        let Some(socket) = &self.socket else {
            return TransferOutcome::Broken;
        };
        if let Some(tls_transport) = &mut self.tls_transport {
            return tls_transport.send(driver, socket, token, buffer, more);
        }
        driver.send(socket, token, buffer, more).into()
    }

    /// Whether encrypted bytes are unsent; [`ClientTransport::push`] has to send them before more can be sent.
    #[inline]
    pub fn has_encrypted(&self) -> bool {
        self.tls_transport
            .as_ref()
            .is_some_and(|tls_transport| tls_transport.has_encrypted())
    }

    /// Sends unsent encrypted bytes, of which there must be some. `len` of the result is 0.
    pub fn push(
        &mut self,
        driver: &mut impl IoDriver<Socket = S>,
        token: ConnectionToken,
    ) -> TransferOutcome {
        match (&mut self.tls_transport, &self.socket) {
            (Some(tls_transport), Some(socket)) => tls_transport.push(driver, socket, token),
            _ => TransferOutcome::Bytes {
                len: 0,
                wire_len: 0,
            },
        }
    }

    /// Handles the result of a send that the driver completed later. Returns the buffer if it was the connection's;
    /// with TLS in user space, only the number of bytes sent.
    pub fn complete_send(&mut self, completion: SendCompletion) -> SendEnd {
        let Some(len) = completion.sent_len else {
            return SendEnd::Broken;
        };
        match &mut self.tls_transport {
            Some(tls_transport) if !tls_transport.is_offloaded() => {
                tls_transport.complete_send(completion.buffer, len);
                return SendEnd::Encrypted { wire_len: len };
            }
            // The kernel encrypts: the buffer was sent unchanged.
            Some(tls_transport) => tls_transport.record_sent(len as u64),
            None => {}
        }
        SendEnd::Buffer {
            buffer: completion.buffer,
            len,
        }
    }

    /// Whether files can be sent with sendfile.
    pub fn sends_files(&self) -> bool {
        self.tls_transport
            .as_ref()
            .is_none_or(|tls_transport| tls_transport.is_offloaded())
    }

    /// Whether the kernel encrypts: then the socket's queue contains encrypted copies, and no pages of a file.
    pub fn is_offloaded(&self) -> bool {
        self.tls_transport
            .as_ref()
            .is_some_and(|tls_transport| tls_transport.is_offloaded())
    }

    /// Switches to kernel TLS, if the session decides so for a file of this length and the kernel supports it. No
    /// encrypted bytes may be unsent. Returns whether this call made the switch.
    pub fn offload(&mut self, driver: &mut impl IoDriver<Socket = S>, len: u64) -> bool {
        match (&mut self.tls_transport, &self.socket) {
            (Some(tls_transport), Some(socket)) => tls_transport.offload(driver, socket, len),
            _ => false,
        }
    }

    /// Counts bytes of a file that a helper has sent.
    pub fn file_sent(&mut self, len: u64) {
        if let Some(tls_transport) = &mut self.tls_transport {
            tls_transport.record_sent(len);
        }
    }

    /// Whether the kernel's key should no longer be used: the connection ends after the response in progress.
    pub fn is_key_worn(&self) -> bool {
        self.tls_transport
            .as_ref()
            .is_some_and(|tls_transport| tls_transport.is_key_worn())
    }

    /// Starts [`IoDriver::start_file`] or, if sendfile can't be used, [`IoDriver::start_read`].
    pub fn start_file(
        &mut self,
        driver: &mut impl IoDriver<Socket = S>,
        token: ConnectionToken,
        file: &Arc<OpenFile>,
        range: Range<u64>,
    ) -> io::Result<()> {
        // If the session encrypts in user space, the bytes have to be read.
        if !self.sends_files() {
            return driver.start_read(token, file, range);
        }
        let Some(socket) = &self.socket else {
            return driver.start_read(token, file, range);
        };
        let Some(tls_transport) = &mut self.tls_transport else {
            return driver.start_file(socket, token, file, range);
        };
        // Kernel TLS: sendfile encrypts, and the session counts the use of the key.
        tls_transport.start_file(driver, socket, token, file, range)
    }

    /// Bytes on the wire that the client has not acknowledged.
    pub fn unacknowledged(&self, driver: &impl IoDriver<Socket = S>) -> usize {
        let socket = self.socket.as_ref();
        socket.map_or(0, |socket| driver.unacknowledged(socket))
    }

    /// Encrypts close_notify; [`ClientTransport::push`] has to send it.
    pub fn encrypt_close_notify(&mut self) {
        if let Some(tls_transport) = &mut self.tls_transport {
            tls_transport.encrypt_close_notify();
        }
    }

    /// Half-closes the connection; the client may still send.
    pub fn finish(&mut self, driver: &mut impl IoDriver<Socket = S>) {
        if let Some(socket) = &self.socket {
            driver.finish(socket);
        }
    }

    /// Closes the connection, see [`IoDriver::close`].
    pub fn close(self, driver: &mut impl IoDriver<Socket = S>) {
        if let Some(socket) = self.socket {
            driver.close(socket);
        }
    }

    /// Closes the connection by a reset, see [`IoDriver::reset`].
    pub fn reset(self, driver: &mut impl IoDriver<Socket = S>) {
        if let Some(socket) = self.socket {
            driver.reset(socket);
        }
    }
}

/// The result of a send that the driver completed later.
pub(crate) enum SendEnd {
    /// The connection's buffer, of which `len` bytes were sent.
    Buffer { buffer: SendBuffer, len: usize },
    /// Encrypted bytes, of which `wire_len` were sent.
    Encrypted { wire_len: usize },
    /// The connection is broken.
    Broken,
}
