//! The purge epoch: tells whether a response was fetched before or after a purge.

/// The purge epoch at the start of a fetch. The fetched response is newer than all purges up to this epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurgeEpoch {
    /// The generation of the purge rules.
    pub generation: u64,
    /// The count of deletions in the slot of the response's key.
    pub deletion_count: u32,
}

impl PurgeEpoch {
    /// Encodes the epoch, for the identity of a fetch.
    pub fn to_le_bytes(self) -> [u8; 16] {
        (u128::from(self.generation) << 64 | u128::from(self.deletion_count)).to_le_bytes()
    }
}
