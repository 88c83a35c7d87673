//! Who waits in one class, in the order of coming. All may wait equally long, so who came first is late first.

use alloc::collections::VecDeque;

#[derive(Debug)]
pub struct Line<W>(VecDeque<Waiter<W>>);

#[derive(Debug)]
pub struct Waiter<W> {
    /// Ascending along the line.
    pub ticket: u64,
    pub deadline_ms: u64,
    pub waiter: W,
}

impl<W> Default for Line<W> {
    fn default() -> Line<W> {
        Line(VecDeque::new())
    }
}

impl<W> Line<W> {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn push(&mut self, waiter: Waiter<W>) {
        self.0.push_back(waiter);
    }

    pub fn take_first(&mut self) -> Option<W> {
        self.0.pop_front().map(|first| first.waiter)
    }

    /// Who came last.
    pub fn take_last(&mut self) -> Option<W> {
        self.0.pop_back().map(|last| last.waiter)
    }

    /// Who has waited too long.
    pub fn take_late(&mut self, now_ms: u64) -> Option<W> {
        let first = self.0.front()?;
        (first.deadline_ms <= now_ms).then(|| self.take_first())?
    }

    /// Whether it was there.
    pub fn remove(&mut self, ticket: u64) -> bool {
        let place = self.0.binary_search_by_key(&ticket, |waiter| waiter.ticket);
        place.is_ok_and(|place| self.0.remove(place).is_some())
    }
}
