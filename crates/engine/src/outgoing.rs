//! Connections to other servers, as tasks have them: what a driver's [`Network`] tells is kept as
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

use crate::buffer::Buffer;
use crate::driver::GENERATION_MAX;
use crate::network::{Network, NoNetwork, Socket, Taken};

pub use crate::network::{News, Reception, Remote, SourceId};

/// One worker's sockets to elsewhere. Clones lead to the same.
#[derive(Clone)]
pub struct Sources(Arc<Registry>);

struct Registry {
    network: Box<dyn Network>,
    table: Mutex<SourceTable>,
}

#[derive(Default)]
struct SourceTable {
    slots: Slab<Source>,
    generation: u32,
}

/// What is known of a socket.
struct Source {
    generation: u32,
    reading: Side,
    writing: Side,
    /// The other side has said its last byte: that is read without further news.
    ended: bool,
}

/// One direction of a socket.
#[derive(Default)]
struct Side {
    ready: bool,
    /// How often there was news: who found nothing takes that for the truth only if there was none
    /// meanwhile.
    news: u32,
    waiting: Option<Waker>,
}

impl Side {
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
enum Way {
    In,
    Out,
}

impl Source {
    fn side(&mut self, way: Way) -> &mut Side {
        match way {
            Way::In => &mut self.reading,
            Way::Out => &mut self.writing,
        }
    }
}

impl Sources {
    /// Those of a driver with this network.
    pub fn new(network: impl Network + 'static) -> Sources {
        Sources(Arc::new(Registry {
            network: Box::new(network),
            table: Mutex::default(),
        }))
    }

    /// Of a world without sockets: none can be made.
    pub fn none() -> Sources {
        Sources::new(NoNetwork)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.lock().slots.len()
    }

