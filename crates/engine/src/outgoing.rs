//! Connections to other servers, in the epoll of a worker: readiness is kept as flags, and who
//! waits for it is woken. Reading and writing are tried first.
//!
//! A socket is registered once, for bytes that come. A unix socket is registered for room only when
//! it was full once: its peer would wake us for each message that it takes. The traits are tokio's;
//! no runtime is needed, and any executor may poll. What the bytes mean is not known here.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrUnix,
    SocketFlags, SocketType, sockopt,
};
use slab::Slab;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What tells these sockets' events from those of connections.
pub(crate) const MARK: u64 = 1 << 63;

/// Sockets in one worker's epoll. Clones lead to the same.
#[derive(Clone)]
pub struct Sources(Arc<Registry>);

struct Registry {
    /// None in a world without sockets.
    epoll: Option<Arc<OwnedFd>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    slots: Slab<Source>,
    generation: u32,
}

/// Names one socket; slot and generation, so that news of a closed one cannot reach its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceId {
    slot: u32,
    generation: u32,
}

impl SourceId {
    fn data(self) -> EventData {
        EventData::new_u64(MARK | u64::from(self.generation) << 32 | u64::from(self.slot))
    }
}

/// What happened at a socket.
#[derive(Clone, Copy, Debug)]
pub struct News {
    id: SourceId,
    readable: bool,
    writable: bool,
    ended: bool,
}

impl News {
    /// What an event of epoll says.
    pub(crate) fn of(data: u64, flags: EventFlags) -> News {
        let ended = flags.intersects(EventFlags::RDHUP | EventFlags::ERR | EventFlags::HUP);
        News {
            id: SourceId {
                slot: data as u32,
                generation: ((data & !MARK) >> 32) as u32,
            },
            readable: ended || flags.contains(EventFlags::IN),
            writable: flags.intersects(EventFlags::OUT | EventFlags::ERR | EventFlags::HUP),
            ended,
        }
    }
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
struct Side {
    ready: bool,
    /// How often there was news: who found nothing takes that for the truth only if there was none
    /// meanwhile.
    news: u32,
    waiting: Option<Waker>,
}

impl Side {
    fn new(ready: bool) -> Side {
        Side {
            ready,
            news: 0,
            waiting: None,
        }
    }

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
    /// Those of an epoll.
    pub(crate) fn new(epoll: Arc<OwnedFd>) -> Sources {
        Sources::with(Some(epoll))
    }

    /// Of a world without sockets: none can be made.
    pub fn none() -> Sources {
        Sources::with(None)
    }

    fn with(epoll: Option<Arc<OwnedFd>>) -> Sources {
        Sources(Arc::new(Registry {
            epoll,
            state: Mutex::default(),
        }))
    }

