//! A socket under TLS: bytes in and out through `rustls`, which keeps what could not be sent yet. It knows
//! nothing of whom to trust.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use lowroad_engine::outgoing::Outgoing;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, HandshakeKind};
use tokio::io::AsyncWrite as _;

use super::refused::Refused;

/// An encrypted connection. Dropped, it is closed.
pub struct Encrypted {
    connection: ClientConnection,
    socket: Outgoing,
    name: ServerName<'static>,
    finished: bool,
}

impl Encrypted {
    pub(super) fn new(
        connection: ClientConnection,
        socket: Outgoing,
        name: ServerName<'static>,
    ) -> Encrypted {
        Encrypted {
            connection,
            socket,
            name,
            finished: false,
        }
    }

    /// What the origin chose of the protocols that were offered.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.connection.alpn_protocol()
    }

    /// Whether it goes on with a session that there was before.
    pub fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Its socket.
    pub fn socket(&mut self) -> &mut Outgoing {
        &mut self.socket
    }

    pub(super) fn poll_handshake(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_flush(context))?;
            if !self.connection.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if ready!(self.poll_read_more(context))? == 0 {
                let message = format!("{} closed during the TLS handshake", self.name.to_str());
                return Poll::Ready(Err(io::Error::new(ErrorKind::UnexpectedEof, message)));
            }
        }
    }

    /// See [`crate::Stream::poll_recv`].
    ///
    /// # Errors
    /// As there.
    pub fn poll_recv(
        &mut self,
        context: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        // The origin may wait for it before it says anything. If it fails, what has come is still read.
        let _ = self.poll_flush(context);
        loop {
            match self.connection.reader().read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read),
            }
            // The end is what the reader says next.
            ready!(self.poll_read_more(context))?;
        }
    }

    /// See [`crate::Stream::poll_send`].
    ///
    /// # Errors
    /// As there.
    pub fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // Nothing is taken while the socket has not what was taken before.
        ready!(self.poll_flush(context))?;
        let len = self.connection.writer().write_vectored(pieces)?;
        match self.poll_flush(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(len)),
        }
    }

    /// See [`crate::Stream::poll_flush`].
    ///
    /// # Errors
    /// As there.
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.connection.wants_write() {
            let mut socket = Polled(&mut self.socket, context);
            match self.connection.write_tls(&mut socket) {
                Ok(0) => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// See [`crate::Stream::poll_finish`].
    ///
    /// # Errors
    /// As there.
    pub fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !std::mem::replace(&mut self.finished, true) {
            self.connection.send_close_notify();
        }
        ready!(self.poll_flush(context))?;
        Pin::new(&mut self.socket).poll_shutdown(context)
    }

    /// Reads what the socket has, and understands it. 0 at its end.
    fn poll_read_more(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut socket = Polled(&mut self.socket, context);
        let len = match self.connection.read_tls(&mut socket) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Poll::Pending,
            read => read?,
        };
        if let Err(error) = self.connection.process_new_packets() {
            // The origin is told why, if that is possible at once.
            let _ = self.poll_flush(context);
            return Poll::Ready(Err(Refused::of(error, &self.name)));
        }
        Poll::Ready(Ok(len))
    }
}

/// A socket as `rustls` wants it: what must wait would block, and is heard of by the task.
struct Polled<'a, 'b, 'c>(&'a mut Outgoing, &'b mut Context<'c>);

fn or_would_block<T>(polled: Poll<io::Result<T>>) -> io::Result<T> {
    match polled {
        Poll::Ready(done) => done,
        Poll::Pending => Err(ErrorKind::WouldBlock.into()),
    }
}

impl Read for Polled<'_, '_, '_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        or_would_block(self.0.poll_recv(self.1, into))
    }
}

impl Write for Polled<'_, '_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        or_would_block(self.0.poll_send(self.1, pieces))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
