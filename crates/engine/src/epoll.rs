//! The driver for Linux, on epoll(7): edge-triggered, with one registration per connection.
//!
//! One registration reports a connection readable and writable, and is never changed (epoll_ctl costs more than it
//! saves: Gammo et al., OLS 2004). Listeners are level-triggered, so a limit on accepts per turn loses no connection.
//! Upstream connections are in `network`, datagram sockets in `datagrams`, the timeout of a wait in `wait_timer`.

mod datagrams;
mod network;
mod wait_timer;

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{SendAncillaryBuffer, SendFlags, Shutdown};
use rustix::time::{ClockId, clock_gettime};

use crate::buffer::SendBuffer;
use crate::datagram_relay::{ProcessWorker, RelayOutcome};
use crate::datagram_socket::PortSockets;
use crate::datagrams::{DatagramBatch, DatagramDrops, DatagramTrain};
use crate::driver::{
    AcceptFailure, AcceptedSocket, ConnectionToken, DatagramSocketId, DriverEvent, IoDriver,
    ListenerId, ReceiveOutcome, SendOutcome,
};
use crate::event_count::EventCount;
use crate::file::{self, FileSent, OpenFile};
use crate::helper_pool::HelperPool;
use crate::kernel_tls;
use crate::listener::ListenSocket;
use crate::system_calls;
use crate::upstream_socket::UpstreamSockets;
use crate::worker_handle::WorkerHandle;

use self::datagrams::{DATAGRAMS, EpollDatagrams};
use self::network::{EpollNetwork, MARK, socket_event};
use self::wait_timer::{WaitTimer, WakeTimer, timespec};

/// Maximum number of events per `epoll_wait`.
const EVENTS_MAX: usize = 256;
/// Length of the receive buffer. Heads are far smaller. If a receive fills the buffer, there may be more to read.
const RECV_BUFFER_LEN: usize = 32 * 1024;
/// Event data of the driver's own descriptors. The upper half is the generation, which is 0 here and never for a
/// connection; its highest bit, which no generation has, marks upstream sockets.
const WAKE: u64 = 0;
const TIMER: u64 = 1;
const WAKE_TIMER: u64 = 2;
const LISTENER: u64 = 1 << 31; // in the slot's half; the generation's half is 0

/// epoll, sockets and clocks of one worker.
pub struct EpollDriver {
    epoll: Arc<OwnedFd>,
    listeners: Vec<Option<ListenSocket>>,
    /// The datagram sockets; boxed, as most workers have none.
    datagrams: Option<Box<DatagramIo>>,
    waker: Arc<EventFd>,
    timer: WaitTimer,
    local: WorkerHandle,
    transfers: Arc<Mutex<Vec<(ConnectionToken, FileSent)>>>,
    helpers: HelperPool,
    /// The receive buffer; empty while it is in use.
    receive_buffer: Box<[u8]>,
    now_ms: u64,
}

/// The datagram sockets, and the timer of their protocols.
struct DatagramIo {
    sockets: EpollDatagrams,
    timer: WakeTimer,
}

/// Received bytes in the driver's only buffer.
pub struct RecvBuffer {
    buffer: Box<[u8]>,
    len: usize,
}

impl AsRef<[u8]> for RecvBuffer {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

impl EpollDriver {
    /// A driver without listeners.
    ///
    /// # Errors
    /// File descriptors ran out.
    pub fn new(helpers: HelperPool) -> io::Result<EpollDriver> {
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let waker = Arc::new(EventFd(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?));
        epoll::add(
            &epoll,
            &waker.0,
            EventData::new_u64(WAKE),
            EventFlags::IN | EventFlags::ET,
        )?;
        let timer = WaitTimer::new()?;
        epoll::add(
            &epoll,
            &timer,
            EventData::new_u64(TIMER),
            EventFlags::IN | EventFlags::ET,
        )?;
        let unpark = waker.clone();
        let event_count = EventCount::new(move || unpark.wake());
        let sources = UpstreamSockets::new(EpollNetwork(epoll.clone()));
        let now_ms = monotonic_ms();
        Ok(EpollDriver {
            local: WorkerHandle::new(event_count, sources, helpers.clone(), now_ms),
            epoll,
            listeners: Vec::new(),
            datagrams: None,
            waker,
            timer,
            transfers: Arc::default(),
            helpers,
            receive_buffer: Box::default(),
            now_ms,
        })
    }

