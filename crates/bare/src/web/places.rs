//! What each connection is used for, by its place in the table of connections. Knows no request.

use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};

use lowroad_net::Id;

/// What a place is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Nobody's.
    Free,
    /// A visitor's; the next request can be taken.
    Reading,
    /// A visitor's, whose answer has not left whole.
    Answering,
    /// A visitor's, whose request waits until its page can be begun.
    Queued,
    /// A visitor's, for whom a page is being made.
    Waiting,
    /// No more will be read.
    Closing,
    /// The database's.
    Database,
}

/// One connection.
#[derive(Clone, Copy)]
pub struct Place {
    /// See there.
    pub used: Use,
    /// Which of the connections that had this place it is.
    pub generation: u32,
    /// Who is at the other end.
    pub peer: SocketAddrV4,
    /// When the request that is incomplete began, in microseconds; 0 if none is. Set by [`Places::set_begun`].
    begun_us: u64,
    /// Bytes of it that were looked at.
    pub seen_len: usize,
    /// Bytes that it will have with its body; 0 while its head is not whole.
    pub needed_len: usize,
    /// The visitor will send no more.
    pub is_finished: bool,
}

impl Place {
    const FREE: Place = Place {
        used: Use::Free,
        generation: 0,
        peer: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0),
        begun_us: 0,
        seen_len: 0,
        needed_len: 0,
        is_finished: false,
    };

    /// Whether a request has begun and is not complete.
    #[inline]
    pub fn is_partial(&self) -> bool {
        self.begun_us != 0
    }
}

/// All of them.
pub struct Places {
    all: Vec<Place>,
    partial_count: u64,
}

impl Places {
    /// Room for so many connections.
    pub fn new(count: usize) -> Places {
        Places {
            all: vec![Place::FREE; count],
            partial_count: 0,
        }
    }

    /// The place of a connection.
    #[inline]
    pub fn get(&mut self, id: Id) -> &mut Place {
        &mut self.all[id.index as usize]
    }

    /// Takes a place for a connection.
    pub fn take(&mut self, id: Id, used: Use, peer: Option<SocketAddrV4>) {
        *self.get(id) = Place {
            used,
            generation: id.generation,
            peer: peer.unwrap_or(Place::FREE.peer),
            ..Place::FREE
        };
    }

    /// Says when the request that is incomplete began, in microseconds; 0: none is. They are counted, so that nobody
    /// looks for them when there are none.
    pub fn set_begun(&mut self, id: Id, begun_us: u64) {
        let place = self.get(id);
        let (was, is) = (place.is_partial(), begun_us != 0);
        place.begun_us = begun_us;
        self.partial_count += u64::from(is);
        self.partial_count -= u64::from(was);
    }

    /// Requests that have begun and are not complete.
    #[inline]
    pub fn partial_count(&self) -> u64 {
        self.partial_count
    }

    /// How many there are, whatever they are used for.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// By number: the connection, what it is used for, and when its incomplete request began, if it has one.
    pub fn at(&self, index: usize) -> (Id, Use, Option<u64>) {
        let place = &self.all[index];
        let id = Id {
            index: index as u32,
            generation: place.generation,
        };
        let begun_us = Some(place.begun_us).filter(|begun_us| *begun_us > 0);
        (id, place.used, begun_us)
    }
}
