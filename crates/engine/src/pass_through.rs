//! Connections that are passed through: from the first request on that is not understood, all bytes go to the server that the
//! service names, unchanged, and what that says comes back, each way until its end. Nothing of it is interpreted any more, so
//! it does not matter how the other side reads it.
//!
//! ```text
//!  client ─► what was received of the request ─► receive ─► Far::from_client ─► the server
//!  client ◄─ sending (a stream) ◄─────────────────────────── Far::to_client ◄─ the server
//! ```
//! To the engine such a connection is a [`Tunnel`](crate::tunnel) without a response before it.

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use lowroad_http::h1::Head;
use tokio::io::AsyncWrite;

use crate::body::{Part, Streamed};
use crate::buffer::Buffer;
use crate::driver::Driver;
use crate::local::Local;
use crate::network::Remote;
use crate::outgoing::Outgoing;
use crate::service::Service;
use crate::stream::{Next, Receiver, Sender};
use crate::tunnel::{Far, Tunnel};
use crate::worker::Worker;

/// How many bytes wait on each way.
const WAITING_LEN_MAX: usize = 64 << 10;
/// Bytes that are taken from the server at a time.
const PIECE_LEN: usize = 16 << 10;
/// How often each way is looked at before others have their turn.
const TURNS_MAX: usize = 16;

/// Where a connection is passed through to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassThrough {
    /// The server.
    pub to: SocketAddr,
    /// From which address it is asked, if not from any.
    pub from: Option<IpAddr>,
    /// How long connecting may take, in milliseconds.
    pub connect_timeout_ms: u64,
    /// The connection closes when nothing has moved for so long, in milliseconds.
    pub idle_timeout_ms: u64,
}

impl<D: Driver, V: Service> Worker<D, V> {
    /// Passes a connection through, if the service wants that of this request, or, without one, of what is no request. `input`
    /// begins with its first byte. Whether it does.
    pub(crate) fn passes_through(
        &mut self,
        id: usize,
        head: Option<&Head<'_>>,
        input: &[u8],
    ) -> bool {
        let connection = &self.connections[id];
        let is_free = connection.two.is_none() && connection.exchanges.is_empty();
        let listener = connection.listener;
        let way = is_free.then(|| self.service.pass_through(listener, head));
        match way.flatten() {
            Some(way) => self.begin_passing(id, way, input),
            None => return false,
        }
        true
    }

    /// The same of a head that was begun and will not end.
    pub(crate) fn pass_rest_through(&mut self, id: usize) {
        let connection = &mut self.connections[id];
        if connection.lingering || connection.http.is_tunnel() || !connection.begun {
            return;
        }
        let input = connection.input.take();
        if !self.passes_through(id, None, &input)
            && let Some(connection) = self.connections.get_mut(id)
        {
            connection.input.put_back(input, 0);
        }
    }

    fn begin_passing(&mut self, id: usize, way: PassThrough, input: &[u8]) {
        self.counters.passed_through.bump();
        let (tunnel, far) = Tunnel::new(WAITING_LEN_MAX);
        let (to_client, back) = tunnel.with_idle_timeout(way.idle_timeout_ms).split();
        let connection = &mut self.connections[id];
        connection.begun = false;
        connection.requests += 1;
        connection.http.pass_through();
        let stream = connection.stream();
        self.begin_tunnel(id, stream, back);
        if let Some(incoming) = self.connections[id].exchanges.incoming(stream) {
            incoming.data(input);
        }
        let local = self.local.clone();
        self.local.tasks.spawn(carry(far, way, local)).detach();
        self.out.parts.push(Part::Stream(Streamed::new(to_client)));
        // Answers to earlier requests come first.
        match self.out.bytes.is_empty() {
            true => self.start_sending(id, Some((0, 0)), 0),
            false => self.flush(id),
        }
        if self.connections.contains(id) {
            self.watch_incoming(id, stream);
        }
    }
}