    /// Takes news, and wakes who waits for it.
    pub fn happened(&self, news: News) {
        let mut state = self.lock();
        let Some(source) = state.find(news.id) else {
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
        drop(state);
        reader.into_iter().chain(writer).for_each(Waker::wake);
    }

    fn add(&self, socket: &OwnedFd, rest: Source, flags: EventFlags) -> io::Result<SourceId> {
        let epoll = self.epoll()?;
        let mut state = self.lock();
        state.generation = (state.generation + 1) & (u32::MAX >> 1);
        let generation = state.generation;
        let slot = state.slots.insert(Source { generation, ..rest }) as u32;
        drop(state);
        let id = SourceId { slot, generation };
        if let Err(error) = epoll::add(epoll, socket, id.data(), flags) {
            self.remove(id);
            return Err(error.into());
        }
        Ok(id)
    }

    fn remove(&self, id: SourceId) -> Option<Source> {
        let mut state = self.lock();
        state.find(id)?;
        Some(state.slots.remove(id.slot as usize))
    }

    fn epoll(&self) -> io::Result<&OwnedFd> {
        let epoll = self.0.epoll.as_deref();
        epoll.ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    fn poll(&self, id: SourceId, way: Way, context: &mut Context<'_>) -> Poll<u32> {
        let mut state = self.lock();
        let source = state.find(id).expect("it is there while its socket is");
        source.side(way).poll(context)
    }

    /// Nothing was left, though `news` said otherwise; `surely` = the system said so.
    fn exhausted(&self, id: SourceId, way: Way, news: u32, surely: bool) {
        let mut state = self.lock();
        let source = state.find(id).expect("it is there while its socket is");
        if surely || !source.ended {
            source.side(way).exhausted(news);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn find(&mut self, id: SourceId) -> Option<&mut Source> {
        let source = self.slots.get_mut(id.slot as usize)?;
        (source.generation == id.generation).then_some(source)
    }
}

/// A connection to another server. Dropped, it is closed.
pub struct Outgoing {
    socket: OwnedFd,
    sources: Sources,
    id: SourceId,
    /// News of room are asked for.
    hears_of_room: bool,
}

/// Where a connection leads.
#[derive(Clone, Copy, Debug)]
pub enum Remote<'a> {
    /// To a unix socket.
    Unix(&'a Path),
    /// To a host and port.
    Tcp(SocketAddr),
}

impl Outgoing {
    /// Connects. What is written goes out at once, in pieces as it is given.
    ///
    /// # Errors
    /// What the system says; `WouldBlock` where a unix socket's queue is full.
    pub async fn connect(sources: &Sources, to: Remote<'_>) -> io::Result<Outgoing> {
        match to {
            Remote::Unix(path) => {
                let socket = socket(AddressFamily::UNIX)?;
                rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
                Outgoing::register(sources, socket, true)
            }
            Remote::Tcp(address) => {
                let family = match address {
                    SocketAddr::V4(_) => AddressFamily::INET,
                    SocketAddr::V6(_) => AddressFamily::INET6,
                };
                let socket = socket(family)?;
                sockopt::set_tcp_nodelay(&socket, true)?;
                match rustix::net::connect(&socket, &address) {
                    Ok(()) | Err(Errno::INPROGRESS) => {}
                    Err(error) => return Err(error.into()),
                }
                let outgoing = Outgoing::register(sources, socket, false)?;
                outgoing.connected().await
            }
        }
    }

    /// A TCP socket tells of room only after it was full, so it can be asked for from the start.
    fn register(sources: &Sources, socket: OwnedFd, connected: bool) -> io::Result<Outgoing> {
        let rest = Source {
            generation: 0,
            reading: Side::new(false),
            writing: Side::new(connected),
            ended: false,
        };
        let hears_of_room = !connected;
        let id = sources.add(&socket, rest, flags(hears_of_room))?;
        Ok(Outgoing {
            socket,
            sources: sources.clone(),
            id,
            hears_of_room,
        })
    }

    async fn connected(self) -> io::Result<Outgoing> {
        poll_fn(|context| self.sources.poll(self.id, Way::Out, context)).await;
        sockopt::socket_error(&self.socket)??;
        Ok(self)
    }

    /// Lets another worker hear of it from now on.
    ///
    /// # Errors
    /// What the system says; the connection is of no use then.
    pub fn move_to(&mut self, sources: &Sources) -> io::Result<()> {
        if Arc::ptr_eq(&sources.0, &self.sources.0) {
            return Ok(());
        }
        epoll::delete(self.sources.epoll()?, &self.socket)?;
        let source = self.sources.remove(self.id);
        let source = source.expect("it is there while its socket is");
        // Whatever there is, it is reported anew.
        self.id = sources.add(&self.socket, source, flags(self.hears_of_room))?;
        self.sources = sources.clone();
        Ok(())
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
        loop {
            let news = ready!(self.sources.poll(self.id, Way::In, context));
            match rustix::net::recv(&self.socket, &mut *into, RecvFlags::empty()) {
                Ok((_, len)) => {
                    // Less than there was room for is all that there was, for what comes is told;
                    // but not the end, if that was told before.
                    if len < into.len() && len > 0 {
                        self.sources.exhausted(self.id, Way::In, news, false);
                    }
                    return Poll::Ready(Ok(len));
                }
                Err(Errno::AGAIN) => self.sources.exhausted(self.id, Way::In, news, true),
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    /// Writes some of these.
    ///
    /// # Errors
    /// What the system says.
    pub fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            let news = ready!(self.sources.poll(self.id, Way::Out, context));
            let sent = match pieces {
                [piece] => rustix::net::send(&self.socket, piece, SendFlags::NOSIGNAL),
                _ => {
                    let mut no_control = SendAncillaryBuffer::default();
                    let flags = SendFlags::NOSIGNAL;
                    rustix::net::sendmsg(&self.socket, pieces, &mut no_control, flags)
                }
            };
            match sent {
                Ok(len) => return Poll::Ready(Ok(len)),
                Err(Errno::AGAIN) => {
                    self.sources.exhausted(self.id, Way::Out, news, true);
                    self.hear_of_room()?;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    fn hear_of_room(&mut self) -> io::Result<()> {
        if !self.hears_of_room {
            let epoll = self.sources.epoll()?;
            epoll::modify(epoll, &self.socket, self.id.data(), flags(true))?;
            self.hears_of_room = true;
        }
        Ok(())
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        // Its place in the epoll goes with the socket.
        drop(self.sources.remove(self.id));
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

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(rustix::net::shutdown(&self.socket, Shutdown::Write).map_err(io::Error::from))
    }
}

fn socket(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(family, SocketType::STREAM, flags, None)
}

fn flags(room: bool) -> EventFlags {
    let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
    if room { flags | EventFlags::OUT } else { flags }
}