    fn watch(&self, id: ListenerId) -> io::Result<()> {
        let Some(Some(listener)) = self.listeners.get(usize::from(id.0)) else {
            return Ok(());
        };
        // Without EPOLLEXCLUSIVE each connection would wake all workers that share the socket (epoll_ctl(2)).
        let exclusive = if listener.shared {
            EventFlags::EXCLUSIVE
        } else {
            EventFlags::empty()
        };
        // The registration is level-triggered, so connections beyond the limit of a turn are reported again.
        let data = EventData::new_u64(LISTENER | u64::from(id.0));
        Ok(epoll::add(
            &self.epoll,
            &listener.socket,
            data,
            EventFlags::IN | exclusive,
        )?)
    }

    /// Handles an event of the driver's own descriptors: timers, notifications, listeners and datagram sockets.
    fn handle_own_event(&mut self, data: u64, flags: EventFlags, events: &mut Vec<DriverEvent>) {
        match data {
            TIMER => self.timer.clear_fired(),
            WAKE => {
                // Cleared before the results are taken: a helper that adds a result later wakes the worker again.
                self.waker.clear();
                let mut transfers = self
                    .transfers
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                events.extend(
                    transfers
                        .drain(..)
                        .map(|(token, sent)| DriverEvent::File(token, sent)),
                );
            }
            data if data & !0xffff == LISTENER => {
                events.push(DriverEvent::Acceptable(ListenerId((data & 0xffff) as u16)));
            }
            data => self.handle_datagram_event(data, flags, events),
        }
    }

    #[cold]
    fn handle_datagram_event(
        &mut self,
        data: u64,
        flags: EventFlags,
        events: &mut Vec<DriverEvent>,
    ) {
        let Some(io) = &mut self.datagrams else {
            return;
        };
        match data {
            WAKE_TIMER => io.timer.clear_fired(),
            data if data & !0xffff == DATAGRAMS => {
                io.sockets.report(&self.epoll, data, flags, events);
            }
            _ => {}
        }
    }

    /// The datagram sockets, created with the first of them, so that other workers need no second timer.
    fn datagram_io(&mut self) -> io::Result<&mut DatagramIo> {
        if self.datagrams.is_none() {
            let timer = WakeTimer::new()?;
            let flags = EventFlags::IN | EventFlags::ET;
            epoll::add(&self.epoll, &timer, EventData::new_u64(WAKE_TIMER), flags)?;
            let sockets = EpollDatagrams::new();
            self.datagrams = Some(Box::new(DatagramIo { sockets, timer }));
        }
        self.datagrams
            .as_deref_mut()
            .ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// Runs `work` on a helper thread; its result becomes an event of the connection.
    fn start_transfer(
        &self,
        token: ConnectionToken,
        work: impl FnOnce() -> file::FileSent + Send + 'static,
    ) -> io::Result<()> {
        // The event is pushed even if the work panics: the connection waits for it.
        let (transfers, waker) = (self.transfers.clone(), self.waker.clone());
        let job = move || {
            let mut outcome = file::FileSent::Failed;
            crate::panic_policy::contain(|| outcome = work());
            transfers
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push((token, outcome));
            // After the push, so that the woken worker finds the result.
            waker.wake();
        };
        self.helpers
            .submit(job)
            .map_err(|_| io::ErrorKind::WouldBlock.into())
    }
}

fn translate(data: u64, flags: EventFlags) -> DriverEvent {
    if data & MARK != 0 {
        return DriverEvent::UpstreamReady(socket_event(data, flags));
    }
    let token = ConnectionToken {
        slot: data as u32,
        // `register` puts the generation into the upper half.
        generation: (data >> 32) as u32,
    };
    DriverEvent::Ready {
        token,
        readable: flags.contains(EventFlags::IN),
        writable: flags.contains(EventFlags::OUT),
        ended: flags.contains(EventFlags::RDHUP),
        broken: flags.intersects(EventFlags::ERR | EventFlags::HUP),
    }
}

impl IoDriver for EpollDriver {
    type Socket = OwnedFd;
    type RecvBuffer = RecvBuffer;
    type Listener = ListenSocket;
    type Datagrams = PortSockets;

