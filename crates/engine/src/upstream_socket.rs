//! Connections to other servers, as tasks have them: what a driver's [`UpstreamNetwork`] tells is kept as
//! flags, and who waits for it is woken. Reading and writing are tried first.
//!
//! The traits are tokio's; no runtime is needed, and any executor may poll. Which driver is below,
//! and what the bytes mean, is not known here.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use slab::Slab;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::buffer::SendBuffer;
use crate::driver::GENERATION_MAX;
use crate::upstream_network::{NetworkSocket, NoNetwork, UpstreamNetwork, UpstreamSendOutcome};

pub use crate::upstream_network::{ConnectTarget, PeerReception, SocketEvent, SourceId};

/// One worker's sockets to elsewhere. Clones lead to the same.
#[derive(Clone)]
pub struct UpstreamSockets(Arc<SourceRegistry>);

struct SourceRegistry {
    network: Box<dyn UpstreamNetwork>,
    table: Mutex<SourceTable>,
}

#[derive(Default)]
struct SourceTable {
    slots: Slab<SourceState>,
    generation: u32,
}

/// What is known of a socket.
struct SourceState {
    generation: u32,
    reading: SocketDirection,
    writing: SocketDirection,
    /// The other side has said its last byte: that is read without further news.
    ended: bool,
}

/// One direction of a socket.
#[derive(Default)]
struct SocketDirection {
    ready: bool,
    /// How often there was news: who found nothing takes that for the truth only if there was none
    /// meanwhile.
    news: u32,
    waiting: Option<Waker>,
}

impl SocketDirection {
    fn happened(&mut self) -> Option<Waker> {
        self.ready = true;
        self.news = self.news.wrapping_add(1);
        self.waiting.take()
    }

    /// Ready with the number of news.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<u32> {
        if self.ready {
            return Poll::Ready(self.news);
        }
        let waker = context.waker();
        match &self.waiting {
            Some(known) if known.will_wake(waker) => {}
            _ => self.waiting = Some(waker.clone()),
        }
        Poll::Pending
    }

    fn exhausted(&mut self, news: u32) {
        self.ready &= self.news != news;
    }
}

#[derive(Clone, Copy)]
enum DirectionState {
    In,
    Out,
}

impl SourceState {
    fn side(&mut self, way: DirectionState) -> &mut SocketDirection {
        match way {
            DirectionState::In => &mut self.reading,
            DirectionState::Out => &mut self.writing,
        }
    }
}

impl UpstreamSockets {
    /// Those of a driver with this network.
    pub fn new(network: impl UpstreamNetwork + 'static) -> UpstreamSockets {
        UpstreamSockets(Arc::new(SourceRegistry {
            network: Box::new(network),
            table: Mutex::default(),
        }))
    }

    /// Of a world without sockets: none can be made.
    pub fn none() -> UpstreamSockets {
        UpstreamSockets::new(NoNetwork)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.lock().slots.len()
    }

    /// Takes news, and wakes who waits for it.
    pub fn happened(&self, news: SocketEvent) {
        let mut table = self.lock();
        let Some(source) = table.find(news.id) else {
            return;
        };
        source.ended |= news.ended;
        let reader = match news.readable {
            true => source.reading.happened(),
            false => None,
        };
        let writer = match news.writable {
            true => source.writing.happened(),
            false => None,
        };
        drop(table);
        reader.into_iter().chain(writer).for_each(Waker::wake);
    }

    fn add(&self, rest: SourceState) -> SourceId {
        let mut table = self.lock();
        table.generation = (table.generation + 1) & GENERATION_MAX;
        let generation = table.generation;
        let slot = table.slots.insert(SourceState { generation, ..rest }) as u32;
        SourceId { slot, generation }
    }

    fn remove(&self, id: SourceId) -> Option<SourceState> {
        let mut table = self.lock();
        table.find(id)?;
        Some(table.slots.remove(id.slot as usize))
    }

    fn set_ready(&self, id: SourceId, way: DirectionState) {
        let mut table = self.lock();
        let source = table.find(id).expect("it is there while its socket is");
        source.side(way).ready = true;
    }

    fn poll(&self, id: SourceId, way: DirectionState, context: &mut Context<'_>) -> Poll<u32> {
        let mut table = self.lock();
        let source = table.find(id).expect("it is there while its socket is");
        source.side(way).poll(context)
    }

