//! Datagram sockets on epoll, level-triggered: always registered for EPOLLIN, and for EPOLLOUT only while a socket is
//! full. A socket that another process receives from is registered for nothing else.
//!
//! If EPOLLOUT were always registered, each datagram that leaves a UDP socket would end a wait.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use crate::datagram_relay::decode;
use crate::datagram_socket::{DatagramSocket, PortSockets};
use crate::datagrams::{
    DatagramBatch, DatagramDrops, DatagramTrain, Ecn, SEGMENTS_MAX, TRAIN_LEN_MAX, TRAINS_MAX,
};
use crate::driver::{DatagramSocketId, DriverEvent};
use crate::system_calls::datagrams::{
    MESSAGES_MAX, MessageScratch, OutgoingMessage, ReceivedMessage,
};
use crate::system_calls::datagrams::{receive_messages, send_messages};

/// Marks the event data of datagram sockets; the low 16 bits are the socket's number.
pub const DATAGRAMS: u64 = 1 << 30;
/// Maximum length of a message to the kernel: 65,535 bytes less the IP and UDP headers.
const MESSAGE_LEN_MAX: usize = 65_507;
/// Maximum number of socket errors that one receive skips. Each error belongs to an earlier datagram, and reporting it
/// clears it.
const ERRORS_MAX: usize = 8;

const _: () = assert!(TRAINS_MAX <= MESSAGES_MAX);

/// The datagram sockets of one epoll instance.
pub struct EpollDatagrams {
    ports: Vec<Option<DatagramPort>>,
    scratch: Box<MessageScratch>,
}

/// The datagram sockets of an address and their registration.
struct DatagramPort {
    sockets: PortSockets,
    /// The relay that replaces the receiving sockets, after another process has taken over.
    relay: Option<OwnedFd>,
    /// The receiving socket that is next.
    next: usize,
    /// The socket was full, and is registered for EPOLLOUT.
    is_watching_room: bool,
    drops: DatagramDrops,
}

impl EpollDatagrams {
    /// An empty set of sockets.
    pub fn new() -> EpollDatagrams {
        EpollDatagrams {
            ports: Vec::new(),
            scratch: MessageScratch::new(),
        }
    }

    /// Starts to watch the sockets of an address.
    pub fn open(
        &mut self,
        epoll: &OwnedFd,
        id: DatagramSocketId,
        sockets: PortSockets,
    ) -> io::Result<()> {
        // The new sockets replace those with the same number.
        self.close(epoll, id);
        let flags = match sockets.is_receiving {
            true => EventFlags::IN,
            false => EventFlags::empty(),
        };
        epoll::add(epoll, &sockets.socket, data(id), flags)?;
        for socket in &sockets.others {
            epoll::add(epoll, socket, data(id), EventFlags::IN)?;
        }
        let index = usize::from(id.0);
        if self.ports.len() <= index {
            self.ports.resize_with(index + 1, || None);
        }
        self.ports[index] = Some(DatagramPort {
            sockets,
            relay: None,
            next: 0,
            is_watching_room: false,
            drops: DatagramDrops::default(),
        });
        Ok(())
    }

    /// Closes a socket, if there is one.
    pub fn close(&mut self, epoll: &OwnedFd, id: DatagramSocketId) {
        let slot = self.ports.get_mut(usize::from(id.0));
        if let Some(port) = slot.and_then(Option::take) {
            // Processes with relays have duplicates of the sockets, so that the sockets outlive their last receiver.
            let is_ours = !port.sockets.is_activated;
            if is_ours && port.relay.is_none() && !port.sockets.relays.is_empty() {
                for socket in port.sockets.receiving() {
                    // Otherwise it gets some of the datagrams of sockets that are opened later.
                    let _ = socket.leave_port();
                }
            }
            // Closing a descriptor does not end its registration while another process has a duplicate (epoll(7)).
            let _ = epoll::delete(epoll, &port.sockets.socket);
            for socket in &port.sockets.others {
                let _ = epoll::delete(epoll, socket);
            }
        }
    }

    /// The sockets of an address.
    pub fn get(&self, id: DatagramSocketId) -> Option<&PortSockets> {
        let port = self.ports.get(usize::from(id.0))?.as_ref();
        port.map(|port| &port.sockets)
    }