    /// Takes news, and wakes who waits for it.
    pub fn happened(&self, news: News) {
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

    fn add(&self, rest: Source) -> SourceId {
        let mut table = self.lock();
        table.generation = (table.generation + 1) & GENERATION_MAX;
        let generation = table.generation;
        let slot = table.slots.insert(Source { generation, ..rest }) as u32;
        SourceId { slot, generation }
    }

    fn remove(&self, id: SourceId) -> Option<Source> {
        let mut table = self.lock();
        table.find(id)?;
        Some(table.slots.remove(id.slot as usize))
    }

    fn set_ready(&self, id: SourceId, way: Way) {
        let mut table = self.lock();
        let source = table.find(id).expect("it is there while its socket is");
        source.side(way).ready = true;
    }

    fn poll(&self, id: SourceId, way: Way, context: &mut Context<'_>) -> Poll<u32> {
        let mut table = self.lock();
        let source = table.find(id).expect("it is there while its socket is");
        source.side(way).poll(context)
    }

    /// Nothing was left, though `news` said otherwise; `surely` = the system said so.
    fn exhausted(&self, id: SourceId, way: Way, news: u32, surely: bool) {
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
    fn find(&mut self, id: SourceId) -> Option<&mut Source> {
        let source = self.slots.get_mut(id.slot as usize)?;
        (source.generation == id.generation).then_some(source)
    }
}

/// A connection to another server. Dropped, it is closed.
pub struct Outgoing {
    socket: Box<dyn Socket>,
    registration: Registration,
    /// The network has a buffer of ours.
    is_lent: bool,
    /// It is `copied`.
    is_lent_copy: bool,
    /// Bytes that were copied, since they are not ours to keep, and have not left.
    copied: Buffer,
}

/// Bytes of others that are copied at a time, where they have to be.
const COPIED_LEN_MAX: usize = 64 * 1024;

/// A socket in a worker's table; given back when it is dropped.
struct Registration {
    sources: Sources,
    id: SourceId,
}

impl Registration {
    fn new(sources: &Sources, rest: Source) -> Registration {
        Registration {
            id: sources.add(rest),
            sources: sources.clone(),
        }
    }

    fn poll(&self, way: Way, context: &mut Context<'_>) -> Poll<u32> {
        self.sources.poll(self.id, way, context)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        drop(self.sources.remove(self.id));
    }
}

impl Outgoing {
    /// Connects. What is written goes out at once, in pieces as it is given.
    ///
    /// # Errors
    /// What the system says; `WouldBlock` where a unix socket's queue is full.
    pub async fn connect(sources: &Sources, to: Remote<'_>) -> io::Result<Outgoing> {
        // It is there before the first news can be.
        let rest = Source {
            generation: 0,
            reading: Side::default(),
            writing: Side::default(),
            ended: false,
        };
        let registration = Registration::new(sources, rest);
        let connecting = sources.0.network.connect(to, registration.id)?;
        let mut socket = connecting.socket;
        if connecting.connected {
            sources.set_ready(registration.id, Way::Out);
        } else {
            poll_fn(|context| registration.poll(Way::Out, context)).await;
            socket.connected()?;
        }
        Ok(Outgoing {
            socket,
            registration,
            is_lent: false,
            is_lent_copy: false,
            copied: Buffer::default(),
        })
    }

    /// Lets another worker hear of it from now on.
    ///
    /// # Errors
    /// What the system says; the connection is of no use then.
    pub fn move_to(&mut self, sources: &Sources) -> io::Result<()> {
        let old = &self.registration;
        if Arc::ptr_eq(&sources.0, &old.sources.0) {
            return Ok(());
        }
        let source = old.sources.remove(old.id);
        // Whatever there is, it is reported anew.
        let source = source.expect("it is there while its socket is");
        self.registration = Registration::new(sources, source);
        let id = self.registration.id;
        sources.0.network.adopt(&mut *self.socket, id)
    }

    /// Whom to ask whether what was sent has been read; `None` where nobody knows. To be dropped before the connection is.
    pub fn reception(&self) -> Option<Reception> {
        self.socket.reception()
    }

    /// Whether there was no news of anything to read since all of it was read.
    pub fn heard_nothing(&self) -> bool {
        let Registration { sources, id } = &self.registration;
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
            let news = ready!(self.registration.poll(Way::In, context));
            match self.socket.receive(into) {
                Ok(len) => {
                    // Less than there was room for is all that there was, for what comes is told;
                    // but not the end, if that was told before.
                    if len < into.len() && len > 0 {
                        self.exhausted(Way::In, news, false);
                    }
                    return Poll::Ready(Ok(len));
                }
                Err(error) => self.failed(Way::In, news, error)?,
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
        buffer: &mut Buffer,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_drain(context))?;
        self.poll_buffer(context, buffer)
    }

    fn poll_buffer(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut Buffer,
    ) -> Poll<io::Result<usize>> {
        loop {
            let news = ready!(self.registration.poll(Way::Out, context));
            if self.is_lent {
                match self.socket.sent() {
                    None => self.exhausted(Way::Out, news, true),
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
                Ok(Taken::Bytes(len)) => return Poll::Ready(Ok(len)),
                Ok(Taken::Underway) => {
                    self.is_lent = true;
                    self.exhausted(Way::Out, news, true);
                }
                Err(error) => self.failed(Way::Out, news, error)?,
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
            let news = ready!(self.registration.poll(Way::Out, context));
            match self.socket.send_at_once(pieces) {
                Ok(Some(len)) => return Poll::Ready(Ok(len)),
                Ok(None) => break,
                Err(error) => self.failed(Way::Out, news, error)?,
            }
        }
        let mut bytes = Vec::new();
        for piece in pieces {
            let room = COPIED_LEN_MAX - bytes.len();
            bytes.extend_from_slice(&piece[..piece.len().min(room)]);
        }
        let len = bytes.len();
        self.copied = Buffer::Vec(bytes);
        match self.poll_drain(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(len)),
        }
    }

    /// Ready when what was copied has left; mostly nothing ever was.
    #[inline]
    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.copied {
            Buffer::Vec(bytes) if bytes.is_empty() && !self.is_lent_copy => Poll::Ready(Ok(())),
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

    fn exhausted(&self, way: Way, news: u32, surely: bool) {
        self.registration
            .sources
            .exhausted(self.registration.id, way, news, surely);
    }

    /// Whether an error only says that there is nothing now, or that a call was interrupted.
    fn failed(&self, way: Way, news: u32, error: io::Error) -> io::Result<()> {
        match error.kind() {
            io::ErrorKind::WouldBlock => self.exhausted(way, news, true),
            io::ErrorKind::Interrupted => {}
            _ => return Err(error),
        }
        Ok(())
    }
}

impl AsyncRead for Outgoing {
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

impl AsyncWrite for Outgoing {
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
