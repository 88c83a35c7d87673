//! What lies between a connection and its socket. Plain: bytes go as they are, and the kernel may send a file by itself.
//! With a layer: they are opened and sealed on the way. All that a connection sends or receives goes through here. Knows
//! no protocol.

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

/// One connection's way to its client.
pub(crate) struct ClientTransport<S> {
    socket: S,
    /// Who is at the other end.
    pub peer: IpAddr,
    /// Its port; 0 where it is not known.
    pub peer_port: u16,
    /// The proxy whose PROXY header named the peer; boxed, since few connections have one.
    pub proxy: Option<Box<IpAddr>>,
    /// Nothing of the connection is about who is at its other end, or nothing more.
    pub is_introduced: bool,
    layer: Option<Box<TlsTransport>>,
}

/// What a receive brought, opened where there is a layer.
pub(crate) enum Plaintext<B> {
    /// As it came, in the driver's buffer.
    Lent(B),
    /// Opened; may be empty.
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

/// What a send did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TransferOutcome {
    /// So many bytes of the buffer are off our hands, of which so many have left as they are on the wire.
    Bytes { len: usize, wire_len: usize },
    /// So many bytes have left, and there is no room for more now; a writable event will follow.
    Filled(usize),
    /// No room now; a writable event will follow.
    Full,
    /// The driver has the buffer, see [`SendOutcome::Underway`].
    Underway,
    /// The connection is broken.
    Broken,
}

impl From<SendOutcome> for TransferOutcome {
    /// What is sent as it is.
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
    /// Over a socket that was accepted.
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

    /// What was agreed on with the client; `None` without a layer, and until it is ready.
    pub fn tls(&self) -> Option<&Arc<TlsInfo>> {
        self.layer.as_ref()?.secured()
    }

    /// Whether both sides have yet to agree: nothing can be sent.
    pub fn is_handshaking(&self) -> bool {
        self.layer.as_ref().is_some_and(|it| it.secured().is_none())
    }

    /// Why the layer could not go on.
    pub fn fault(&self) -> Option<LayerFault> {
        self.layer.as_ref()?.fault()
    }

    /// Whether both sides have agreed since this was asked last.
    pub fn take_new(&mut self) -> bool {
        self.layer.as_mut().is_some_and(|layer| layer.take_new())
    }

    /// Goes on without a layer: the client has none.
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

    /// Receives what the client has said; `plain` is memory for it where there is a layer. Always inlined, since what is
    /// received would be copied on its way out of here.
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

    /// Opens bytes that came before the connection was introduced. Whether there is a layer.
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

    /// Sends a start of `buffer`, see [`IoDriver::send`]. Nothing of the layer may wait to be sent.
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

    /// Whether something that was taken from us has not left: it is to be pushed before more can be sent.
    #[inline]
    pub fn has_sealed(&self) -> bool {
        self.layer.as_ref().is_some_and(|layer| layer.has_sealed())
    }

    /// Sends a start of what was taken before, of which there is some. `len` of what moved is 0.
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

    /// A send that was under way is over. Gives what is the connection's of it: where there is a layer, nothing but how many
    /// bytes have left.
    pub fn sent(&mut self, completion: SendCompletion) -> SendEnd {
        let Some(len) = completion.taken else {
            return SendEnd::Broken;
        };
        match &mut self.layer {
            Some(layer) if !layer.is_offloaded() => {
                layer.sent(completion.buffer, len);
                return SendEnd::Sealed { wire_len: len };
            }
            Some(layer) => layer.moved(len as u64),
            None => {}
        }
        SendEnd::Buffer {
            buffer: completion.buffer,
            len,
        }
    }

    /// Whether the kernel may send a file by itself.
    pub fn sends_files(&self) -> bool {
        self.layer.as_ref().is_none_or(|it| it.is_offloaded())
    }

    /// Whether the kernel seals what is sent: of a file it keeps nothing that could still change.
    pub fn is_offloaded(&self) -> bool {
        self.layer.as_ref().is_some_and(|it| it.is_offloaded())
    }

    /// Has the kernel seal from now on, if the layer wants that for a file of so many bytes, and the kernel does it. Nothing
    /// of the layer may wait to be sent. Whether it has just begun.
    pub fn offload(&mut self, driver: &mut impl IoDriver<Socket = S>, len: u64) -> bool {
        let layer = self.layer.as_mut();
        layer.is_some_and(|layer| layer.offload(driver, &self.socket, len))
    }

    /// A helper is done with a file for now, of which it has sent so many bytes.
    pub fn file_sent(&mut self, len: u64) {
        if let Some(layer) = &mut self.layer {
            layer.moved(len);
        }
    }

    /// Whether the kernel should not seal much more: the connection ends with the response under way.
    pub fn is_worn(&self) -> bool {
        self.layer.as_ref().is_some_and(|it| it.is_worn())
    }

    /// See [`IoDriver::start_file`]; where the kernel may not send it, [`IoDriver::start_read`].
    pub fn start_file(
        &mut self,
        driver: &mut impl IoDriver<Socket = S>,
        token: ConnectionToken,
        file: &Arc<OpenFile>,
        range: Range<u64>,
    ) -> io::Result<()> {
        if !self.sends_files() {
            return driver.start_read(token, file, range);
        }
        let Some(layer) = &mut self.layer else {
            return driver.start_file(&self.socket, token, file, range);
        };
        layer.start_file(driver, &self.socket, token, file, range)
    }

    /// Bytes of the wire that the client has not acknowledged.
    pub fn unacknowledged(&self, driver: &impl IoDriver<Socket = S>) -> usize {
        driver.unacknowledged(&self.socket)
    }

    /// Seals the end of what is said: it is to be pushed then.
    pub fn say_end(&mut self) {
        if let Some(layer) = &mut self.layer {
            layer.say_end();
        }
    }

    /// Sends the end of our bytes; the client's may still come.
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

/// What became of a send that was under way.
pub(crate) enum SendEnd {
    /// The connection's buffer, of which so many bytes have left.
    Buffer { buffer: SendBuffer, len: usize },
    /// What was sealed before; so many bytes of the wire have left.
    Sealed { wire_len: usize },
    /// The connection is broken.
    Broken,
}