    /// See [`IoDriver::receive_from_relay`](crate::driver::IoDriver::receive_from_relay).
    pub fn receive_from_relay(
        &mut self,
        epoll: &OwnedFd,
        id: DatagramSocketId,
        relay: OwnedFd,
    ) -> io::Result<()> {
        let Some(port) = port_mut(&mut self.ports, id) else {
            return Ok(());
        };
        // First, since the other process receives as soon as this one has stopped.
        port.sockets.is_receiving = false;
        for socket in port.sockets.others.drain(..) {
            let _ = epoll::delete(epoll, &socket);
        }
        port.register(epoll, id);
        epoll::add(epoll, &relay, data(id), EventFlags::IN)?;
        port.relay = Some(relay);
        Ok(())
    }

    /// The losses of a socket.
    pub fn drops(&self, id: DatagramSocketId) -> DatagramDrops {
        let port = self.ports.get(usize::from(id.0)).and_then(Option::as_ref);
        port.map_or(DatagramDrops::default(), |port| port.drops)
    }

    /// Translates an epoll event of a socket.
    pub fn report(
        &mut self,
        epoll: &OwnedFd,
        data: u64,
        flags: EventFlags,
        events: &mut Vec<DriverEvent>,
    ) {
        let id = DatagramSocketId((data & 0xffff) as u16);
        // Receiving clears the socket's error.
        if flags.intersects(EventFlags::IN | EventFlags::ERR | EventFlags::HUP) {
            events.push(DriverEvent::Datagrams(id));
        }
        if !flags.contains(EventFlags::OUT) {
            return;
        }
        if let Some(port) = port_mut(&mut self.ports, id) {
            // While a socket is writable, the level-triggered EPOLLOUT would end each wait.
            port.watch_room(epoll, id, false);
            events.push(DriverEvent::Room(id));
        }
    }

    /// See [`IoDriver::receive_datagrams`](crate::driver::IoDriver::receive_datagrams).
    pub fn receive(&mut self, id: DatagramSocketId, batch: &mut DatagramBatch) -> bool {
        batch.clear();
        let Some(port) = port_mut(&mut self.ports, id) else {
            return false;
        };
        let sources = port.source_count();
        // Each receive reads one source, so that none waits for the others.
        for _ in 0..sources {
            let has_more = port.receive_next(&mut self.scratch, batch);
            if has_more || !batch.trains().is_empty() {
                return has_more || sources > 1;
            }
        }
        false
    }

    /// See [`IoDriver::send_datagrams`](crate::driver::IoDriver::send_datagrams).
    pub fn send(
        &mut self,
        epoll: &OwnedFd,
        id: DatagramSocketId,
        trains: &mut [DatagramTrain],
        bytes: &[u8],
    ) -> usize {
        let Some(port) = port_mut(&mut self.ports, id) else {
            return trains.len();
        };
        let sent_trains = port.send(&mut self.scratch, trains, bytes);
        if sent_trains < trains.len() {
            port.watch_room(epoll, id, true);
        }
        sent_trains
    }
}

fn port_mut(ports: &mut [Option<DatagramPort>], id: DatagramSocketId) -> Option<&mut DatagramPort> {
    ports.get_mut(usize::from(id.0))?.as_mut()
}

fn data(id: DatagramSocketId) -> EventData {
    EventData::new_u64(DATAGRAMS | u64::from(id.0))
}

impl DatagramPort {
    /// Adds or removes EPOLLOUT.
    fn watch_room(&mut self, epoll: &OwnedFd, id: DatagramSocketId, on: bool) {
        if self.is_watching_room == on {
            return;
        }
        self.is_watching_room = on;
        self.register(epoll, id);
    }

