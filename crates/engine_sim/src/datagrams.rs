//! Datagram sockets in the simulator. A socket belongs to a driver or to the test, which use the same functions.
//!
//! Trains are segmented when they are sent, so that each datagram may be lost or delayed separately; datagrams that
//! arrive together may be received as a train again. The [network](super::datagram_network) delivers them.

use std::net::{IpAddr, SocketAddr};

use lowroad_engine::datagrams::{DatagramBatch, DatagramDrops, DatagramTrain, Ecn, TRAIN_LEN_MAX};
use lowroad_engine::driver::DatagramSocketId;

use super::SharedWorld;
use super::datagram_network::{DatagramFaults, DatagramStats};

/// A received datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimDatagram {
    /// The sender's address, after translation.
    pub peer: SocketAddr,
    /// The destination.
    pub local: IpAddr,
    /// The ECN codepoint on arrival.
    pub ecn: Ecn,
    /// The payload.
    pub bytes: Vec<u8>,
}

/// A bound datagram socket, of the test or for a driver; dropping it closes it.
pub struct SimDatagrams {
    port: usize,
    world: SharedWorld,
}

impl SharedWorld {
    /// Binds a socket. With an unspecified address it receives datagrams to all addresses with this port that no other
    /// socket is bound to; with that of IPv6, also IPv4 datagrams, as in Linux.
    pub fn bind_datagrams(&self, address: SocketAddr) -> SimDatagrams {
        self.bind_port(address, false)
    }

    /// Like [`SharedWorld::bind_datagrams`], behind an address translator, which uses another port and may change that
    /// port.
    pub fn bind_translated_datagrams(&self, address: SocketAddr) -> SimDatagrams {
        self.bind_port(address, true)
    }

    fn bind_port(&self, address: SocketAddr, is_translated: bool) -> SimDatagrams {
        SimDatagrams {
            port: self.lock().datagrams.bind(address, is_translated),
            world: self.clone(),
        }
    }

    /// Sets the faults of the datagram network.
    pub fn set_datagram_faults(&self, faults: DatagramFaults) {
        self.lock().datagrams.faults = faults;
    }

    /// The statistics of the datagram network so far.
    pub fn datagram_stats(&self) -> DatagramStats {
        self.lock().datagrams.stats
    }
}

impl SimDatagrams {
    /// The socket's address in the network.
    pub fn address(&self) -> SocketAddr {
        let world = self.world.lock();
        let port = &world.datagrams.ports[self.port];
        port.translated.unwrap_or(port.bound)
    }

    /// Sends a datagram; `local` is the source if the socket is bound to several addresses. False if the socket is
    /// full.
    pub fn send(&self, to: SocketAddr, local: Option<IpAddr>, ecn: Ecn, bytes: &[u8]) -> bool {
        let mut world = self.world.lock();
        world.send_datagram(self.port, to, local, ecn, bytes)
    }

    /// Receives a datagram.
    pub fn receive(&self) -> Option<SimDatagram> {
        let mut world = self.world.lock();
        world.datagrams.ports[self.port].received.pop_front()
    }

    /// Changes the translated address of the socket.
    pub fn rebind(&self) {
        let mut world = self.world.lock();
        world.datagrams.translate(self.port);
        world.datagrams.stats.rebound += 1;
    }

    /// Assigns the socket to a driver, which gets its events.
    pub(crate) fn set_owner(&self, driver: usize, id: DatagramSocketId) {
        self.world.lock().datagrams.ports[self.port].owner = Some((driver, id));
    }

    /// The datagrams that the socket has lost.
    pub(crate) fn drops(&self) -> DatagramDrops {
        self.world.lock().datagrams.ports[self.port].drops
    }

    /// Receives trains until the batch is full or no more are available. Returns whether the batch is full.
    pub(crate) fn receive_batch(&self, batch: &mut DatagramBatch) -> bool {
        while !batch.is_full() {
            let Some((datagram, segment_len)) = self.receive_train() else {
                return false;
            };
            let train = DatagramTrain {
                peer: datagram.peer,
                local: Some(datagram.local),
                ecn: datagram.ecn,
                segment_len,
                range: 0..0,
            };
            batch.push(train, &datagram.bytes);
        }
        true
    }

    /// Sends trains until the socket is full. Returns the number of trains sent; the next one keeps its unsent
    /// datagrams.
    pub(crate) fn send_trains(&self, trains: &mut [DatagramTrain], bytes: &[u8]) -> usize {
        for (index, train) in trains.iter_mut().enumerate() {
            let mut sent_len = 0;
            let is_sent = train.segments(bytes).all(|datagram| {
                let is_accepted = self.send(train.peer, train.local, train.ecn, datagram);
                sent_len += if is_accepted { datagram.len() } else { 0 };
                is_accepted
            });
            // The caller sends the rest after a room event.
            train.range.start += sent_len;
            if !is_sent {
                return index;
            }
        }
        trains.len()
    }

    /// Receives datagrams as a train, like UDP GRO: some or all available ones with the same peer, address, codepoint
    /// and length; a shorter one ends the train.
    fn receive_train(&self) -> Option<(SimDatagram, usize)> {
        let mut world = self.world.lock();
        let mut train = world.datagrams.ports[self.port].received.pop_front()?;
        let segment_len = train.bytes.len();
        let mut last_len = segment_len;
        // The kernel may end a train anywhere.
        while last_len == segment_len && world.random_below(4) > 0 {
            let received = &mut world.datagrams.ports[self.port].received;
            let is_next = |next: &SimDatagram| {
                let len = train.bytes.len() + next.bytes.len();
                (next.peer, next.local, next.ecn) == (train.peer, train.local, train.ecn)
                    && (1..=segment_len).contains(&next.bytes.len())
                    && len <= TRAIN_LEN_MAX
            };
            if !received.front().is_some_and(is_next) {
                break;
            }
            let Some(next) = received.pop_front() else {
                break;
            };
            last_len = next.bytes.len();
            train.bytes.extend(next.bytes);
            world.datagrams.stats.coalesced += 1;
        }
        Some((train, segment_len))
    }
}

impl Drop for SimDatagrams {
    fn drop(&mut self) {
        let mut world = self.world.lock();
        let port = &mut world.datagrams.ports[self.port];
        port.is_closed = true;
        port.received.clear();
    }
}