    fn wait(&mut self, timeout_ms: Option<u64>, events: &mut Vec<DriverEvent>) {
        if let Some(io) = &mut self.datagrams {
            io.timer.arm();
        }
        // The wait is announced before the timers are read: from then on a timer or notification of another thread ends
        // the wait.
        let may_park = self.local.event_count.prepare();
        let timeout_ms = match may_park {
            true => self.local.timers.bound_wait(timeout_ms),
            false => Some(0),
        };
        let timeout = match timeout_ms {
            // The armed timer ends the wait, so that the kernel need not set up a timeout.
            Some(ms @ 1..) if self.timer.set(self.now_ms, ms) => None,
            other => other.map(timespec),
        };
        let mut buffer = [MaybeUninit::uninit(); EVENTS_MAX];
        let waited = epoll::wait(&self.epoll, &mut buffer, timeout.as_ref());
        // The time is read before `resume`, so that other threads never see the worker awake with an old time.
        self.now_ms = monotonic_ms();
        self.local.resume(self.now_ms);
        // If a signal interrupted the wait, the caller checks its timers and waits again.
        let Ok((ready, _)) = waited else { return };
        for event in &*ready {
            let (data, flags) = (event.data.u64(), event.flags);
            // Generation 0 marks events of the driver's own descriptors.
            if data >> 32 == 0 {
                self.handle_own_event(data, flags, events);
                continue;
            }
            events.push(translate(data, flags));
        }
    }

    fn now_ms(&self) -> u64 {
        self.now_ms
    }

    fn now_us(&self) -> u64 {
        monotonic_us()
    }

    fn wake_at(&mut self, at_us: Option<u64>) {
        if let Some(io) = &mut self.datagrams {
            io.timer.set(at_us);
        }
    }

    fn unix_ms(&self) -> u64 {
        system_calls::unix_ms()
    }

    fn open_listener(&mut self, id: ListenerId, listener: ListenSocket) -> io::Result<()> {
        let index = usize::from(id.0);
        if self.listeners.len() <= index {
            self.listeners.resize_with(index + 1, || None);
        }
        self.listeners[index] = Some(listener);
        self.watch(id)
    }

    fn accept(&mut self, listener: ListenerId) -> Result<AcceptedSocket<OwnedFd>, AcceptFailure> {
        let Some(Some(listener)) = self.listeners.get(usize::from(listener.0)) else {
            return Err(AcceptFailure::Empty);
        };
        match listener.accept() {
            Ok((socket, peer)) => {
                let (peer, peer_port) = peer_of(peer);
                Ok(AcceptedSocket {
                    socket,
                    peer,
                    peer_port,
                })
            }
            Err(Errno::AGAIN) => Err(AcceptFailure::Empty),
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                Err(AcceptFailure::Exhausted)
            }
            // Another process that shares the socket has shut it down: accepting is retried after a pause.
            Err(Errno::INVAL | Errno::BADF | Errno::NOTSOCK) => Err(AcceptFailure::Exhausted),
            // accept(2) also returns errors that are pending on the new connection.
            Err(_) => Err(AcceptFailure::Gone),
        }
    }

    fn listen(&mut self, id: ListenerId, on: bool) {
        if let Some(Some(listener)) = self.listeners.get(usize::from(id.0)) {
            // The registration is removed and added again, as a registration with EPOLLEXCLUSIVE can't be modified.
            let _ = epoll::delete(&self.epoll, &listener.socket);
        }
        if on {
            let _ = self.watch(id);
        }
    }

