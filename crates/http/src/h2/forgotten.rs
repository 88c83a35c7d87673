//! Streams that we have reset: what the peer sent before it heard of that is still on its way, and no fault (RFC 9113 §5.1).
//! Knows no frames.

use alloc::collections::VecDeque;

/// As many are told apart; of older ones everything is forgiven.
const MAX: usize = 32;

/// The last that were reset.
#[derive(Debug, Default)]
pub(super) struct Forgotten {
    last: VecDeque<u32>,
    /// The highest that is not among them any more.
    older: u32,
}

impl Forgotten {
    pub(super) fn add(&mut self, id: u32) {
        if self.last.len() == MAX
            && let Some(older) = self.last.pop_front()
        {
            self.older = self.older.max(older);
        }
        self.last.push_back(id);
    }

    /// Whether frames may still come.
    pub(super) fn has(&self, id: u32) -> bool {
        id <= self.older || self.last.contains(&id)
    }
}
