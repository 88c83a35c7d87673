//! Streams that this side has reset: frames that the peer sent before it received RST_STREAM are not errors (RFC 9113
//! §5.1).

use alloc::collections::VecDeque;

/// The number of streams that are remembered; every older stream counts as reset.
const MAX: usize = 32;

/// The most recently reset streams.
#[derive(Debug, Default)]
pub(super) struct ResetStreams {
    recent: VecDeque<u32>,
    /// The highest stream identifier that is no longer in `recent`.
    forgotten_max: u32,
}

impl ResetStreams {
    pub(super) fn add(&mut self, id: u32) {
        if self.recent.len() == MAX
            && let Some(forgotten_max) = self.recent.pop_front()
        {
            self.forgotten_max = self.forgotten_max.max(forgotten_max);
        }
        self.recent.push_back(id);
    }

    /// Whether frames for this stream may still arrive.
    pub(super) fn contains(&self, id: u32) -> bool {
        id <= self.forgotten_max || self.recent.contains(&id)
    }
}
