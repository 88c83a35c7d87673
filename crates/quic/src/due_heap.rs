//! Deadlines of connections: a binary heap that knows the place of each connection, so that a deadline is moved, not
//! added again. Reading the first one is free, each change costs O(log n).

/// Marks a connection without a deadline.
const ABSENT: u32 = u32::MAX;

/// A deadline of a connection.
#[derive(Clone, Copy, Debug)]
struct DueEntry {
    due_us: u64,
    slot: u32,
}

/// The next deadline of each connection, in microseconds.
#[derive(Debug, Default)]
pub(crate) struct DueHeap {
    /// Invariant: a parent is not later than its children.
    heap: Vec<DueEntry>,
    /// For each slot its index in `heap`, or `ABSENT`.
    places: Vec<u32>,
}

impl DueHeap {
    /// The earliest deadline and its slot.
    pub fn first(&self) -> Option<(u64, u32)> {
        self.heap.first().map(|first| (first.due_us, first.slot))
    }

    /// Sets or removes the deadline of a slot.
    pub fn set(&mut self, slot: u32, due_us: Option<u64>) {
        let index = slot as usize;
        if self.places.len() <= index {
            self.places.resize(index + 1, ABSENT);
        }
        let place = self.places[index];
        match (due_us, place) {
            (None, ABSENT) => {}
            (None, place) => self.remove(place as usize),
            (Some(due_us), ABSENT) => {
                self.heap.push(DueEntry { due_us, slot });
                self.move_up(self.heap.len() - 1);
            }
            (Some(due_us), place) => {
                self.heap[place as usize].due_us = due_us;
                let place = self.move_up(place as usize);
                self.move_down(place);
            }
        }
    }

    fn remove(&mut self, place: usize) {
        let removed = self.heap.swap_remove(place);
        self.places[removed.slot as usize] = ABSENT;
        // The last entry has taken the place, unless it was the last one itself.
        if place < self.heap.len() {
            let place = self.move_up(place);
            self.move_down(place);
        }
    }

    /// Moves an entry towards the root, and returns its place.
    fn move_up(&mut self, mut place: usize) -> usize {
        let entry = self.heap[place];
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.heap[parent].due_us <= entry.due_us {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, entry);
        place
    }

    /// Moves an entry towards the leaves.
    fn move_down(&mut self, mut place: usize) {
        let entry = self.heap[place];
        loop {
            let (left, right) = (2 * place + 1, 2 * place + 2);
            let Some(mut child) = self.heap.get(left).map(|_| left) else {
                break;
            };
            if self
                .heap
                .get(right)
                .is_some_and(|it| it.due_us < self.heap[left].due_us)
            {
                child = right;
            }
            if entry.due_us <= self.heap[child].due_us {
                break;
            }
            self.put(place, self.heap[child]);
            place = child;
        }
        self.put(place, entry);
    }

    fn put(&mut self, place: usize, entry: DueEntry) {
        self.heap[place] = entry;
        self.places[entry.slot as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn first_equals_the_minimum_of_a_map() {
        let (mut heap, mut map) = (DueHeap::default(), BTreeMap::new());
        let mut random = 1_u64;
        for _ in 0..20_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let slot = (random >> 40) as u32 % 50;
            let due_us = ((random >> 33) & 3 > 0).then_some((random >> 20) % 1000);
            heap.set(slot, due_us);
            match due_us {
                Some(due_us) => map.insert(slot, due_us),
                None => map.remove(&slot),
            };
            let first_us = heap.first().map(|(due_us, _)| due_us);
            assert_eq!(first_us, map.values().min().copied());
            assert_eq!(heap.heap.len(), map.len());
            if let Some((due_us, slot)) = heap.first() {
                assert_eq!(map.get(&slot), Some(&due_us));
            }
        }
    }
}
