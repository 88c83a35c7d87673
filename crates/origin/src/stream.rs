//! Bytes to and from an origin, encrypted or not, so that what is spoken need not know. It knows nothing of
//! what that is.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use lowroad_engine::buffer::Buffer;
use lowroad_engine::outgoing::Outgoing;
use tokio::io::AsyncWrite as _;

/// A connection's bytes. One task reads and writes: either may have to do the other.
pub enum Stream {
    /// As they are.
    Plain(Outgoing),
    /// Under TLS.
    #[cfg(feature = "tls")]
    Tls(Box<crate::tls::Encrypted>),
}

/// How a socket becomes a stream.
#[derive(Clone, Default)]
pub enum Transport {
    /// As it is.
    #[default]
    Plain,
    /// Under TLS.
    #[cfg(feature = "tls")]
    Tls(crate::tls::Tls),
}

impl Transport {
    /// Makes a stream of a socket that has just connected: what an [`Open`](crate::Open) begins with.
    ///
    /// # Errors
    /// The handshake failed.
    pub async fn begin(&self, socket: Outgoing) -> io::Result<Stream> {
        match self {
            Transport::Plain => Ok(Stream::Plain(socket)),
            #[cfg(feature = "tls")]
            Transport::Tls(tls) => Ok(Stream::Tls(Box::new(tls.connect(socket).await?))),
        }
    }
}

impl Stream {
    /// Reads some bytes; 0 at the end. The buffer is not empty. What was sent before goes out
    /// meanwhile.
    ///
    /// # Errors
    /// What the system says; `UnexpectedEof` where TLS was cut off, so that what was read may not be
    /// all.
    pub fn poll_recv(
        &mut self,
        context: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Stream::Plain(socket) => socket.poll_recv(context, into),
            #[cfg(feature = "tls")]
            Stream::Tls(encrypted) => encrypted.poll_recv(context, into),
        }
    }

    /// Takes some of these bytes. They are surely out only after [`Stream::poll_flush`].
    ///
    /// # Errors
    /// What the system says.
    pub fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Stream::Plain(socket) => socket.poll_send(context, pieces),
            #[cfg(feature = "tls")]
            Stream::Tls(encrypted) => encrypted.poll_send(context, pieces),
        }
    }

    /// Sends a start of `buffer`, which is not empty and stays the same until it was sent; see
    /// [`Outgoing::poll_send_buffer`].
    ///
    /// # Errors
    /// What the system says.
    pub fn poll_send_buffer(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut Buffer,
    ) -> Poll<io::Result<usize>> {
        match self {
            Stream::Plain(socket) => socket.poll_send_buffer(context, buffer),
            #[cfg(feature = "tls")]
            Stream::Tls(encrypted) => {
                let pieces = buffer.pieces().map(IoSlice::new);
                encrypted.poll_send(context, &pieces)
            }
        }
    }

    /// Ready when the socket has all that was taken.
    ///
    /// # Errors
    /// What the system says.
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Plain(socket) => Pin::new(socket).poll_flush(context),
            #[cfg(feature = "tls")]
            Stream::Tls(encrypted) => encrypted.poll_flush(context),
        }
    }

    /// Says that nothing more will be sent.
    ///
    /// # Errors
    /// What the system says.
    pub fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Plain(socket) => Pin::new(socket).poll_shutdown(context),
            #[cfg(feature = "tls")]
            Stream::Tls(encrypted) => encrypted.poll_finish(context),
        }
    }

    /// Whether there surely is nothing to read: a quick answer for who asks often.
    pub fn heard_nothing(&self) -> bool {
        match self {
            Stream::Plain(socket) => socket.heard_nothing(),
            #[cfg(feature = "tls")]
            Stream::Tls(_) => false,
        }
    }

    /// Whether an idle one is still open and nothing has come: what a pool asks before it is used
    /// again.
    pub fn is_quiet(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        self.poll_recv(&mut context, &mut [0]).is_pending()
    }

    /// Its socket, which another worker may take over.
    pub fn socket(&mut self) -> &mut Outgoing {
        match self {
            Stream::Plain(socket) => socket,
            #[cfg(feature = "tls")]
            Stream::Tls(encrypted) => encrypted.socket(),
        }
    }
}
