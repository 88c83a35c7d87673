//! Tunnel to an origin after an upgrade: bytes flow both ways, each way until its end, with backpressure.

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

/// Bytes that are buffered in each direction.
const WAITING_LEN_MAX: usize = 64 << 10;
/// How often each direction is served before the task yields.
const TURNS_MAX: usize = 16;

/// Both directions of a tunnel.
struct TunnelPump {
    talk: Box<ProxyExchange>,
    /// `None` after the client has closed its sending direction.
    from_client: Option<BodyReceiver>,
    /// Bytes of the client that the origin has not accepted yet.
    piece: SendBuffer,
    /// The number of unsent bytes, even while the driver holds the buffer.
    left: usize,
    /// Whether the sending direction to the origin is closed.
    is_finished: bool,
    /// `None` after the origin has closed its sending direction.
    to_client: Option<BodySender>,
}

/// The state of one direction.
enum TunnelState {
    Moved,
    Waits,
    /// One side is gone, or both directions have ended.
    Over,
}

/// Returns the 101 response for the client; a task moves the bytes that follow. The tunnel closes when it is idle for
/// `silence`.
pub fn begin(
    mut talk: Box<ProxyExchange>,
    silence: Duration,
    protocol: Vec<u8>,
    fields: ResponseFields,
) -> HandlerResponse {
    let (tunnel, far) = ClientTunnel::new(WAITING_LEN_MAX);
    let silence_ms = u64::try_from(silence.as_millis()).unwrap_or(u64::MAX);
    // The request is over. From now on the tunnel bound limits it.
    talk.leave.become_tunnel();
    talk.lease.detach();
    talk.attempt.iter_mut().for_each(OriginAttempt::tunnelled);
    let executor = talk.executor();
    let mut pump = TunnelPump {
        talk,
        from_client: Some(far.from_client),
        piece: SendBuffer::default(),
        left: 0,
        is_finished: false,
        to_client: Some(far.to_client),
    };
    executor.spawn(async move {
        poll_fn(|context| pump.poll(context)).await;
        // However the tunnel ended, the server performed the upgrade.
        pump.talk.report(AttemptOutcome::Answered);
    });
    HandlerResponse {
        fields,
        ..HandlerResponse::upgrade(protocol, tunnel.with_idle_timeout(silence_ms))
    }
}

impl TunnelPump {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        for _ in 0..TURNS_MAX {
            match (self.send_on(context), self.hear_on(context)) {
                (TunnelState::Over, _) | (_, TunnelState::Over) => return Poll::Ready(()),
                (TunnelState::Waits, TunnelState::Waits) => return Poll::Pending,
                // Both directions ended: half-closed tunnels go on until then.
                _ if self.is_finished && self.to_client.is_none() => return Poll::Ready(()),
                _ => {}
            }
        }
        // Bounded, so that one busy tunnel does not starve the worker's other connections.
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn send_on(&mut self, context: &mut Context<'_>) -> TunnelState {
        // The next piece is read only after this one is sent: backpressure to the client.
        if self.left > 0 {
            let connection = &mut self.talk.lease.connection;
            return match connection.poll_write_buffer(context, &mut self.piece) {
                Poll::Pending => TunnelState::Waits,
                Poll::Ready(Ok(len @ 1..)) => {
                    self.piece.advance(len);
                    self.left -= len;
                    TunnelState::Moved
                }
                Poll::Ready(_) => TunnelState::Over,
            };
        }
        let Some(from) = &self.from_client else {
            return self.finish(context);
        };
        match from.poll_next(context) {
            Poll::Pending => TunnelState::Waits,
            Poll::Ready(StreamItem::Bytes(bytes)) => {
                self.left = bytes.len();
                self.piece = SendBuffer::Bytes(bytes);
                TunnelState::Moved
            }
            // Half-close: the origin may still send after the client's end.
            Poll::Ready(StreamItem::End) => {
                self.from_client = None;
                TunnelState::Moved
            }
            Poll::Ready(StreamItem::Cut) => TunnelState::Over,
        }
    }

    /// Closes the sending direction to the origin.
    fn finish(&mut self, context: &mut Context<'_>) -> TunnelState {
        if self.is_finished {
            return TunnelState::Waits;
        }
        match self.talk.lease.connection.poll_finish(context) {
            Poll::Pending => TunnelState::Waits,
            Poll::Ready(Ok(())) => {
                self.is_finished = true;
                TunnelState::Moved
            }
            Poll::Ready(Err(_)) => TunnelState::Over,
        }
    }

    fn hear_on(&mut self, context: &mut Context<'_>) -> TunnelState {
        let Some(to) = &self.to_client else {
            return TunnelState::Waits;
        };
        match to.poll_room(context) {
            // Not read while the client is slow: backpressure to the origin.
            Poll::Pending => return TunnelState::Waits,
            Poll::Ready(Err(_)) => return TunnelState::Over,
            Poll::Ready(Ok(())) => {}
        }
        match self.talk.lease.connection.poll_said(context) {
            Poll::Pending => TunnelState::Waits,
            Poll::Ready(Ok(ResponseEvent::Data(data))) => match to.push(data) {
                Ok(_) => TunnelState::Moved,
                Err(_) => TunnelState::Over,
            },
            // The end of the origin's direction; the other one may go on.
            Poll::Ready(Ok(_)) => {
                self.to_client.take().into_iter().for_each(BodySender::end);
                TunnelState::Moved
            }
            Poll::Ready(Err(_)) => TunnelState::Over,
        }
    }
}