    /// Updates the registration of the sending socket. Can't fail for a registered socket.
    fn register(&self, epoll: &OwnedFd, id: DatagramSocketId) {
        // Without EPOLLIN, datagrams for the other process do not end waits of this one.
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, self.sockets.is_receiving);
        flags.set(EventFlags::OUT, self.is_watching_room);
        let _ = epoll::modify(epoll, &self.sockets.socket, data(id), flags);
    }

    /// The number of sockets and relays that receive.
    fn source_count(&self) -> usize {
        match &self.relay {
            Some(_) => 1,
            None => self.sockets.receiving().count(),
        }
    }

    /// Receives from the next source. True if there may be more there.
    fn receive_next(&mut self, scratch: &mut MessageScratch, batch: &mut DatagramBatch) -> bool {
        for _ in 0..ERRORS_MAX {
            let received = match &self.relay {
                Some(relay) => receive_relayed(relay, scratch, batch, &mut self.drops),
                None => {
                    let count = self.sockets.receiving().count().max(1);
                    let Some(socket) = self.sockets.receiving().nth(self.next % count) else {
                        return false;
                    };
                    receive(socket, scratch, batch, &mut self.drops)
                }
            };
            match received {
                Ok(count) => {
                    self.next = self.next.wrapping_add(1);
                    return count == TRAINS_MAX;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.next = self.next.wrapping_add(1);
                    return false;
                }
                Err(_) => {}
            }
        }
        true
    }

    fn send(
        &mut self,
        scratch: &mut MessageScratch,
        trains: &mut [DatagramTrain],
        bytes: &[u8],
    ) -> usize {
        let mut cursor = SendCursor::default();
        loop {
            let Some(chunk) = self.chunks(trains, &cursor).next() else {
                break;
            };
            let messages = self
                .chunks(trains, &cursor)
                .map(|chunk| chunk.message(trains, bytes));
            let socket = &self.sockets.socket;
            match send_messages(socket, socket.is_ipv6, scratch, messages) {
                Ok(sent) => {
                    let last = sent.checked_sub(1);
                    let last = last.and_then(|last| self.chunks(trains, &cursor).nth(last));
                    cursor.skip(trains, last.as_ref());
                }
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::AGAIN) => break,
                    // sendmmsg(2) fails only for the first message; errors of later ones are reported by the next call.
                    errno => self.pass_error(errno, &chunk, &mut cursor, trains),
                },
            }
        }
        cursor.train
    }

    /// Handles an error of the first message, other than a full socket: the message is repeated, its train is sent
    /// unsegmented, or it is counted as lost.
    fn pass_error(
        &mut self,
        errno: Option<Errno>,
        chunk: &SendChunk,
        cursor: &mut SendCursor,
        trains: &mut [DatagramTrain],
    ) {
        match errno {
            Some(Errno::INTR) => {}
            // The error of an ICMP message about an earlier datagram; the call has cleared it.
            Some(Errno::CONNREFUSED) if !cursor.is_repeated => cursor.is_repeated = true,
            // EIO: the device computes no checksums (before Linux 6.11), or the route uses IPsec. EINVAL and EMSGSIZE:
            // the datagrams are longer than the interface's MTU, though the last of the train may be shorter.
            Some(errno @ (Errno::IO | Errno::INVAL | Errno::MSGSIZE))
                if chunk.segment_len.is_some() =>
            {
                self.sockets.socket.has_segmentation &= errno != Errno::IO;
                self.drops.unsegmented += 1;
                // Only this train is sent unsegmented, as others may fit the interface's MTU.
                cursor.single_train = Some(chunk.train);
            }
            _ => {
                self.drops.refused += 1;
                cursor.skip(trains, Some(chunk));
            }
        }
    }

    /// The messages in which trains are sent, from the cursor on.
    fn chunks<'t>(
        &self,
        trains: &'t [DatagramTrain],
        cursor: &SendCursor,
    ) -> impl Iterator<Item = SendChunk> + use<'t> {
        let has_segmentation = self.sockets.socket.has_segmentation;
        let single_train = cursor.single_train;
        let unsent = trains.iter().enumerate().skip(cursor.train);
        unsent.flat_map(move |(index, train)| {
            let is_single = !has_segmentation || single_train == Some(index);
            chunks_of(index, train, is_single)
        })
    }
}

