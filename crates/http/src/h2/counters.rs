//! Counters of errors and excesses of peers.

/// Counts of rare events; one value for all connections of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GlitchCounters {
    /// Streams that the peer reset.
    pub resets: u64,
    /// Streams reset after a stream error of the peer.
    pub faults: u64,
    /// Streams refused because of the stream limit.
    pub refused: u64,
    /// Streams among the faults with a malformed message.
    pub malformed: u64,
    /// Glitches: legal but useless frames.
    pub glitches: u64,
    /// Connections ended by a connection error of the peer.
    pub ended: u64,
    /// Connections among these that exceeded a limit (ENHANCE_YOUR_CALM, H3_EXCESSIVE_LOAD).
    pub floods: u64,
}
