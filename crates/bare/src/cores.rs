//! What the cores of one machine share, beside the read-only site. Knows no frame's meaning.

/// Shared by all cores of a machine: made once, before the servers.
pub struct Cores {
    count: u16,
}

impl Cores {
    /// More are not used: wakes are bits of a `u64`.
    pub const COUNT_MAX: u16 = 64;

    /// For so many cores, 1 to [`Cores::COUNT_MAX`]. Takes all memory that cores will share: it is not part of what
    /// each [`crate::Machine`] gives.
    #[must_use]
    pub fn new(count: u16, _secret: &[u8; 32]) -> Cores {
        Cores {
            count: count.clamp(1, Cores::COUNT_MAX),
        }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u16 {
        self.count
    }
}