/// Receives from a socket.
fn receive(
    socket: &DatagramSocket,
    scratch: &mut MessageScratch,
    batch: &mut DatagramBatch,
    drops: &mut DatagramDrops,
) -> io::Result<usize> {
    let (memory, trains) = batch.memory_and_trains();
    receive_messages(socket, scratch, memory, TRAIN_LEN_MAX, |slot, message| {
        if let Some(overflowed) = message.overflowed {
            // The kernel reports a total since the socket was opened (SO_RXQ_OVFL).
            drops.overflowed = overflowed.into();
        }
        match train_of(slot * TRAIN_LEN_MAX, &message) {
            Some(train) => trains.push(train),
            None => drops.truncated += 1,
        }
    })
}

/// Receives from a relay.
fn receive_relayed(
    relay: &OwnedFd,
    scratch: &mut MessageScratch,
    batch: &mut DatagramBatch,
    drops: &mut DatagramDrops,
) -> io::Result<usize> {
    let (memory, trains) = batch.memory_and_trains();
    let mut lens = [0; TRAINS_MAX];
    let count =
        receive_messages(
            relay,
            scratch,
            memory,
            TRAIN_LEN_MAX,
            |slot, message| match message.is_truncated {
                true => drops.truncated += 1,
                false => lens[slot] = message.len,
            },
        )?;
    for (slot, len) in lens[..count].iter().enumerate() {
        // An empty message only tests whether this process still receives.
        if *len == 0 {
            continue;
        }
        let start = slot * TRAIN_LEN_MAX;
        match decode(&memory[start..start + len], start) {
            Some(train) => trains.push(train),
            None => drops.truncated += 1,
        }
    }
    Ok(count)
}

/// The position of a send in its trains.
#[derive(Default)]
struct SendCursor {
    /// The first train that is not sent completely.
    train: usize,
    /// The train that the kernel refuses to segment.
    single_train: Option<usize>,
    /// The next message was already tried.
    is_repeated: bool,
}

impl SendCursor {
    /// Moves the cursor behind this chunk, and removes its datagrams from their train.
    fn skip(&mut self, trains: &mut [DatagramTrain], chunk: Option<&SendChunk>) {
        self.is_repeated = false;
        let Some(chunk) = chunk else { return };
        let range = &mut trains[chunk.train].range;
        self.train = match chunk.range.end == range.end {
            true => chunk.train + 1,
            false => chunk.train,
        };
        range.start = chunk.range.end;
    }
}

/// A part of a train that is sent in one message.
struct SendChunk {
    train: usize,
    range: Range<usize>,
    /// The length of each datagram; set if the part has several, into which the kernel segments it.
    segment_len: Option<u16>,
}

impl SendChunk {
    fn message<'b>(&self, trains: &[DatagramTrain], bytes: &'b [u8]) -> OutgoingMessage<'b> {
        let train = &trains[self.train];
        OutgoingMessage {
            peer: train.peer,
            local: train.local,
            ecn_bits: train.ecn.bits(),
            segment_len: self.segment_len,
            bytes: &bytes[self.range.clone()],
        }
    }
}

fn chunks_of(
    train_index: usize,
    train: &DatagramTrain,
    is_single: bool,
) -> impl Iterator<Item = SendChunk> + use<> {
    let segment_len = train.segment_len.max(1);
    let segments = match is_single {
        true => 1,
        // The kernel refuses longer messages, and more segments.
        false => (MESSAGE_LEN_MAX / segment_len).clamp(1, SEGMENTS_MAX),
    };
    let (range, chunk_len) = (train.range.clone(), segment_len.saturating_mul(segments));
    // An empty range is one empty datagram.
    (0..range.len().div_ceil(chunk_len).max(1)).map(move |number| {
        let start = range.start + number * chunk_len;
        let end = range.end.min(start.saturating_add(chunk_len));
        let is_cut = end - start > segment_len;
        SendChunk {
            train: train_index,
            range: start..end,
            segment_len: u16::try_from(segment_len).ok().filter(|_| is_cut),
        }
    })
}

/// The train of a received message. `None` if the message is truncated or has no peer.
fn train_of(start: usize, message: &ReceivedMessage) -> Option<DatagramTrain> {
    if message.is_truncated {
        return None;
    }
    Some(DatagramTrain {
        peer: message.peer?,
        local: message.local,
        ecn: Ecn::from_bits(message.traffic_class),
        segment_len: message.segment_len.unwrap_or(message.len),
        range: start..start + message.len,
    })
}

#[cfg(test)]
mod tests;
