//! Datagrams in an epoll, level-triggered: a socket is watched for input, and for room only after it was full.
//!
//! Watched for room all the time, a UDP socket would end a wait for each datagram that leaves it.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use crate::datagram_socket::DatagramSocket;
use crate::datagrams::{
    DatagramBatch, DatagramDrops, DatagramTrain, Ecn, SEGMENTS_MAX, TRAIN_LEN_MAX, TRAINS_MAX,
};
use crate::driver::{DatagramSocketId, DriverEvent};
use crate::system_calls::datagrams::{
    MESSAGES_MAX, MessageScratch, OutgoingMessage, ReceivedMessage,
};
use crate::system_calls::datagrams::{receive_messages, send_messages};

/// The high bits of these sockets' events; the low 16 are the number.
pub const DATAGRAMS: u64 = 1 << 30;
/// Bytes of a train that the kernel takes in one message: 65,535 without the IP and UDP headers.
const MESSAGE_LEN_MAX: usize = 65_507;
/// Errors of a socket that one receive skips: each belongs to an earlier datagram, and the next call succeeds.
const ERRORS_MAX: usize = 8;

const _: () = assert!(TRAINS_MAX <= MESSAGES_MAX);

/// The sockets for datagrams of one epoll.
pub struct EpollDatagrams {
    ports: Vec<Option<DatagramPort>>,
    scratch: Box<MessageScratch>,
}

/// A socket and its registration.
struct DatagramPort {
    socket: DatagramSocket,
    /// It was full, and is watched for room.
    is_watching_room: bool,
    drops: DatagramDrops,
}

impl EpollDatagrams {
    /// No sockets.
    pub fn new() -> EpollDatagrams {
        EpollDatagrams {
            ports: Vec::new(),
            scratch: MessageScratch::new(),
        }
    }

    /// Starts to watch a socket.
    pub fn open(
        &mut self,
        epoll: &OwnedFd,
        id: DatagramSocketId,
        socket: DatagramSocket,
    ) -> io::Result<()> {
        // Replaces a socket with the same number.
        self.close(epoll, id);
        epoll::add(epoll, &socket, data(id), EventFlags::IN)?;
        let index = usize::from(id.0);
        if self.ports.len() <= index {
            self.ports.resize_with(index + 1, || None);
        }
        self.ports[index] = Some(DatagramPort {
            socket,
            is_watching_room: false,
            drops: DatagramDrops::default(),
        });
        Ok(())
    }

    /// Closes a socket, if there is one.
    pub fn close(&mut self, epoll: &OwnedFd, id: DatagramSocketId) {
        let slot = self.ports.get_mut(usize::from(id.0));
        if let Some(port) = slot.and_then(Option::take) {
            // While a supervisor has the socket too, closing ours does not end the registration (epoll(7)).
            let _ = epoll::delete(epoll, &port.socket);
        }
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
        // An error is taken off the socket by receiving.
        if flags.intersects(EventFlags::IN | EventFlags::ERR | EventFlags::HUP) {
            events.push(DriverEvent::Datagrams(id));
        }
        if !flags.contains(EventFlags::OUT) {
            return;
        }
        if let Some(port) = port_mut(&mut self.ports, id) {
            // While a socket is writable, a level-triggered registration would end each wait.
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
        for _ in 0..ERRORS_MAX {
            match port.receive(&mut self.scratch, batch) {
                Ok(count) => return count == TRAINS_MAX,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(_) => {}
            }
        }
        true
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
    /// Watches for room or no longer does. Can't fail for a socket that is registered.
    fn watch_room(&mut self, epoll: &OwnedFd, id: DatagramSocketId, on: bool) {
        if self.is_watching_room == on {
            return;
        }
        let flags = match on {
            true => EventFlags::IN | EventFlags::OUT,
            false => EventFlags::IN,
        };
        self.is_watching_room = on;
        let _ = epoll::modify(epoll, &self.socket, data(id), flags);
    }

    fn receive(
        &mut self,
        scratch: &mut MessageScratch,
        batch: &mut DatagramBatch,
    ) -> io::Result<usize> {
        let drops = &mut self.drops;
        let (memory, trains) = batch.memory_and_trains();
        receive_messages(
            &self.socket,
            scratch,
            memory,
            TRAIN_LEN_MAX,
            |slot, message| {
                if let Some(overflowed) = message.overflowed {
                    // The kernel reports a total since the socket was opened (SO_RXQ_OVFL).
                    drops.overflowed = overflowed.into();
                }
                match train_of(slot * TRAIN_LEN_MAX, &message) {
                    Some(train) => trains.push(train),
                    None => drops.truncated += 1,
                }
            },
        )
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
            match send_messages(&self.socket, self.socket.is_ipv6, scratch, messages) {
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

    /// Decides about the first message after an error that is not for lack of room: try it again, in another form, or
    /// count it as lost.
    fn pass_error(
        &mut self,
        errno: Option<Errno>,
        chunk: &SendChunk,
        cursor: &mut SendCursor,
        trains: &mut [DatagramTrain],
    ) {
        match errno {
            Some(Errno::INTR) => {}
            // An ICMP message about an earlier datagram, which the call has taken off the socket.
            Some(Errno::CONNREFUSED) if !cursor.is_repeated => cursor.is_repeated = true,
            // EIO: the device computes no checksums (before Linux 6.11), or IPsec is in the way. The others: datagrams are
            // longer than the interface's MTU, but the last of a train may be shorter.
            Some(errno @ (Errno::IO | Errno::INVAL | Errno::MSGSIZE))
                if chunk.segment_len.is_some() =>
            {
                self.socket.has_segmentation &= errno != Errno::IO;
                self.drops.unsegmented += 1;
                // Only this train: others may fit the interface's MTU.
                cursor.single_train = Some(chunk.train);
            }
            _ => {
                self.drops.refused += 1;
                cursor.skip(trains, Some(chunk));
            }
        }
    }

    /// The messages in which trains leave, from the cursor on.
    fn chunks<'t>(
        &self,
        trains: &'t [DatagramTrain],
        cursor: &SendCursor,
    ) -> impl Iterator<Item = SendChunk> + use<'t> {
        let has_segmentation = self.socket.has_segmentation;
        let single_train = cursor.single_train;
        let unsent = trains.iter().enumerate().skip(cursor.train);
        unsent.flat_map(move |(index, train)| {
            let is_single = !has_segmentation || single_train == Some(index);
            chunks_of(index, train, is_single)
        })
    }
}

/// How far a send has got.
#[derive(Default)]
struct SendCursor {
    /// The first train that is not sent.
    train: usize,
    /// The train that the kernel refuses to segment.
    single_train: Option<usize>,
    /// The next message was tried before.
    is_repeated: bool,
}

impl SendCursor {
    /// Goes on behind this chunk. A train that is left keeps the datagrams behind it.
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

/// A part of a train that leaves in one message.
struct SendChunk {
    train: usize,
    range: Range<usize>,
    /// There are several datagrams, for the kernel to cut.
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

/// None if the message can't be interpreted.
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
