//! How far purges had come when something began. Knows no rules.

/// How far purges had come when something began: what is made from then on is made after them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Since {
    /// Of the rules.
    pub generation: u64,
    /// How often its key was forgotten.
    pub forgotten: u32,
}

impl Since {
    /// As bytes, for names of makings.
    pub fn to_le_bytes(self) -> [u8; 16] {
        (u128::from(self.generation) << 64 | u128::from(self.forgotten)).to_le_bytes()
    }
}
