//! The tunnel to an origin after an upgrade: bytes are forwarded in both directions, with backpressure, until both have
//! ended.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use lowroad_engine::buffer::SendBuffer;
use lowroad_engine::stream::{BodyReceiver, BodySender, StreamItem};
use lowroad_engine::tunnel::ClientTunnel;
use lowroad_handler::{HandlerResponse, ResponseFields};
use lowroad_origin::group::AttemptOutcome;

use super::exchange::ProxyExchange;
use super::link::ResponseEvent;
use super::servers::OriginAttempt;

/// The number of bytes that are buffered in each direction.
const BUFFER_LEN_MAX: usize = 64 << 10;
/// The number of rounds after which the task yields.
const TURNS_MAX: usize = 16;

/// Both directions of a tunnel.
struct TunnelPump {
    exchange: Box<ProxyExchange>,
    /// `None` after the client has closed its sending direction.
    from_client: Option<BodyReceiver>,
    /// Bytes from the client that were not sent to the origin.
    piece: SendBuffer,
    /// The number of unsent bytes, also while the I/O driver owns the buffer.
    remaining: usize,
    /// Whether the sending direction to the origin is closed.
    is_finished: bool,
    /// `None` after the origin has closed its sending direction.
    to_client: Option<BodySender>,
}

/// The state of one direction.
enum TunnelState {
    Moved,
    Waiting,
    /// One side has disconnected, or both directions have ended.
    Ended,
}

/// Returns the 101 response for the client, and spawns a task that forwards the bytes that follow. The tunnel is closed
/// after `idle_timeout` without traffic.
pub fn begin(
    mut exchange: Box<ProxyExchange>,
    idle_timeout: Duration,
    protocol: Vec<u8>,
    fields: ResponseFields,
) -> HandlerResponse {
    let (tunnel, far_end) = ClientTunnel::new(BUFFER_LEN_MAX);
    let idle_timeout_ms = u64::try_from(idle_timeout.as_millis()).unwrap_or(u64::MAX);
    // The request is over; from here on, the tunnel permit counts.
    exchange.permit.become_tunnel();
    // Tunnels may last for days and have their own limit, so they do not count against that of the pool.
    if let Some(lease) = exchange.transport.lease() {
        lease.detach();
    }
    exchange
        .attempt
        .iter_mut()
        .for_each(OriginAttempt::mark_tunnelled);
    let executor = exchange.executor();
    let mut pump = TunnelPump {
        exchange,
        from_client: Some(far_end.from_client),
        piece: SendBuffer::default(),
        remaining: 0,
        is_finished: false,
        to_client: Some(far_end.to_client),
    };
    executor.spawn(async move {
        poll_fn(|context| pump.poll(context)).await;
        // However the tunnel ended, the server did perform the upgrade.
        pump.exchange.report(AttemptOutcome::Answered);
    });
    HandlerResponse {
        fields,
        ..HandlerResponse::upgrade(protocol, tunnel.with_idle_timeout(idle_timeout_ms))
    }
}

impl TunnelPump {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        for _ in 0..TURNS_MAX {
            match (
                self.forward_to_origin(context),
                self.forward_to_client(context),
            ) {
                (TunnelState::Ended, _) | (_, TunnelState::Ended) => return Poll::Ready(()),
                (TunnelState::Waiting, TunnelState::Waiting) => return Poll::Pending,
                // Both directions have ended; a half-closed tunnel continues.
                _ if self.is_finished && self.to_client.is_none() => return Poll::Ready(()),
                _ => {}
            }
        }
        // The number of rounds is bounded, so that one busy tunnel does not starve other connections of the worker.
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn forward_to_origin(&mut self, context: &mut Context<'_>) -> TunnelState {
        // The next piece is read only after the current piece is sent: backpressure to the client.
        if self.remaining > 0 {
            // Only HTTP/1.1 has upgrades.
            let Some(lease) = self.exchange.transport.lease() else {
                return TunnelState::Ended;
            };
            return match lease.connection.poll_write_buffer(context, &mut self.piece) {
                Poll::Pending => TunnelState::Waiting,
                Poll::Ready(Ok(len @ 1..)) => {
                    self.piece.advance(len);
                    self.remaining -= len;
                    TunnelState::Moved
                }
                Poll::Ready(_) => TunnelState::Ended,
            };
        }
        let Some(receiver) = &self.from_client else {
            return self.finish(context);
        };
        match receiver.poll_next(context) {
            Poll::Pending => TunnelState::Waiting,
            Poll::Ready(StreamItem::Bytes(bytes)) => {
                self.remaining = bytes.len();
                self.piece = SendBuffer::Bytes(bytes);
                TunnelState::Moved
            }
            // Half-close: the origin may still send after the end of the client's direction.
            Poll::Ready(StreamItem::End) => {
                self.from_client = None;
                TunnelState::Moved
            }
            // The client was lost without an orderly end, so this is no half-close.
            Poll::Ready(StreamItem::Cut) => TunnelState::Ended,
        }
    }

    /// Closes the sending direction to the origin.
    fn finish(&mut self, context: &mut Context<'_>) -> TunnelState {
        if self.is_finished {
            return TunnelState::Waiting;
        }
        let Some(lease) = self.exchange.transport.lease() else {
            return TunnelState::Ended;
        };
        match lease.connection.poll_finish(context) {
            Poll::Pending => TunnelState::Waiting,
            Poll::Ready(Ok(())) => {
                self.is_finished = true;
                TunnelState::Moved
            }
            Poll::Ready(Err(_)) => TunnelState::Ended,
        }
    }

    fn forward_to_client(&mut self, context: &mut Context<'_>) -> TunnelState {
        let Some(sender) = &self.to_client else {
            return TunnelState::Waiting;
        };
        match sender.poll_room(context) {
            // Nothing is read while the client's buffer is full: backpressure to the origin.
            Poll::Pending => return TunnelState::Waiting,
            Poll::Ready(Err(_)) => return TunnelState::Ended,
            Poll::Ready(Ok(())) => {}
        }
        match self.exchange.transport.poll_event(context) {
            Poll::Pending => TunnelState::Waiting,
            Poll::Ready(Ok(ResponseEvent::Data(data))) => match sender.push(data) {
                Ok(_) => TunnelState::Moved,
                Err(_) => TunnelState::Ended,
            },
            // The origin's direction has ended; the client's direction may continue.
            Poll::Ready(Ok(_)) => {
                self.to_client.take().into_iter().for_each(BodySender::end);
                TunnelState::Moved
            }
            Poll::Ready(Err(_)) => TunnelState::Ended,
        }
    }
}
