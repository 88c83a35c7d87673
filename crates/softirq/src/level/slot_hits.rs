//! Hits of responses from publication until their slots are freed, for reports. A withdrawn response may have had hits
//! since the previous report: its slot keeps them until it is freed, and they are recorded then.

use std::collections::VecDeque;
use std::mem::offset_of;
use std::sync::{Mutex, PoisonError};

use lowroad_wire::width::index;

use crate::layout::response;
use crate::level::SoftirqLevel;

/// Maximum number of freed responses between two reports; the oldest are dropped if they are not read.
const FREED_MAX: usize = 16 << 10;

/// The hits of one response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotHits {
    /// Identifies the response among all that the level has published.
    pub id: u32,
    /// Its key.
    pub key: Vec<u8>,
    /// The number of its hits.
    pub hits: u64,
}

/// Responses with hits and freed slots.
#[derive(Debug, Default)]
pub struct FreedHits(Mutex<VecDeque<SlotHits>>);

impl FreedHits {
    /// Removes and returns the responses.
    pub fn take(&self) -> Vec<SlotHits> {
        let mut freed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        freed.drain(..).collect()
    }

    pub(super) fn record(&self, hits: SlotHits) {
        let mut freed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if freed.len() == FREED_MAX {
            freed.pop_front();
        }
        freed.push_back(hits);
    }
}

impl SoftirqLevel {
    /// The responses with hits in all slots: published ones, and withdrawn ones with slots that are not free yet.
    #[must_use]
    pub fn slot_hits(&self) -> Vec<SlotHits> {
        let slots = 0..self.response_slots();
        slots
            .filter_map(|number| self.hits_of_slot(number))
            .collect()
    }

    /// The response in a slot; `None` if the slot is free or the response has no hits.
    pub(super) fn hits_of_slot(&self, number: u32) -> Option<SlotHits> {
        let slot = index(number);
        let read_id = || self.responses.get::<u32>(slot, offset_of!(response, id));
        let (id, hits) = (read_id(), self.hits(slot));
        if id == 0 || hits == 0 {
            return None;
        }
        let stored = self.responses.read(slot);
        let key = stored.key.get(..usize::from(stored.key_len))?.to_vec();
        // The daemon may have replaced the response meanwhile.
        (read_id() == id).then_some(SlotHits { id, key, hits })
    }
}
