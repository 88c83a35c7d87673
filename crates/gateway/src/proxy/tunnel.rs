//! A connection to an origin that speaks another protocol than HTTP: bytes go both ways, each way until its end, and no
//! faster than the other side takes them. Knows nothing of what they mean.

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

/// How many bytes wait on each way.
const WAITING_LEN_MAX: usize = 64 << 10;
/// How often each way is looked at before others have their turn.
const TURNS_MAX: usize = 16;

/// Both ways.
struct Pump {
    talk: Box<Talk>,
    /// `None` once the client has sent its last byte.
    from_client: Option<Receiver>,
    /// Of what the client sent, what the origin has not taken.
    piece: Buffer,
    /// Bytes of it that have not been sent, wherever it is.
    left: usize,
    /// The origin knows that nothing more comes.
    is_finished: bool,
    /// `None` once the origin has sent its last byte.
    to_client: Option<Sender>,
}

/// How far it is.
enum Turn {
    Moved,
    Waits,
    /// One side is gone, or both have said all.
    Over,
}

/// The response that tells the client of the protocol; a task moves the bytes that follow. The tunnel closes when
/// nothing has moved for `silence`.
pub fn begin(
    mut talk: Box<Talk>,
    silence: Duration,
    protocol: Vec<u8>,
    fields: Fields,
) -> Response {
    let (tunnel, far) = Tunnel::new(WAITING_LEN_MAX);
    let silence_ms = u64::try_from(silence.as_millis()).unwrap_or(u64::MAX);
    // Its request is over. What it takes from now on is bounded by what tunnels there may be.
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
        // Whatever ended it: the server did what it was asked for.
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

    /// Passes on that the client has sent its last byte.
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
