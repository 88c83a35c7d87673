//! Connection identifiers: the worker, then random bytes. Read RFC 9000 §5.1.

use std::time::Duration;

use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};

/// The length of an identifier in bytes.
const LEN: usize = 8;

/// Identifiers from a seed: the same ones in each run.
#[derive(Debug)]
pub struct SeededIds {
    worker: u8,
    state: u64,
}

impl SeededIds {
    /// Identifiers of a worker. The seed must not be 0.
    #[must_use]
    pub fn new(worker: u8, seed: u64) -> SeededIds {
        SeededIds {
            worker,
            state: seed.max(1),
        }
    }
}

impl ConnectionIdGenerator for SeededIds {
    fn generate_cid(&mut self) -> ConnectionId {
        // Xorshift: identifiers of a simulation need to differ, and nothing else.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let mut bytes = self.state.to_be_bytes();
        bytes[0] = self.worker;
        ConnectionId::new(&bytes)
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        match id.first() == Some(&self.worker) {
            true => Ok(()),
            false => Err(InvalidCid),
        }
    }

    fn cid_len(&self) -> usize {
        LEN
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}