    fn refuse_handshakes(&mut self, listener: ListenerId) {
        if let Some(Some(listener)) = self.listeners.get_mut(usize::from(listener.0)) {
            listener.refuse_handshakes();
        }
    }

    fn suspend_listener(&mut self, listener: ListenerId) {
        if let Some(Some(listener)) = self.listeners.get_mut(usize::from(listener.0)) {
            // A socket that doesn't listen would report a hang-up again and again.
            let _ = epoll::delete(&self.epoll, &listener.socket);
            listener.suspend();
        }
    }

    fn resume_listener(&mut self, id: ListenerId) -> io::Result<()> {
        let Some(Some(listener)) = self.listeners.get_mut(usize::from(id.0)) else {
            return Ok(());
        };
        listener.resume()?;
        // It is still registered if it was opened after the others had been suspended.
        let _ = epoll::delete(&self.epoll, &listener.socket);
        self.watch(id)
    }

    fn share_listener(&self, listener: ListenerId) -> io::Result<ListenSocket> {
        match self.listeners.get(usize::from(listener.0)) {
            Some(Some(listener)) => listener.share(),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn close_listener(&mut self, listener: ListenerId) {
        let slot = self.listeners.get_mut(usize::from(listener.0));
        if let Some(listener) = slot.and_then(Option::take) {
            // Closing this descriptor does not end the registration while a supervisor or another worker has a
            // duplicate (epoll(7)).
            let _ = epoll::delete(&self.epoll, &listener.socket);
        }
    }

    fn register(&mut self, socket: &OwnedFd, token: ConnectionToken) -> io::Result<()> {
        let data = u64::from(token.generation) << 32 | u64::from(token.slot);
        // EPOLLOUT is set from the start, which saves an epoll_ctl(2) each time the socket is full.
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(
            &self.epoll,
            socket,
            EventData::new_u64(data),
            flags,
        )?)
    }

    fn receive(&mut self, socket: &OwnedFd, _: ConnectionToken) -> ReceiveOutcome<RecvBuffer> {
        if self.receive_buffer.is_empty() {
            // The buffer is allocated with the first receive: a driver without connections needs none.
            self.receive_buffer = vec![0; RECV_BUFFER_LEN].into();
        }
        match rustix::net::recv(
            socket,
            &mut *self.receive_buffer,
            rustix::net::RecvFlags::empty(),
        ) {
            Ok((_, 0)) => ReceiveOutcome::End,
            Ok((_, len)) => ReceiveOutcome::Bytes {
                buffer: RecvBuffer {
                    buffer: std::mem::take(&mut self.receive_buffer),
                    len,
                },
                // A short read has emptied the socket: edge-triggered epoll reports later bytes.
                more: len == RECV_BUFFER_LEN,
            },
            Err(Errno::AGAIN | Errno::INTR) => ReceiveOutcome::Empty,
            Err(_) => ReceiveOutcome::Broken,
        }
    }

    fn return_buffer(&mut self, returned: RecvBuffer) {
        self.receive_buffer = returned.buffer;
    }

    fn send(
        &mut self,
        socket: &OwnedFd,
        _: ConnectionToken,
        buffer: &mut SendBuffer,
        more: bool,
    ) -> SendOutcome {
        // NOSIGNAL: a closed connection is reported by EPIPE, not SIGPIPE. MORE: TCP waits to fill a segment.
        let flags = match more {
            true => SendFlags::NOSIGNAL | SendFlags::MORE,
            false => SendFlags::NOSIGNAL,
        };
        sent(match buffer {
            SendBuffer::Vec(bytes) => rustix::net::send(socket, bytes, flags),
            SendBuffer::Bytes(bytes) => rustix::net::send(socket, bytes, flags),
            // Long blocks consist of whole pages, which sendfile queues without a copy.
            SendBuffer::Block { block, range } => match block.pages() {
                Some((file, file_offset)) => {
                    let mut offset = file_offset + range.start as u64;
                    let sent_len =
                        rustix::fs::sendfile(socket, file, Some(&mut offset), range.len());
                    // A short write means that the socket is full (epoll(7)). Another sendfile would look up the pages
                    // before it fails.
                    if let Ok(len) = sent_len
                        && (1..range.len()).contains(&len)
                    {
                        return SendOutcome::Filled(len);
                    }
                    sent_len
                }
                None => rustix::net::send(socket, &block[range.clone()], flags),
            },
            // Only the head is sent here; sendfile sends the block's pages next.
            SendBuffer::Headed { head, block, .. } if block.pages().is_some() => {
                rustix::net::send(socket, head, flags | SendFlags::MORE)
            }
            SendBuffer::Headed { head, block, range } => {
                send_pieces(socket, [head, &block[range.clone()]], flags)
            }
            SendBuffer::Framed(framed) => send_pieces(socket, framed.pieces(), flags),
        })
    }

    fn start_file(
        &mut self,
        socket: &OwnedFd,
        token: ConnectionToken,
        file: &Arc<OpenFile>,
        range: Range<u64>,
    ) -> io::Result<()> {
        // The helper gets duplicates, as the connection may be closed while the transfer runs.
        let (socket, file) = (socket.try_clone()?, file.clone());
        self.start_transfer(token, move || file::send(&socket, &file, range))
    }

    fn start_read(
        &mut self,
        token: ConnectionToken,
        file: &Arc<OpenFile>,
        range: Range<u64>,
    ) -> io::Result<()> {
        let file = file.clone();
        self.start_transfer(token, move || file::read(&file, range))
    }

    fn enable_kernel_tls(&mut self, socket: &OwnedFd, keys: &[u8]) -> io::Result<()> {
        kernel_tls::enable_kernel_tls(socket, keys)
    }

    fn send_alert(&mut self, socket: &OwnedFd, alert: &[u8]) -> SendOutcome {
        kernel_tls::send_alert(socket, alert)
    }

    fn peer_user(&self, socket: &OwnedFd) -> Option<u32> {
        // For a TCP socket, the kernel returns the user -1.
        let credentials = rustix::net::sockopt::socket_peercred(socket).ok()?;
        let user = credentials.uid.as_raw();
        (user != u32::MAX).then_some(user)
    }

    fn unacknowledged(&self, socket: &OwnedFd) -> usize {
        system_calls::unread_len(socket)
    }

    fn finish(&mut self, socket: &OwnedFd) {
        // The call fails only if the connection is broken, which the next receive finds.
        let _ = rustix::net::shutdown(socket, Shutdown::Write);
    }

    fn close(&mut self, socket: OwnedFd) {
        drop(socket);
    }

    fn reset(&mut self, socket: OwnedFd) {
        // The close that follows then sends a reset (socket(7), SO_LINGER). The call fails only if the connection is
        // broken already.
        let _ = set_socket_linger(&socket, Some(Duration::ZERO));
    }

    fn open_datagrams(&mut self, id: DatagramSocketId, sockets: PortSockets) -> io::Result<()> {
        let epoll = self.epoll.clone();
        self.datagram_io()?.sockets.open(&epoll, id, sockets)
    }

    fn share_datagrams(&self, id: DatagramSocketId) -> io::Result<PortSockets> {
        let sockets = self.datagrams.as_ref().and_then(|io| io.sockets.get(id));
        sockets.map_or(Err(io::ErrorKind::NotFound.into()), PortSockets::share)
    }

    fn datagram_address(&self, id: DatagramSocketId) -> Option<SocketAddr> {
        let sockets = self.datagrams.as_ref()?.sockets.get(id)?;
        sockets.socket.address()
    }

    fn spreads_datagrams(&self, id: DatagramSocketId) -> bool {
        let sockets = self.datagrams.as_ref().and_then(|io| io.sockets.get(id));
        sockets.is_some_and(|sockets| sockets.is_spread)
    }

    fn relay_datagram(
        &self,
        id: DatagramSocketId,
        to: ProcessWorker,
        train: &DatagramTrain,
        datagram: &[u8],
    ) -> RelayOutcome {
        let sockets = self.datagrams.as_ref().and_then(|io| io.sockets.get(id));
        let relays = sockets.map_or(&[][..], |sockets| &sockets.relays);
        // There are few: one for each worker of processes that still drain.
        let mut relays = relays.iter();
        match relays.find(|relay| relay.to == to) {
            Some(relay) => relay.send(train, datagram),
            None => RelayOutcome::Ended,
        }
    }

    fn receive_from_relay(&mut self, id: DatagramSocketId, relay: OwnedFd) -> io::Result<()> {
        let epoll = self.epoll.clone();
        let io = self.datagram_io()?;
        io.sockets.receive_from_relay(&epoll, id, relay)
    }

    fn receive_datagrams(&mut self, id: DatagramSocketId, batch: &mut DatagramBatch) -> bool {
        match &mut self.datagrams {
            Some(io) => io.sockets.receive(id, batch),
            None => {
                batch.clear();
                false
            }
        }
    }

    fn send_datagrams(
        &mut self,
        id: DatagramSocketId,
        trains: &mut [DatagramTrain],
        bytes: &[u8],
    ) -> usize {
        match &mut self.datagrams {
            Some(io) => io.sockets.send(&self.epoll, id, trains, bytes),
            None => trains.len(),
        }
    }

    fn datagram_drops(&self, id: DatagramSocketId) -> DatagramDrops {
        let drops = self.datagrams.as_ref().map(|io| io.sockets.drops(id));
        drops.unwrap_or_default()
    }

    fn close_datagrams(&mut self, id: DatagramSocketId) {
        if let Some(io) = &mut self.datagrams {
            io.sockets.close(&self.epoll, id);
        }
    }

    fn worker_handle(&self) -> &WorkerHandle {
        &self.local
    }
}

struct EventFd(OwnedFd);

impl EventFd {
    fn clear(&self) {
        let mut count = [MaybeUninit::<u8>::uninit(); 8];
        let _ = rustix::io::read(&self.0, &mut count);
    }

