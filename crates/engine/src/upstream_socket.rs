//! Upstream connections for tasks. Reads and writes are tried first; if one would block, the task waits for an event of
//! the driver's [`UpstreamNetwork`].
//!
//! The sockets implement tokio's I/O traits, but any executor may poll them: no tokio runtime is needed.

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

/// One worker's upstream sockets. Clones share them.
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

/// The state of a socket.
struct SourceState {
    generation: u32,
    reading: SocketDirection,
    writing: SocketDirection,
    /// The end of input was reported, so the rest can be read without further events.
    ended: bool,
}

/// One direction of a socket.
#[derive(Default)]
struct SocketDirection {
    ready: bool,
    /// Counts events. A task that found the socket empty or full clears `ready` only if no event arrived since its
    /// attempt.
    events: u32,
    waker: Option<Waker>,
}

impl SocketDirection {
    fn record_event(&mut self) -> Option<Waker> {
        self.ready = true;
        self.events = self.events.wrapping_add(1);
        self.waker.take()
    }

    /// Ready if `ready` is set; returns the current number of events.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<u32> {
        if self.ready {
            return Poll::Ready(self.events);
        }
        let waker = context.waker();
        match &self.waker {
            Some(stored) if stored.will_wake(waker) => {}
            _ => self.waker = Some(waker.clone()),
        }
        Poll::Pending
    }

    fn clear_ready(&mut self, events: u32) {
        // An event during the attempt may report new bytes or room.
        self.ready &= self.events != events;
    }
}

#[derive(Clone, Copy)]
enum SocketHalf {
    In,
    Out,
}

impl SourceState {
    fn direction_mut(&mut self, direction: SocketHalf) -> &mut SocketDirection {
        match direction {
            SocketHalf::In => &mut self.reading,
            SocketHalf::Out => &mut self.writing,
        }
    }
}

impl UpstreamSockets {
    /// The sockets of a driver with this network.
    pub fn new(network: impl UpstreamNetwork + 'static) -> UpstreamSockets {
        UpstreamSockets(Arc::new(SourceRegistry {
            network: Box::new(network),
            table: Mutex::default(),
        }))
    }

    /// A set without a network: all connections are refused.
    pub fn none() -> UpstreamSockets {
        UpstreamSockets::new(NoNetwork)
    }

    /// The number of sockets.
    pub fn count(&self) -> usize {
        self.lock().slots.len()
    }

    /// Handles an event, and wakes the waiting tasks.
    pub fn handle_event(&self, event: SocketEvent) {
        let mut table = self.lock();
        let Some(source) = table.find(event.id) else {
            return;
        };
        // The end of input is remembered, as no event follows it.
        source.ended |= event.ended;
        let reader = match event.readable {
            true => source.reading.record_event(),
            false => None,
        };
        let writer = match event.writable {
            true => source.writing.record_event(),
            false => None,
        };
        // The wakers are called without the lock, as they may run a task that uses this table.
        drop(table);
        reader.into_iter().chain(writer).for_each(Waker::wake);
    }

    fn add(&self, state: SourceState) -> SourceId {
        let mut table = self.lock();
        // The epoll network uses the bit above to mark its events.
        table.generation = (table.generation + 1) & GENERATION_MAX;
        let generation = table.generation;
        let slot = table.slots.insert(SourceState {
            generation,
            ..state
        }) as u32;
        SourceId { slot, generation }
    }

    fn remove(&self, id: SourceId) -> Option<SourceState> {
        let mut table = self.lock();
        table.find(id)?;
        Some(table.slots.remove(id.slot as usize))
    }

    fn set_ready(&self, id: SourceId, direction: SocketHalf) {
        let mut table = self.lock();
        let source = table.find(id).expect("it is there while its socket is");
        source.direction_mut(direction).ready = true;
    }

    fn poll(&self, id: SourceId, direction: SocketHalf, context: &mut Context<'_>) -> Poll<u32> {
        let mut table = self.lock();
        let source = table.find(id).expect("it is there while its socket is");
        source.direction_mut(direction).poll(context)
    }

