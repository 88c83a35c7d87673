//! Counters of peers' faults. Knows no frames.

/// Rare events; one value for all connections of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Streams that the peer reset.
    pub resets: u64,
    /// Streams that were reset for the peer's faults.
    pub faults: u64,
    /// Streams refused for there being too many.
    pub refused: u64,
    /// Messages that were malformed.
    pub malformed: u64,
    /// Frames of little use.
    pub glitches: u64,
    /// Connections that were ended for a fault of the peer.
    pub ended: u64,
    /// Of these, those that wanted too much.
    pub floods: u64,
}