    fn wake(&self) {
        // The write fails only if the counter is at its maximum; then the worker will wake anyway.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

fn send_pieces<const N: usize>(
    socket: &OwnedFd,
    pieces: [&[u8]; N],
    flags: SendFlags,
) -> rustix::io::Result<usize> {
    let slices = pieces.map(IoSlice::new);
    let mut no_control = SendAncillaryBuffer::default();
    rustix::net::sendmsg(socket, &slices, &mut no_control, flags)
}

fn sent(result: rustix::io::Result<usize>) -> SendOutcome {
    match result {
        Ok(0) => SendOutcome::Full,
        Ok(len) => SendOutcome::Bytes(len),
        // Lack of kernel memory is temporary, like a full socket.
        Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM) => SendOutcome::Full,
        Err(_) => SendOutcome::Broken,
    }
}

fn peer_of(address: Option<rustix::net::SocketAddrAny>) -> (IpAddr, u16) {
    let unknown = (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    let internet: Option<SocketAddr> =
        address.and_then(|socket_address| socket_address.try_into().ok());
    // An IPv4 client of an IPv6 socket has an IPv4-mapped address.
    internet.map_or(unknown, |address_and_port| {
        (
            address_and_port.ip().to_canonical(),
            address_and_port.port(),
        )
    })
}

fn monotonic_ms() -> u64 {
    // The coarse clock needs no read of the hardware's counter; its resolution is the kernel's tick.
    let time = clock_gettime(ClockId::MonotonicCoarse);
    (time.tv_sec as u64) * 1000 + (time.tv_nsec as u64) / 1_000_000
}

fn monotonic_us() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    (time.tv_sec as u64) * 1_000_000 + (time.tv_nsec as u64) / 1000
}

#[cfg(test)]
mod tests;