    /// Called after an attempt that found the socket empty or full, when the number of events was `events`.
    /// `is_certain`: the system returned an error (EAGAIN); otherwise the read was short.
    fn clear_ready(&self, id: SourceId, direction: SocketHalf, events: u32, is_certain: bool) {
        let mut table = self.lock();
        let source = table.find(id).expect("it is there while its socket is");
        // After the end of input no event follows, so a short read does not prove that nothing is left.
        if is_certain || !source.ended {
            source.direction_mut(direction).clear_ready(events);
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

/// An upstream connection. Dropping it closes it.
pub struct UpstreamSocket {
    socket: Box<dyn NetworkSocket>,
    registration: SourceRegistration,
    /// The network has taken a buffer of this socket.
    is_buffer_in_flight: bool,
    /// The buffer that the network has taken is `copied`.
    is_copy_in_flight: bool,
    /// Unsent copies of borrowed bytes.
    copied: SendBuffer,
}

/// Maximum length of a copy of borrowed bytes.
const COPIED_LEN_MAX: usize = 64 * 1024;

/// The entry of a socket in a worker's table; removed when dropped.
struct SourceRegistration {
    sources: UpstreamSockets,
    id: SourceId,
}

impl SourceRegistration {
    fn new(sources: &UpstreamSockets, state: SourceState) -> SourceRegistration {
        SourceRegistration {
            id: sources.add(state),
            sources: sources.clone(),
        }
    }

    fn poll(&self, direction: SocketHalf, context: &mut Context<'_>) -> Poll<u32> {
        self.sources.poll(self.id, direction, context)
    }
}

impl Drop for SourceRegistration {
    fn drop(&mut self) {
        drop(self.sources.remove(self.id));
    }
}

impl UpstreamSocket {
    /// Connects. Writes are not buffered.
    ///
    /// # Errors
    /// The system's error; `WouldBlock` if a Unix socket's backlog is full.
    pub async fn connect(
        sources: &UpstreamSockets,
        to: ConnectTarget<'_>,
    ) -> io::Result<UpstreamSocket> {
        // The socket is registered before the first event can arrive.
        let state = SourceState {
            generation: 0,
            reading: SocketDirection::default(),
            writing: SocketDirection::default(),
            ended: false,
        };
        let registration = SourceRegistration::new(sources, state);
        let connecting = sources.0.network.connect(to, registration.id)?;
        let mut socket = connecting.socket;
        if connecting.connected {
            // No event reports a socket that is connected from the start.
            sources.set_ready(registration.id, SocketHalf::Out);
        } else {
            // When connecting has ended, the socket is writable (connect(2)).
            poll_fn(|context| registration.poll(SocketHalf::Out, context)).await;
            socket.connected()?;
        }
        Ok(UpstreamSocket {
            socket,
            registration,
            is_buffer_in_flight: false,
            is_copy_in_flight: false,
            copied: SendBuffer::default(),
        })
    }

    /// Moves the registration to another worker.
    ///
    /// # Errors
    /// The system's error; the connection can't be used then.
    pub fn move_to(&mut self, sources: &UpstreamSockets) -> io::Result<()> {
        let old = &self.registration;
        if Arc::ptr_eq(&sources.0, &old.sources.0) {
            return Ok(());
        }
        let source = old.sources.remove(old.id);
        // Events between the two registrations are not lost: the new one reports the current readiness.
        let source = source.expect("it is there while its socket is");
        self.registration = SourceRegistration::new(sources, source);
        let id = self.registration.id;
        sources.0.network.adopt(&mut *self.socket, id)
    }

    /// A function that returns whether the peer has read all sent bytes; `None` if the network can't know. The function
    /// has to be dropped before the connection, which it keeps open.
    pub fn reception(&self) -> Option<PeerReception> {
        self.socket.reception()
    }

    /// Whether all reported input was read.
    pub fn has_no_input(&self) -> bool {
        let SourceRegistration { sources, id } = &self.registration;
        let mut table = sources.lock();
        table.find(*id).is_some_and(|source| !source.reading.ready)
    }

    /// Reads bytes into `buffer`, which is not empty; returns 0 at the end of input.
    ///
    /// # Errors
    /// The system's error.
    pub fn poll_recv(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        // Copied bytes are sent first, as the peer may need them to respond. If sending fails, received bytes are still
        // read.
        let _ = self.poll_drain(context);
        loop {
            let events = ready!(self.registration.poll(SocketHalf::In, context));
            match self.socket.receive(buffer) {
                Ok(len) => {
                    // After a short read the socket is empty, and an event reports later bytes. No event follows the
                    // end of input.
                    if len < buffer.len() && len > 0 {
                        self.clear_ready(SocketHalf::In, events, false);
                    }
                    return Poll::Ready(Ok(len));
                }
                Err(error) => self.check_error(SocketHalf::In, events, error)?,
            }
        }
    }

    /// Sends the start of `buffer`, which is not empty. Until this is ready, every call must pass the same buffer; the
    /// network may own its contents meanwhile. Returns the number of bytes sent, which the caller removes.
    ///
    /// # Errors
    /// The system's error.
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
            let events = ready!(self.registration.poll(SocketHalf::Out, context));
            if self.is_buffer_in_flight {
                match self.socket.sent() {
                    None => self.clear_ready(SocketHalf::Out, events, true),
                    Some(completion) => {
                        self.is_buffer_in_flight = false;
                        *buffer = completion.buffer;
                        let broken_pipe = || io::ErrorKind::BrokenPipe.into();
                        return Poll::Ready(completion.sent_len.ok_or_else(broken_pipe));
                    }
                }
                continue;
            }
            match self.socket.send(buffer) {
                Ok(UpstreamSendOutcome::Bytes(len)) => return Poll::Ready(Ok(len)),
                Ok(UpstreamSendOutcome::Underway) => {
                    self.is_buffer_in_flight = true;
                    self.clear_ready(SocketHalf::Out, events, true);
                }
                Err(error) => self.check_error(SocketHalf::Out, events, error)?,
            }
        }
    }

    /// Writes some of these bytes. If the network completes sends later, the bytes are copied;
    /// [`AsyncWrite::poll_flush`] waits until copies were sent.
    ///
    /// # Errors
    /// The system's error.
    pub fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_drain(context))?;
        loop {
            let events = ready!(self.registration.poll(SocketHalf::Out, context));
            match self.socket.send_at_once(pieces) {
                Ok(Some(len)) => return Poll::Ready(Ok(len)),
                Ok(None) => break,
                Err(error) => self.check_error(SocketHalf::Out, events, error)?,
            }
        }
        let mut bytes = Vec::new();
        for piece in pieces {
            // The copy is limited; the caller writes the rest later.
            let room = COPIED_LEN_MAX - bytes.len();
            bytes.extend_from_slice(&piece[..piece.len().min(room)]);
        }
        let len = bytes.len();
        self.copied = SendBuffer::Vec(bytes);
        match self.poll_drain(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            // Copied bytes count as written.
            _ => Poll::Ready(Ok(len)),
        }
    }

    /// Ready when the copied bytes were sent; usually there are none.
    #[inline]
    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.copied {
            SendBuffer::Vec(bytes) if bytes.is_empty() && !self.is_copy_in_flight => {
                Poll::Ready(Ok(()))
            }
            _ => self.poll_copied(context),
        }
    }

    #[cold]
    fn poll_copied(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.is_copy_in_flight || !self.copied.is_empty() {
            let mut copied = std::mem::take(&mut self.copied);
            let sent = self.poll_buffer(context, &mut copied);
            // The network may have taken the copy.
            self.is_copy_in_flight = self.is_buffer_in_flight;
            self.copied = copied;
            let len = ready!(sent)?;
            self.copied.advance(len);
        }
        Poll::Ready(Ok(()))
    }

    fn clear_ready(&self, direction: SocketHalf, events: u32, is_certain: bool) {
        self.registration
            .sources
            .clear_ready(self.registration.id, direction, events, is_certain);
    }

    /// Handles `WouldBlock` and interruptions; returns all other errors.
    fn check_error(&self, direction: SocketHalf, events: u32, error: io::Error) -> io::Result<()> {
        match error.kind() {
            io::ErrorKind::WouldBlock => self.clear_ready(direction, events, true),
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
        read_buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let len = ready!(
            self.get_mut()
                .poll_recv(context, read_buf.initialize_unfilled())
        )?;
        read_buf.advance(len);
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
        // Copied bytes already count as written, so they must precede the half-close.
        ready!(this.poll_drain(context))?;
        Poll::Ready(this.socket.finish())
    }
}