    /// Nothing was left, though `news` said otherwise; `surely` = the system said so.
    fn exhausted(&self, id: SourceId, way: DirectionState, news: u32, surely: bool) {
        let mut table = self.lock();
        let source = table.find(id).expect("it is there while its socket is");
        if surely || !source.ended {
            source.side(way).exhausted(news);
        }
    }

    fn lock(&self) -> MutexGuard<'_, SourceTable> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SourceTable {
    fn find(&mut self, id: SourceId) -> Option<&mut SourceState> {
        let source = self.slots.get_mut(id.slot as usize)?;
        (source.generation == id.generation).then_some(source)
    }
}

/// A connection to another server. Dropped, it is closed.
pub struct UpstreamSocket {
    socket: Box<dyn NetworkSocket>,
    registration: SourceRegistration,
    /// The network has a buffer of ours.
    is_lent: bool,
    /// It is `copied`.
    is_lent_copy: bool,
    /// Bytes that were copied, since they are not ours to keep, and have not left.
    copied: SendBuffer,
}

/// Bytes of others that are copied at a time, where they have to be.
const COPIED_LEN_MAX: usize = 64 * 1024;

/// A socket in a worker's table; given back when it is dropped.
struct SourceRegistration {
    sources: UpstreamSockets,
    id: SourceId,
}

impl SourceRegistration {
    fn new(sources: &UpstreamSockets, rest: SourceState) -> SourceRegistration {
        SourceRegistration {
            id: sources.add(rest),
            sources: sources.clone(),
        }
    }

    fn poll(&self, way: DirectionState, context: &mut Context<'_>) -> Poll<u32> {
        self.sources.poll(self.id, way, context)
    }
}

impl Drop for SourceRegistration {
    fn drop(&mut self) {
        drop(self.sources.remove(self.id));
    }
}

impl UpstreamSocket {
    /// Connects. What is written goes out at once, in pieces as it is given.
    ///
    /// # Errors
    /// What the system says; `WouldBlock` where a unix socket's queue is full.
    pub async fn connect(
        sources: &UpstreamSockets,
        to: ConnectTarget<'_>,
    ) -> io::Result<UpstreamSocket> {
        // It is there before the first news can be.
        let rest = SourceState {
            generation: 0,
            reading: SocketDirection::default(),
            writing: SocketDirection::default(),
            ended: false,
        };
        let registration = SourceRegistration::new(sources, rest);
        let connecting = sources.0.network.connect(to, registration.id)?;
        let mut socket = connecting.socket;
        if connecting.connected {
            sources.set_ready(registration.id, DirectionState::Out);
        } else {
            poll_fn(|context| registration.poll(DirectionState::Out, context)).await;
            socket.connected()?;
        }
        Ok(UpstreamSocket {
            socket,
            registration,
            is_lent: false,
            is_lent_copy: false,
            copied: SendBuffer::default(),
        })
    }

    /// Lets another worker hear of it from now on.
    ///
    /// # Errors
    /// What the system says; the connection is of no use then.
    pub fn move_to(&mut self, sources: &UpstreamSockets) -> io::Result<()> {
        let old = &self.registration;
        if Arc::ptr_eq(&sources.0, &old.sources.0) {
            return Ok(());
        }
        let source = old.sources.remove(old.id);
        // Whatever there is, it is reported anew.
        let source = source.expect("it is there while its socket is");
        self.registration = SourceRegistration::new(sources, source);
        let id = self.registration.id;
        sources.0.network.adopt(&mut *self.socket, id)
    }

    /// Whom to ask whether what was sent has been read; `None` where nobody knows. To be dropped before the connection is.
    pub fn reception(&self) -> Option<PeerReception> {
        self.socket.reception()
    }

    /// Whether there was no news of anything to read since all of it was read.
    pub fn heard_nothing(&self) -> bool {
        let SourceRegistration { sources, id } = &self.registration;
        let mut table = sources.lock();
        table.find(*id).is_some_and(|source| !source.reading.ready)
    }

