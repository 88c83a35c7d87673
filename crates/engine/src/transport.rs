//! The transport between a connection and its socket. Plain: bytes are sent unchanged, and the kernel may send files
//! by itself. With TLS: bytes are decrypted and encrypted. All bytes that a connection sends or receives pass through
//! here. Knows no application protocol.

use std::io;
use std::net::IpAddr;
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
    socket: S,
    /// The client's address.
    pub peer: IpAddr,
    /// The client's port; 0 if it is not known.
    pub peer_port: u16,
    /// The proxy that named the peer in a PROXY header; boxed, since few connections have one.
    pub proxy: Option<Box<IpAddr>>,
    /// No PROXY header is expected, or it was read.
    pub is_introduced: bool,
    layer: Option<Box<TlsTransport>>,
}

/// Received bytes, decrypted if there is a TLS session.
pub(crate) enum Plaintext<B> {
    /// Unchanged, in the driver's buffer.
    Lent(B),
    /// Decrypted; may be empty.
    Plain(Vec<u8>),
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for Plaintext<B> {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match self {
            Plaintext::Lent(lent) => lent.as_ref(),
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
    /// The driver has the buffer, see [`SendOutcome::Underway`].
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
    pub fn new(
        accepted: AcceptedSocket<S>,
        layer: Option<Box<dyn TlsSession>>,
    ) -> ClientTransport<S> {
        ClientTransport {
            socket: accepted.socket,
            peer: accepted.peer,
            peer_port: accepted.peer_port,
            proxy: None,
            is_introduced: true,
            layer: layer.map(|layer| Box::new(TlsTransport::new(layer))),
        }
    }

    /// The parameters of the TLS session; `None` without TLS and during the handshake.
    pub fn tls(&self) -> Option<&Arc<TlsInfo>> {
        self.layer.as_ref()?.secured()
    }

    /// Whether the TLS handshake is in progress: nothing can be sent.
    pub fn is_handshaking(&self) -> bool {
        self.layer.as_ref().is_some_and(|it| it.secured().is_none())
    }

    /// Why the TLS session failed.
    pub fn fault(&self) -> Option<LayerFault> {
        self.layer.as_ref()?.fault()
    }

    /// Whether the handshake was completed since the last call.
    pub fn take_new(&mut self) -> bool {
        self.layer.as_mut().is_some_and(|layer| layer.take_new())
    }

    /// Continues without TLS, with a client that uses clear text.
    pub fn strip(&mut self) {
        self.layer = None;
    }

    /// See [`IoDriver::register`].
    pub fn register(
        &self,
        driver: &mut impl IoDriver<Socket = S>,
        token: ConnectionToken,
    ) -> io::Result<()> {
        driver.register(&self.socket, token)
    }

    /// Receives bytes from the client; `plain` is the buffer for decrypted ones. Always inlined, since the result
    /// would otherwise be copied on return.
    #[inline(always)]
    pub fn receive<D>(
        &mut self,
        driver: &mut D,
        token: ConnectionToken,
        plain: &mut Vec<u8>,
    ) -> ReceiveOutcome<Plaintext<D::Lent>>
    where
        D: IoDriver<Socket = S>,
    {
        if let Some(layer) = &mut self.layer
            && self.is_introduced
        {
            // Only after a PROXY header, which is never encrypted.
            return layer.receive(driver, &self.socket, token, plain);
        }
        match driver.receive(&self.socket, token) {
            ReceiveOutcome::Bytes { lent, more } => ReceiveOutcome::Bytes {
                lent: Plaintext::Lent(lent),
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
        let Some(layer) = &mut self.layer else {
            return false;
        };
        layer.open(driver, &self.socket, token, bytes, plain);
        true
    }

    /// Sends the start of `buffer`, see [`IoDriver::send`]. No encrypted bytes may be waiting.
    #[inline(always)]
    pub fn send(
        &mut self,
        driver: &mut impl IoDriver<Socket = S>,
        token: ConnectionToken,
        buffer: &mut SendBuffer,
        more: bool,
    ) -> TransferOutcome {
        if let Some(layer) = &mut self.layer {
            return layer.send(driver, &self.socket, token, buffer, more);
        }
        driver.send(&self.socket, token, buffer, more).into()
    }

    /// Whether encrypted bytes are unsent: they have to be pushed before more can be sent.
    #[inline]
    pub fn has_sealed(&self) -> bool {
        self.layer.as_ref().is_some_and(|layer| layer.has_sealed())
    }

    /// Sends the start of the unsent encrypted bytes, of which there are some. `len` of the result is 0.
    pub fn push(
        &mut self,
        driver: &mut impl IoDriver<Socket = S>,
        token: ConnectionToken,
    ) -> TransferOutcome {
        match &mut self.layer {
            Some(layer) => layer.push(driver, &self.socket, token),
            None => TransferOutcome::Bytes {
                len: 0,
                wire_len: 0,
            },
        }
    }

    /// Handles the end of a send that the driver completed later. Returns the connection's part of it: with TLS only
    /// the number of bytes sent.
    pub fn sent(&mut self, completion: SendCompletion) -> SendEnd {
        let Some(len) = completion.taken else {
            return SendEnd::Broken;
        };
        match &mut self.layer {
            Some(layer) if !layer.is_offloaded() => {
                layer.sent(completion.buffer, len);
                return SendEnd::Sealed { wire_len: len };
            }
            // The kernel encrypts: the buffer was sent unchanged.
            Some(layer) => layer.moved(len as u64),
            None => {}
        }
        SendEnd::Buffer {
            buffer: completion.buffer,
            len,
        }
    }

    /// Whether the kernel can send files by itself.
    pub fn sends_files(&self) -> bool {
        self.layer.as_ref().is_none_or(|it| it.is_offloaded())
    }

    /// Whether the kernel encrypts: then it keeps no pages of a file that could still change.
    pub fn is_offloaded(&self) -> bool {
        self.layer.as_ref().is_some_and(|it| it.is_offloaded())
    }

    /// Changes to kernel TLS, if the session wants that for a file of this length and the kernel supports it. No
    /// encrypted bytes may be waiting. Returns whether it has just changed.
    pub fn offload(&mut self, driver: &mut impl IoDriver<Socket = S>, len: u64) -> bool {
        let layer = self.layer.as_mut();
        layer.is_some_and(|layer| layer.offload(driver, &self.socket, len))
    }

    /// Counts bytes of a file that a helper has sent.
    pub fn file_sent(&mut self, len: u64) {
        if let Some(layer) = &mut self.layer {
            layer.moved(len);
        }
    }

    /// Whether the kernel's key is nearly used up: the connection ends with the response in progress.
    pub fn is_worn(&self) -> bool {
        self.layer.as_ref().is_some_and(|it| it.is_worn())
    }

    /// See [`IoDriver::start_file`]; if the kernel can't send it, [`IoDriver::start_read`].
    pub fn start_file(
        &mut self,
        driver: &mut impl IoDriver<Socket = S>,
        token: ConnectionToken,
        file: &Arc<OpenFile>,
        range: Range<u64>,
    ) -> io::Result<()> {
        // The session encrypts in user space, so the bytes have to be read.
        if !self.sends_files() {
            return driver.start_read(token, file, range);
        }
        let Some(layer) = &mut self.layer else {
            return driver.start_file(&self.socket, token, file, range);
        };
        // Kernel TLS: sendfile encrypts, and the session counts the use of the key.
        layer.start_file(driver, &self.socket, token, file, range)
    }

    /// Bytes on the wire that the client has not acknowledged.
    pub fn unacknowledged(&self, driver: &impl IoDriver<Socket = S>) -> usize {
        driver.unacknowledged(&self.socket)
    }

    /// Encrypts close_notify, which has to be pushed then.
    pub fn say_end(&mut self) {
        if let Some(layer) = &mut self.layer {
            layer.say_end();
        }
    }

    /// Half-closes the connection; the client may still send.
    pub fn finish(&mut self, driver: &mut impl IoDriver<Socket = S>) {
        driver.finish(&self.socket);
    }

    /// Closes the connection, see [`IoDriver::close`].
    pub fn close(self, driver: &mut impl IoDriver<Socket = S>) {
        driver.close(self.socket);
    }

    /// Closes the connection by a reset, see [`IoDriver::reset`].
    pub fn reset(self, driver: &mut impl IoDriver<Socket = S>) {
        driver.reset(self.socket);
    }
}

/// The end of a send that the driver completed later.
pub(crate) enum SendEnd {
    /// The connection's buffer, of which this many bytes were sent.
    Buffer { buffer: SendBuffer, len: usize },
    /// Encrypted bytes from before, of which this many were sent.
    Sealed { wire_len: usize },
    /// The connection is broken.
    Broken,
}
