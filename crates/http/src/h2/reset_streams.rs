//! Streams that were reset here: frames that the peer sent before it received the reset are not errors (RFC 9113 §5.1).

use alloc::collections::VecDeque;

/// The number of streams that are remembered; any older stream counts as reset.
const MAX: usize = 32;

/// The streams that were reset last.
#[derive(Debug, Default)]
pub(super) struct ResetStreams {
    last: VecDeque<u32>,
    /// The highest stream that is not remembered any more.
    older: u32,
}

impl ResetStreams {
    pub(super) fn add(&mut self, id: u32) {
        if self.last.len() == MAX
            && let Some(older) = self.last.pop_front()
        {
            self.older = self.older.max(older);
        }
        self.last.push_back(id);
    }

    /// Whether frames for this stream may still arrive.
    pub(super) fn has(&self, id: u32) -> bool {
        id <= self.older || self.last.contains(&id)
    }
}
