//! Prioritized scheduling (RFC 9218 §10): the queue of streams that have data to send and a window for it.
//!
//! The most urgent streams are served first. Within one urgency, incremental streams are served round-robin, and
//! non-incremental streams one after the other in the order of their identifiers; the two kinds alternate, so neither
//! starves. A stream of lower urgency may starve: the client chose the urgencies, and receives all the streams.
//!
//! The queue consists of linked lists through the stream slots, one for each class. Every operation takes constant
//! time, except inserting a non-incremental stream out of order.

use super::{NONE, Priority, StreamTable};

const CLASSES: usize = 16;

/// The streams that can send.
#[derive(Debug)]
pub(crate) struct PriorityQueue {
    first: [u16; CLASSES],
    last: [u16; CLASSES],
    /// Bits of the classes that are not empty.
    nonempty_classes: u16,
    /// Bits of the urgencies that serve their incremental streams next.
    incremental_turns: u8,
}

impl Default for PriorityQueue {
    fn default() -> PriorityQueue {
        PriorityQueue {
            first: [NONE; CLASSES],
            last: [NONE; CLASSES],
            nonempty_classes: 0,
            incremental_turns: 0,
        }
    }
}

impl PriorityQueue {
    /// Adds a stream, unless it is queued.
    pub(crate) fn add<T>(&mut self, streams: &mut StreamTable<T>, slot: u16) {
        let stream = streams.get(slot);
        if stream.is_queued {
            return;
        }
        stream.is_queued = true;
        let (id, is_incremental) = (stream.id, stream.priority.is_incremental);
        let class = usize::from(stream.priority.class());
        let mut previous = self.last[class];
        // RFC 9218 §10: non-incremental streams are served in the order of their identifiers.
        while !is_incremental && previous != NONE && streams.get(previous).id > id {
            previous = streams.get(previous).previous;
        }
        let next = match previous {
            NONE => core::mem::replace(&mut self.first[class], slot),
            previous => core::mem::replace(&mut streams.get(previous).next, slot),
        };
        match next {
            NONE => self.last[class] = slot,
            next => streams.get(next).previous = slot,
        }
        let stream = streams.get(slot);
        (stream.previous, stream.next) = (previous, next);
        self.nonempty_classes |= 1 << class;
    }

    /// Removes a stream, if it is queued.
    pub(crate) fn remove<T>(&mut self, streams: &mut StreamTable<T>, slot: u16) {
        let stream = streams.get(slot);
        if !core::mem::replace(&mut stream.is_queued, false) {
            return;
        }
        let (previous, next) = (stream.previous, stream.next);
        let class = usize::from(stream.priority.class());
        match previous {
            NONE => self.first[class] = next,
            previous => streams.get(previous).next = next,
        }
        match next {
            NONE => self.last[class] = previous,
            next => streams.get(next).previous = previous,
        }
        if self.first[class] == NONE {
            self.nonempty_classes &= !(1 << class);
        }
    }

    /// Changes the priority of a stream.
    pub(crate) fn change<T>(
        &mut self,
        streams: &mut StreamTable<T>,
        slot: u16,
        priority: Priority,
    ) {
        let was_queued = streams.get(slot).is_queued;
        self.remove(streams, slot);
        streams.get(slot).priority = priority;
        if was_queued {
            self.add(streams, slot);
        }
    }

    /// The stream to serve next.
    pub(crate) fn first(&self) -> Option<u16> {
        if self.nonempty_classes == 0 {
            return None;
        }
        let urgency = self.nonempty_classes.trailing_zeros() as usize / 2;
        let kinds = self.nonempty_classes >> (urgency * 2) & 3;
        // An incremental stream is served if no other kind is queued, or if both kinds are queued and it is the turn of
        // incremental streams.
        let is_incremental_turn =
            kinds == 2 || kinds == 3 && self.incremental_turns >> urgency & 1 == 1;
        Some(self.first[urgency * 2 + usize::from(is_incremental_turn)])
    }

    /// Records that a stream was served: the other kind of its urgency is served next.
    pub(crate) fn record_served(&mut self, priority: Priority) {
        let bit = 1 << priority.urgency;
        match priority.is_incremental {
            true => self.incremental_turns &= !bit,
            false => self.incremental_turns |= bit,
        }
    }

    /// Moves a served stream that has more to send to the end of its list, if it is incremental.
    pub(crate) fn requeue<T>(&mut self, streams: &mut StreamTable<T>, slot: u16) {
        if streams.get(slot).priority.is_incremental {
            self.remove(streams, slot);
            self.add(streams, slot);
        }
    }
}