    /// Reads some bytes; 0 at the end. The buffer is not empty.
    ///
    /// # Errors
    /// What the system says.
    pub fn poll_recv(
        &mut self,
        context: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        // The other side may wait for it before it says anything. If it fails, what has come is still read.
        let _ = self.poll_drain(context);
        loop {
            let news = ready!(self.registration.poll(DirectionState::In, context));
            match self.socket.receive(into) {
                Ok(len) => {
                    // Less than there was room for is all that there was, for what comes is told;
                    // but not the end, if that was told before.
                    if len < into.len() && len > 0 {
                        self.exhausted(DirectionState::In, news, false);
                    }
                    return Poll::Ready(Ok(len));
                }
                Err(error) => self.failed(DirectionState::In, news, error)?,
            }
        }
    }

    /// Sends a start of `buffer`, which is not empty and stays the same until it was sent. The network may have it
    /// meanwhile; what was sent of it is for the caller to take away.
    ///
    /// # Errors
    /// What the system says.
    pub fn poll_send_buffer(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut SendBuffer,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_drain(context))?;
        self.poll_buffer(context, buffer)
    }

    fn poll_buffer(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut SendBuffer,
    ) -> Poll<io::Result<usize>> {
        loop {
            let news = ready!(self.registration.poll(DirectionState::Out, context));
            if self.is_lent {
                match self.socket.sent() {
                    None => self.exhausted(DirectionState::Out, news, true),
                    Some(completion) => {
                        self.is_lent = false;
                        *buffer = completion.buffer;
                        let broken = || io::ErrorKind::BrokenPipe.into();
                        return Poll::Ready(completion.taken.ok_or_else(broken));
                    }
                }
                continue;
            }
            match self.socket.send(buffer) {
                Ok(UpstreamSendOutcome::Bytes(len)) => return Poll::Ready(Ok(len)),
                Ok(UpstreamSendOutcome::Underway) => {
                    self.is_lent = true;
                    self.exhausted(DirectionState::Out, news, true);
                }
                Err(error) => self.failed(DirectionState::Out, news, error)?,
            }
        }
    }

    /// Writes some of these. They are surely out only after [`AsyncWrite::poll_flush`]: where the network does not say at
    /// once how many it took, they are copied.
    ///
    /// # Errors
    /// What the system says.
    pub fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_drain(context))?;
        loop {
            let news = ready!(self.registration.poll(DirectionState::Out, context));
            match self.socket.send_at_once(pieces) {
                Ok(Some(len)) => return Poll::Ready(Ok(len)),
                Ok(None) => break,
                Err(error) => self.failed(DirectionState::Out, news, error)?,
            }
        }
        let mut bytes = Vec::new();
        for piece in pieces {
            let room = COPIED_LEN_MAX - bytes.len();
            bytes.extend_from_slice(&piece[..piece.len().min(room)]);
        }
        let len = bytes.len();
        self.copied = SendBuffer::Vec(bytes);
        match self.poll_drain(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(len)),
        }
    }

    /// Ready when what was copied has left; mostly nothing ever was.
    #[inline]
    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.copied {
            SendBuffer::Vec(bytes) if bytes.is_empty() && !self.is_lent_copy => Poll::Ready(Ok(())),
            _ => self.poll_copied(context),
        }
    }

    #[cold]
    fn poll_copied(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.is_lent_copy || !self.copied.is_empty() {
            let mut copied = std::mem::take(&mut self.copied);
            let sent = self.poll_buffer(context, &mut copied);
            self.is_lent_copy = self.is_lent;
            self.copied = copied;
            let len = ready!(sent)?;
            self.copied.advance(len);
        }
        Poll::Ready(Ok(()))
    }

    fn exhausted(&self, way: DirectionState, news: u32, surely: bool) {
        self.registration
            .sources
            .exhausted(self.registration.id, way, news, surely);
    }

    /// Whether an error only says that there is nothing now, or that a call was interrupted.
    fn failed(&self, way: DirectionState, news: u32, error: io::Error) -> io::Result<()> {
        match error.kind() {
            io::ErrorKind::WouldBlock => self.exhausted(way, news, true),
            io::ErrorKind::Interrupted => {}
            _ => return Err(error),
        }
        Ok(())
    }
}

impl AsyncRead for UpstreamSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let len = ready!(
            self.get_mut()
                .poll_recv(context, into.initialize_unfilled())
        )?;
        into.advance(len);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for UpstreamSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_send(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_send(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_drain(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_drain(context))?;
        Poll::Ready(this.socket.finish())
    }
}
