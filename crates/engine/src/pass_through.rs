//! Connection pass-through: from one request on, all bytes of a connection are forwarded unchanged to another server,
//! which the service chooses, and the server's bytes to the client; each direction until its end. As Lowroad no longer
//! parses these bytes, a request that it would parse differently from the other server does no harm.
//!
//! ```text
//!  client ─► bytes received of the request ────► receive ─► TunnelPeer::from_client ─► the server
//!  client ◄─ sending (a stream) ◄──────────────────── TunnelPeer::to_client ◄─ the server
//! ```
//! The engine treats such a connection as a [`Tunnel`](crate::tunnel) that begins without a response.

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWrite;

use crate::buffer::SendBuffer;
use crate::stream::{BodyReceiver, BodySender, StreamItem};
use crate::tunnel::TunnelPeer;
use crate::upstream_network::ConnectTarget;
use crate::upstream_socket::UpstreamSocket;
use crate::worker_handle::WorkerHandle;

/// Buffer size for each direction.
pub(crate) const WAITING_LEN_MAX: usize = 64 << 10;
/// Maximum length of one read from the server.
const PIECE_LEN: usize = 16 << 10;
/// Maximum number of polls of each direction before other tasks are polled.
const TURNS_MAX: usize = 16;

/// The destination of a pass-through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassThroughTarget {
    /// The server.
    pub server: SocketAddr,
    /// Source address of the connection to the server; `None` leaves the choice to the kernel.
    pub source: Option<IpAddr>,
    /// Timeout for connecting, in milliseconds.
    pub connect_timeout_ms: u64,
    /// The connection closes after this many milliseconds without progress.
    pub idle_timeout_ms: u64,
}

/// Forwards bytes in both directions until both have ended or one has failed.
pub(crate) async fn forward_connection(
    tunnel_peer: TunnelPeer,
    target: PassThroughTarget,
    local: WorkerHandle,
) {
    let remote = match target.source {
        Some(from) => ConnectTarget::TcpFrom {
            to: target.server,
            from,
        },
        None => ConnectTarget::Tcp(target.server),
    };
    let connect_timeout = Duration::from_millis(target.connect_timeout_ms);
    let connecting = UpstreamSocket::connect(&local.sources, remote);
    // If the server can't be reached, dropping `tunnel_peer` closes the client's connection.
    if let Ok(Ok(server)) = local.timers.timeout(connect_timeout, connecting).await {
        let mut carrier = PassThroughCarrier::new(tunnel_peer, server);
        poll_fn(|context| carrier.poll(context)).await;
    }
}

struct PassThroughCarrier {
    server: UpstreamSocket,
    /// `None` after the end of input from the client.
    from_client: Option<BodyReceiver>,
    /// Bytes from the client that the server has not accepted yet.
    piece: SendBuffer,
    /// The number of bytes for the server that are not sent yet; they are in `piece`, or with the driver.
    unsent_len: usize,
    /// Whether the connection to the server was half-closed.
    is_finished: bool,
    /// `None` after the end of input from the server.
    to_client: Option<BodySender>,
    received: Box<[u8]>,
}

/// The progress of one direction.
enum TransferProgress {
    Moved,
    Waits,
    /// One side has closed or broken its connection.
    Over,
}

impl PassThroughCarrier {
    fn new(tunnel_peer: TunnelPeer, server: UpstreamSocket) -> PassThroughCarrier {
        PassThroughCarrier {
            server,
            from_client: Some(tunnel_peer.from_client),
            piece: SendBuffer::default(),
            unsent_len: 0,
            is_finished: false,
            to_client: Some(tunnel_peer.to_client),
            received: vec![0; PIECE_LEN].into(),
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        for _ in 0..TURNS_MAX {
            match (
                self.forward_to_server(context),
                self.forward_to_client(context),
            ) {
                (TransferProgress::Over, _) | (_, TransferProgress::Over) => return Poll::Ready(()),
                _ if self.is_finished && self.to_client.is_none() => return Poll::Ready(()),
                (TransferProgress::Waits, TransferProgress::Waits) => return Poll::Pending,
                _ => {}
            }
        }
        // There may be more to forward, so this is polled again after other tasks.
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn forward_to_server(&mut self, context: &mut Context<'_>) -> TransferProgress {
        if self.unsent_len > 0 {
            return match self.server.poll_send_buffer(context, &mut self.piece) {
                Poll::Pending => TransferProgress::Waits,
                Poll::Ready(Ok(len @ 1..)) => {
                    self.piece.advance(len);
                    self.unsent_len -= len;
                    TransferProgress::Moved
                }
                Poll::Ready(_) => TransferProgress::Over,
            };
        }
        let Some(from) = &self.from_client else {
            return self.finish(context);
        };
        match from.poll_next(context) {
            Poll::Pending => TransferProgress::Waits,
            Poll::Ready(StreamItem::Bytes(bytes)) => {
                self.unsent_len = bytes.len();
                self.piece = SendBuffer::Bytes(bytes);
                TransferProgress::Moved
            }
            Poll::Ready(StreamItem::End) => {
                self.from_client = None;
                TransferProgress::Moved
            }
            Poll::Ready(StreamItem::Cut) => TransferProgress::Over,
        }
    }

    /// Half-closes the connection to the server, after the end of input from the client.
    fn finish(&mut self, context: &mut Context<'_>) -> TransferProgress {
        if self.is_finished {
            return TransferProgress::Waits;
        }
        match Pin::new(&mut self.server).poll_shutdown(context) {
            Poll::Pending => TransferProgress::Waits,
            Poll::Ready(Ok(())) => {
                self.is_finished = true;
                TransferProgress::Moved
            }
            Poll::Ready(Err(_)) => TransferProgress::Over,
        }
    }

    fn forward_to_client(&mut self, context: &mut Context<'_>) -> TransferProgress {
        let Some(to_client) = &self.to_client else {
            return TransferProgress::Waits;
        };
        // Backpressure: no bytes are received from the server while the client's queue is full.
        match to_client.poll_room(context) {
            Poll::Pending => return TransferProgress::Waits,
            Poll::Ready(Err(_)) => return TransferProgress::Over,
            Poll::Ready(Ok(())) => {}
        }
        match self.server.poll_recv(context, &mut self.received) {
            Poll::Pending => TransferProgress::Waits,
            Poll::Ready(Ok(0)) => {
                self.to_client.take().into_iter().for_each(BodySender::end);
                TransferProgress::Moved
            }
            Poll::Ready(Ok(len)) => {
                match to_client.push(Bytes::copy_from_slice(&self.received[..len])) {
                    Ok(_) => TransferProgress::Moved,
                    Err(_) => TransferProgress::Over,
                }
            }
            Poll::Ready(Err(_)) => TransferProgress::Over,
        }
    }
}
