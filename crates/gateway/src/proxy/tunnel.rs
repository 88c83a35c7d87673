//! Tunnel to an origin after an upgrade: bytes flow both ways, each way until its end, with backpressure.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use lowroad_engine::buffer::Buffer;
use lowroad_engine::stream::{Next, Receiver, Sender};
use lowroad_engine::tunnel::Tunnel;
use lowroad_handler::{Fields, Response};
use lowroad_origin::group::Outcome;

use super::link::Said;
use super::servers::Try;
use super::talk::Talk;

/// Bytes that are buffered in each direction.
const WAITING_LEN_MAX: usize = 64 << 10;
/// How often each direction is served before the task yields.
const TURNS_MAX: usize = 16;

/// Both directions of a tunnel.
struct Pump {
    talk: Box<Talk>,
    /// `None` after the client has closed its sending direction.
    from_client: Option<Receiver>,
    /// Bytes of the client that the origin has not accepted yet.
    piece: Buffer,
    /// The number of unsent bytes, even while the driver holds the buffer.
    left: usize,
    /// Whether the sending direction to the origin is closed.
    is_finished: bool,
    /// `None` after the origin has closed its sending direction.
    to_client: Option<Sender>,
}

/// The state of one direction.
enum Turn {
    Moved,
    Waits,
    /// One side is gone, or both directions have ended.
    Over,
}

/// Returns the 101 response for the client; a task moves the bytes that follow. The tunnel closes when it is idle for
/// `silence`.
pub fn begin(
    mut talk: Box<Talk>,
    silence: Duration,
    protocol: Vec<u8>,
    fields: Fields,
) -> Response {
    let (tunnel, far) = Tunnel::new(WAITING_LEN_MAX);
    let silence_ms = u64::try_from(silence.as_millis()).unwrap_or(u64::MAX);
    // The request is over. From now on the tunnel bound limits it.
    talk.leave.become_tunnel();
    talk.lease.detach();
    talk.attempt.iter_mut().for_each(Try::tunnelled);
    let executor = talk.executor();
    let mut pump = Pump {
        talk,
        from_client: Some(far.from_client),
        piece: Buffer::default(),
        left: 0,
        is_finished: false,
        to_client: Some(far.to_client),
    };
    executor.spawn(async move {
        poll_fn(|context| pump.poll(context)).await;
        // However the tunnel ended, the server performed the upgrade.
        pump.talk.report(Outcome::Answered);
    });
    Response {
        fields,
        ..Response::upgrade(protocol, tunnel.with_idle_timeout(silence_ms))
    }
}

impl Pump {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        for _ in 0..TURNS_MAX {
            match (self.send_on(context), self.hear_on(context)) {
                (Turn::Over, _) | (_, Turn::Over) => return Poll::Ready(()),
                (Turn::Waits, Turn::Waits) => return Poll::Pending,
                _ if self.is_finished && self.to_client.is_none() => return Poll::Ready(()),
                _ => {}
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn send_on(&mut self, context: &mut Context<'_>) -> Turn {
        if self.left > 0 {
            let connection = &mut self.talk.lease.connection;
            return match connection.poll_write_buffer(context, &mut self.piece) {
                Poll::Pending => Turn::Waits,
                Poll::Ready(Ok(len @ 1..)) => {
                    self.piece.advance(len);
                    self.left -= len;
                    Turn::Moved
                }
                Poll::Ready(_) => Turn::Over,
            };
        }
        let Some(from) = &self.from_client else {
            return self.finish(context);
        };
        match from.poll_next(context) {
            Poll::Pending => Turn::Waits,
            Poll::Ready(Next::Bytes(bytes)) => {
                self.left = bytes.len();
                self.piece = Buffer::Bytes(bytes);
                Turn::Moved
            }
            Poll::Ready(Next::End) => {
                self.from_client = None;
                Turn::Moved
            }
            Poll::Ready(Next::Cut) => Turn::Over,
        }
    }

    /// Closes the sending direction to the origin.
    fn finish(&mut self, context: &mut Context<'_>) -> Turn {
        if self.is_finished {
            return Turn::Waits;
        }
        match self.talk.lease.connection.poll_finish(context) {
            Poll::Pending => Turn::Waits,
            Poll::Ready(Ok(())) => {
                self.is_finished = true;
                Turn::Moved
            }
            Poll::Ready(Err(_)) => Turn::Over,
        }
    }

    fn hear_on(&mut self, context: &mut Context<'_>) -> Turn {
        let Some(to) = &self.to_client else {
            return Turn::Waits;
        };
        match to.poll_room(context) {
            Poll::Pending => return Turn::Waits,
            Poll::Ready(Err(_)) => return Turn::Over,
            Poll::Ready(Ok(())) => {}
        }
        match self.talk.lease.connection.poll_said(context) {
            Poll::Pending => Turn::Waits,
            Poll::Ready(Ok(Said::Data(data))) => match to.push(data) {
                Ok(_) => Turn::Moved,
                Err(_) => Turn::Over,
            },
            Poll::Ready(Ok(_)) => {
                self.to_client.take().into_iter().for_each(Sender::end);
                Turn::Moved
            }
            Poll::Ready(Err(_)) => Turn::Over,
        }
    }
}
