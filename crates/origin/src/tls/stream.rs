//! A TLS connection to an origin on a socket: decrypts and encrypts with `lowroad_tls`, and buffers partial input and
//! output.

use std::cell::RefCell;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use lowroad_engine::upstream_socket::UpstreamSocket;
use lowroad_tls::{PeerClose, TlsClient};
use tokio::io::AsyncWrite as _;

use super::handshake_error::HandshakeRefusal;

/// The length of one read from a socket: two full records.
const READ_LEN: usize = 33 << 10;
/// The maximum number of bytes that are encrypted in one call.
const SEND_LEN_MAX: usize = 64 << 10;

thread_local! {
    /// The read buffer for encrypted records, shared by the thread's connections. Records are decrypted immediately, so
    /// that an idle connection needs no buffer.
    static RECORD_BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_LEN].into());
}

/// A TLS connection. Dropping it closes the socket.
pub struct EncryptedStream {
    client: TlsClient,
    socket: UpstreamSocket,
    name: Arc<str>,
    /// Decrypted bytes that were not read yet.
    plain: Pending,
    /// Encrypted records to send.
    records: Pending,
    /// How the origin has ended its data, if it has.
    end: Option<PeerClose>,
    finished: bool,
}

/// A buffer of bytes, some of which are already processed. An empty buffer has no allocation.
#[derive(Default)]
struct Pending {
    bytes: Vec<u8>,
    consumed: usize,
}

impl Pending {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.consumed..]
    }

    fn advance(&mut self, len: usize) {
        self.consumed += len;
        // Freed, so that an idle connection needs no buffer.
        if self.consumed == self.bytes.len() {
            *self = Pending::default();
        }
    }
}

impl EncryptedStream {
    /// `records` are the first records of the handshake.
    pub(super) fn new(
        client: TlsClient,
        records: Vec<u8>,
        socket: UpstreamSocket,
        name: Arc<str>,
    ) -> EncryptedStream {
        EncryptedStream {
            client,
            socket,
            name,
            plain: Pending::default(),
            records: Pending {
                bytes: records,
                consumed: 0,
            },
            end: None,
            finished: false,
        }
    }

    /// The protocol that the origin chose by ALPN.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.client.protocol()
    }

    /// Whether the session was resumed.
    pub fn is_resumed(&self) -> bool {
        self.client.is_resumed()
    }

    /// The socket.
    pub fn socket(&mut self) -> &mut UpstreamSocket {
        &mut self.socket
    }

    pub(super) fn poll_handshake(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            // Pending records are sent first, since the origin waits for them.
            ready!(self.poll_flush(context))?;
            if self.client.is_established() {
                return Poll::Ready(Ok(()));
            }
            if self.end.is_some() {
                let message = format!(
                    "{} closed the connection during the TLS handshake",
                    self.name
                );
                return Poll::Ready(Err(io::Error::new(ErrorKind::UnexpectedEof, message)));
            }
            ready!(self.poll_read_more(context))?;
        }
    }

    /// See `UpstreamStream::poll_recv`.
    ///
    /// # Errors
    /// As there.
    pub fn poll_recv(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        // The origin may be waiting for pending output before it responds. On an error, received data can still be
        // read.
        let _ = self.poll_flush(context);
        loop {
            let rest = self.plain.rest();
            if !rest.is_empty() {
                let len = rest.len().min(buffer.len());
                buffer[..len].copy_from_slice(&rest[..len]);
                self.plain.advance(len);
                return Poll::Ready(Ok(len));
            }
            match self.end {
                None => ready!(self.poll_read_more(context))?,
                Some(PeerClose::Cleanly) => return Poll::Ready(Ok(0)),
                // Truncation attack: without close_notify the data may be incomplete (RFC 8446 §6.1).
                Some(PeerClose::Truncated | PeerClose::InHandshake) => {
                    let message = format!(
                        "{} closed the connection without a TLS close_notify",
                        self.name
                    );
                    return Poll::Ready(Err(io::Error::new(ErrorKind::UnexpectedEof, message)));
                }
            }
        }
    }

    /// See `UpstreamStream::poll_send`.
    ///
    /// # Errors
    /// As there.
    pub fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // Backpressure: no new data is accepted while the socket has not taken the previous records.
        ready!(self.poll_flush(context))?;
        let mut len = 0;
        let mut chunks: Vec<&[u8]> = Vec::with_capacity(pieces.len());
        for piece in pieces {
            // The length is limited, since encrypting everything in one call would delay other connections of the
            // worker.
            let part = &piece[..piece.len().min(SEND_LEN_MAX - len)];
            len += part.len();
            chunks.push(part);
        }
        // Time 0: the dynamic record sizes, which depend on pauses, are for browsers and not needed here.
        let encrypted = self.client.encrypt(&chunks, &mut self.records.bytes, 0);
        encrypted.map_err(io::Error::other)?;
        // The bytes count as sent even if the socket is not ready: the records are buffered and flushed later.
        match self.poll_flush(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(len)),
        }
    }

    /// See `UpstreamStream::poll_flush`.
    ///
    /// # Errors
    /// As there.
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.records.rest().is_empty() {
            let pieces = [IoSlice::new(self.records.rest())];
            match ready!(self.socket.poll_send(context, &pieces))? {
                0 => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                len => self.records.advance(len),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// See `UpstreamStream::poll_finish`.
    ///
    /// # Errors
    /// As there.
    pub fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !std::mem::replace(&mut self.finished, true) {
            // close_notify. An error is ignored, since the connection has then failed already.
            let _ = self.client.close(&mut self.records.bytes);
        }
        ready!(self.poll_flush(context))?;
        Pin::new(&mut self.socket).poll_shutdown(context)
    }

    /// Reads and decrypts the socket's input.
    fn poll_read_more(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let received = RECORD_BUFFER.with_borrow_mut(|wire| {
            let len = ready!(self.socket.poll_recv(context, wire))?;
            // EOF of the socket; the TLS state shows whether close_notify was received before.
            if len == 0 {
                self.end = Some(self.client.peer_close());
                return Poll::Ready(Ok(()));
            }
            let (plain, records) = (&mut self.plain.bytes, &mut self.records.bytes);
            match self.client.receive(&mut wire[..len], plain, records) {
                Ok(progress) => {
                    if progress.closed {
                        self.end = Some(PeerClose::Cleanly);
                    }
                    Poll::Ready(Ok(()))
                }
                Err(failure) => Poll::Ready(Err(HandshakeRefusal::error(failure, &self.name))),
            }
        });
        if let Poll::Ready(Err(_)) = received {
            // Sends the alert to the origin, if that is possible without waiting.
            let _ = self.poll_flush(context);
        }
        received
    }
}
