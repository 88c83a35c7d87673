//! The active streams of a connection, by their identifiers. Read RFC 9113 §5.1, RFC 9000 §2.1.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::MessageStream;

/// No slot.
pub(crate) const NONE: u16 = u16::MAX;

/// The active streams. A stream keeps its slot for as long as it exists.
#[derive(Debug)]
pub(crate) struct StreamTable<T> {
    slots: Vec<MessageStream<T>>,
    free: Vec<u16>,
    /// Identifier and slot, in ascending order of identifiers. Most streams end in the order in which they were opened.
    order: VecDeque<(u32, u16)>,
}

impl<T> Default for StreamTable<T> {
    fn default() -> StreamTable<T> {
        StreamTable {
            slots: Vec::new(),
            free: Vec::new(),
            order: VecDeque::new(),
        }
    }
}

impl<T> StreamTable<T> {
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The slot of a stream.
    #[inline]
    pub(crate) fn find(&self, id: u32) -> Option<u16> {
        // The newest stream is looked up most often.
        if let Some((last, slot)) = self.order.back()
            && *last == id
        {
            return Some(*slot);
        }
        // Identifiers ascend in the order of creation (RFC 9113 §5.1.1).
        let at = self.order.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.order.get(at).map(|(_, slot)| *slot)
    }

    #[inline]
    pub(crate) fn get(&mut self, slot: u16) -> &mut MessageStream<T> {
        &mut self.slots[usize::from(slot)]
    }

    pub(crate) fn peek(&self, slot: u16) -> &MessageStream<T> {
        &self.slots[usize::from(slot)]
    }

    #[inline]
    pub(crate) fn by_id(&mut self, id: u32) -> Option<&mut MessageStream<T>> {
        let slot = self.find(id)?;
        self.slots.get_mut(usize::from(slot))
    }

    /// Whether a stream does not exist, or satisfies the predicate.
    pub(crate) fn is_absent_or(
        &mut self,
        id: u32,
        predicate: impl FnOnce(&mut MessageStream<T>) -> bool,
    ) -> bool {
        self.by_id(id).is_none_or(predicate)
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = u16> {
        self.order.iter().map(|(_, slot)| *slot)
    }

    /// Adds a stream with an identifier higher than all others.
    pub(crate) fn add(&mut self, stream: MessageStream<T>) -> u16 {
        let id = stream.id;
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[usize::from(slot)] = stream;
                slot
            }
            None => {
                self.slots.push(stream);
                (self.slots.len() - 1) as u16
            }
        };
        self.order.push_back((id, slot));
        slot
    }

    /// Removes a stream.
    #[inline(never)]
    pub(crate) fn remove(&mut self, id: u32) {
        if let Ok(at) = self.order.binary_search_by_key(&id, |(id, _)| *id)
            && let Some((_, slot)) = self.order.remove(at)
        {
            // The slot keeps the other values of the removed stream; HTTP/3 has freed the kept section (`drop_input`).
            self.slots[usize::from(slot)].trailers = None;
            self.free.push(slot);
        }
    }

    /// Frees the memory if there are no streams.
    pub(crate) fn trim(&mut self) {
        if self.order.is_empty() {
            *self = StreamTable::default();
        }
    }
}
