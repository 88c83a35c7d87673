//! The identity of a process for clients of QUIC.

/// The identity of a process for clients of QUIC, passed on at an upgrade.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct QuicIdentity {
    /// The secret of identifiers, tokens and stateless resets, the same in all processes.
    pub secret: [u8; 32],
    /// The number of the process in identifiers of connections.
    pub generation: u8,
}

impl std::fmt::Debug for QuicIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "QuicIdentity({})", self.generation)
    }
}

impl QuicIdentity {
    /// The identity of the process that takes over from this one.
    #[must_use]
    pub fn successor(&self) -> QuicIdentity {
        QuicIdentity {
            secret: self.secret,
            generation: self.generation.wrapping_add(1),
        }
    }
}