/// Brings the bytes of both ways to the other side, until both have ended or one has failed.
async fn carry(far: Far, way: PassThrough, local: Local) {
    let remote = match way.from {
        Some(from) => Remote::TcpFrom { to: way.to, from },
        None => Remote::Tcp(way.to),
    };
    let patience = Duration::from_millis(way.connect_timeout_ms);
    let connecting = Outgoing::connect(&local.sources, remote);
    // Without a server the client's connection closes with `far`.
    if let Ok(Ok(server)) = local.timers.timeout(patience, connecting).await {
        let mut carrier = Carrier::new(far, server);
        poll_fn(|context| carrier.poll(context)).await;
    }
}

struct Carrier {
    server: Outgoing,
    /// `None` once the client has sent its last byte.
    from_client: Option<Receiver>,
    /// What the server has not taken of it.
    piece: Buffer,
    /// Bytes of it that have not been sent, wherever it is.
    left: usize,
    /// The server knows that nothing more comes.
    is_finished: bool,
    /// `None` once the server has sent its last byte.
    to_client: Option<Sender>,
    received: Box<[u8]>,
}

/// How far one way is.
enum Progress {
    Moved,
    Waits,
    /// A side is gone.
    Over,
}

impl Carrier {
    fn new(far: Far, server: Outgoing) -> Carrier {
        Carrier {
            server,
            from_client: Some(far.from_client),
            piece: Buffer::default(),
            left: 0,
            is_finished: false,
            to_client: Some(far.to_client),
            received: vec![0; PIECE_LEN].into(),
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        for _ in 0..TURNS_MAX {
            match (self.send_on(context), self.receive_on(context)) {
                (Progress::Over, _) | (_, Progress::Over) => return Poll::Ready(()),
                _ if self.is_finished && self.to_client.is_none() => return Poll::Ready(()),
                (Progress::Waits, Progress::Waits) => return Poll::Pending,
                _ => {}
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn send_on(&mut self, context: &mut Context<'_>) -> Progress {
        if self.left > 0 {
            return match self.server.poll_send_buffer(context, &mut self.piece) {
                Poll::Pending => Progress::Waits,
                Poll::Ready(Ok(len @ 1..)) => {
                    self.piece.advance(len);
                    self.left -= len;
                    Progress::Moved
                }
                Poll::Ready(_) => Progress::Over,
            };
        }
        let Some(from) = &self.from_client else {
            return self.finish(context);
        };
        match from.poll_next(context) {
            Poll::Pending => Progress::Waits,
            Poll::Ready(Next::Bytes(bytes)) => {
                self.left = bytes.len();
                self.piece = Buffer::Bytes(bytes);
                Progress::Moved
            }
            Poll::Ready(Next::End) => {
                self.from_client = None;
                Progress::Moved
            }
            Poll::Ready(Next::Cut) => Progress::Over,
        }
    }

    /// Tells the server that the client has sent its last byte.
    fn finish(&mut self, context: &mut Context<'_>) -> Progress {
        if self.is_finished {
            return Progress::Waits;
        }
        match Pin::new(&mut self.server).poll_shutdown(context) {
            Poll::Pending => Progress::Waits,
            Poll::Ready(Ok(())) => {
                self.is_finished = true;
                Progress::Moved
            }
            Poll::Ready(Err(_)) => Progress::Over,
        }
    }

    fn receive_on(&mut self, context: &mut Context<'_>) -> Progress {
        let Some(to) = &self.to_client else {
            return Progress::Waits;
        };
        match to.poll_room(context) {
            Poll::Pending => return Progress::Waits,
            Poll::Ready(Err(_)) => return Progress::Over,
            Poll::Ready(Ok(())) => {}
        }
        match self.server.poll_recv(context, &mut self.received) {
            Poll::Pending => Progress::Waits,
            Poll::Ready(Ok(0)) => {
                self.to_client.take().into_iter().for_each(Sender::end);
                Progress::Moved
            }
            Poll::Ready(Ok(len)) => match to.push(Bytes::copy_from_slice(&self.received[..len])) {
                Ok(_) => Progress::Moved,
                Err(_) => Progress::Over,
            },
            Poll::Ready(Err(_)) => Progress::Over,
        }
    }
}
