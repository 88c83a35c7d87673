//! A byte stream to an origin, with or without TLS, which makes no difference to the protocol above.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use lowroad_engine::buffer::SendBuffer;
use lowroad_engine::upstream_socket::UpstreamSocket;
use tokio::io::AsyncWrite as _;

/// The byte stream of a connection. The same task must read and write: with TLS, reading may require writing, and vice
/// versa.
pub enum UpstreamStream {
    /// Plain text.
    Plain(UpstreamSocket),
    /// With TLS.
    #[cfg(feature = "tls")]
    Tls(Box<crate::tls::EncryptedStream>),
}

/// Makes a stream of a socket, with or without TLS.
#[derive(Clone, Default)]
pub enum UpstreamTransport {
    /// Plain text.
    #[default]
    Plain,
    /// With TLS.
    #[cfg(feature = "tls")]
    Tls(crate::tls::TlsConnector),
}

impl UpstreamTransport {
    /// Makes a stream of a newly connected socket; performs the TLS handshake if configured.
    ///
    /// # Errors
    /// The handshake failed.
    pub async fn begin(&self, socket: UpstreamSocket) -> io::Result<UpstreamStream> {
        match self {
            UpstreamTransport::Plain => Ok(UpstreamStream::Plain(socket)),
            #[cfg(feature = "tls")]
            UpstreamTransport::Tls(tls) => {
                Ok(UpstreamStream::Tls(Box::new(tls.connect(socket).await?)))
            }
        }
    }
}

impl UpstreamStream {
    /// Reads some bytes into a buffer, which must not be empty; 0 at the end of the stream. Also flushes earlier
    /// output.
    ///
    /// # Errors
    /// The system's error; `UnexpectedEof` if TLS ended without close_notify (truncation), so that the data may be
    /// incomplete.
    pub fn poll_recv(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            UpstreamStream::Plain(socket) => socket.poll_recv(context, buffer),
            #[cfg(feature = "tls")]
            UpstreamStream::Tls(encrypted) => encrypted.poll_recv(context, buffer),
        }
    }

    /// Accepts some of these bytes. They may be buffered until [`UpstreamStream::poll_flush`] is ready.
    ///
    /// # Errors
    /// The system's error.
    pub fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            UpstreamStream::Plain(socket) => socket.poll_send(context, pieces),
            #[cfg(feature = "tls")]
            UpstreamStream::Tls(encrypted) => encrypted.poll_send(context, pieces),
        }
    }

    /// Sends a prefix of `buffer`, which must not be empty, and must not change until it is sent; see
    /// `UpstreamSocket::poll_send_buffer`.
    ///
    /// # Errors
    /// The system's error.
    pub fn poll_send_buffer(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut SendBuffer,
    ) -> Poll<io::Result<usize>> {
        match self {
            UpstreamStream::Plain(socket) => socket.poll_send_buffer(context, buffer),
            #[cfg(feature = "tls")]
            UpstreamStream::Tls(encrypted) => {
                let pieces = buffer.pieces().map(IoSlice::new);
                encrypted.poll_send(context, &pieces)
            }
        }
    }

    /// Ready when all accepted bytes are written to the socket.
    ///
    /// # Errors
    /// The system's error.
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            UpstreamStream::Plain(socket) => Pin::new(socket).poll_flush(context),
            #[cfg(feature = "tls")]
            UpstreamStream::Tls(encrypted) => encrypted.poll_flush(context),
        }
    }

    /// Closes the sending direction.
    ///
    /// # Errors
    /// The system's error.
    pub fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            UpstreamStream::Plain(socket) => Pin::new(socket).poll_shutdown(context),
            #[cfg(feature = "tls")]
            UpstreamStream::Tls(encrypted) => encrypted.poll_finish(context),
        }
    }

    /// Whether there is certainly no input. A cheap check without a system call: `false` if it is unknown.
    pub fn has_no_input(&self) -> bool {
        match self {
            UpstreamStream::Plain(socket) => socket.has_no_input(),
            #[cfg(feature = "tls")]
            // The TLS layer may have buffered bytes.
            UpstreamStream::Tls(_) => false,
        }
    }

    /// Whether an idle connection is still open and has no input: the pool's check before reuse.
    pub fn is_quiet(&mut self) -> bool {
        // A buffer of one byte suffices, since any input on an idle connection is unexpected.
        let mut context = Context::from_waker(Waker::noop());
        self.poll_recv(&mut context, &mut [0]).is_pending()
    }

    /// The protocol that the origin chose by ALPN, if it did.
    pub fn negotiated_protocol(&self) -> Option<&[u8]> {
        match self {
            UpstreamStream::Plain(_) => None,
            #[cfg(feature = "tls")]
            UpstreamStream::Tls(encrypted) => encrypted.protocol(),
        }
    }

    /// The socket, which may be moved to another worker.
    pub fn socket(&mut self) -> &mut UpstreamSocket {
        match self {
            UpstreamStream::Plain(socket) => socket,
            #[cfg(feature = "tls")]
            UpstreamStream::Tls(encrypted) => encrypted.socket(),
        }
    }
}
