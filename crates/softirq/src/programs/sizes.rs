//! How large the maps are: what an operator gives, and what follows from that.

use lowroad_wire::width::len_of;

use crate::error::Error;
use crate::layout;

/// How large the maps are.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Connections that have a place at the same time, at half load of the table.
    pub connections: u32,
    /// Bytes for responses, and for what is kept about each.
    pub memory: u32,
}

/// Bounds of [`Sizes::memory`].
pub const MEMORY_MIN: u32 = 1 << 20;
/// As above.
pub const MEMORY_MAX: u32 = 512 << 20;

impl Default for Sizes {
    fn default() -> Self {
        Self {
            connections: 32_768,
            memory: 32 << 20,
        }
    }
}

impl Sizes {
    /// Buckets of eight places.
    #[must_use]
    pub fn connection_buckets(self) -> u32 {
        (self.connections.clamp(16, 1 << 22) / 4).next_power_of_two()
    }

    /// How many responses there are places for: one for each four KiB.
    #[must_use]
    pub fn response_places(self) -> u32 {
        (self.memory() / 4096).next_power_of_two()
    }

    /// Bytes of the store, with its margin: what the places leave.
    #[must_use]
    pub fn store_len(self) -> u32 {
        let place = len_of::<layout::response>();
        (self.memory() - self.response_places() * place).next_multiple_of(4096)
    }

    /// The most is what the verifier can follow.
    fn memory(self) -> u32 {
        self.memory.clamp(MEMORY_MIN, MEMORY_MAX)
    }

    /// Buckets of eight entries, a quarter full at most.
    #[must_use]
    pub fn index_buckets(self) -> u32 {
        self.response_places() / 2
    }

    /// What the maps have for that.
    pub(super) fn room(self) -> Room {
        Room {
            connection_buckets: self.connection_buckets(),
            index_buckets: self.index_buckets(),
            response_places: self.response_places(),
            store_len: self.store_len(),
        }
    }
}

/// How many entries maps have, and how long their values are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// A power of two.
    pub(crate) connection_buckets: u32,
    /// A power of two.
    pub(crate) index_buckets: u32,
    /// A power of two.
    pub(crate) response_places: u32,
    /// Bytes of the store, with its margin.
    pub(crate) store_len: u32,
}

impl Room {
    /// Entries of a map that is sized here.
    pub(super) fn entries(self, map: &str) -> Result<Option<u32>, Error> {
        Ok(match map {
            "connections" => Some(self.connection_buckets),
            "response_index" => Some(self.index_buckets),
            "responses" => Some(self.response_places),
            "response_hits" => Some(processors()?),
            _ => None,
        })
    }

    /// Bytes of a value of a map for which that is set here.
    pub(super) fn value_len(self, map: &str) -> Option<u32> {
        match map {
            "store" => Some(self.store_len),
            "response_hits" => Some(self.response_places * HIT_COUNTER_LEN),
            _ => None,
        }
    }
}

/// Of one processor's counter of one response.
const HIT_COUNTER_LEN: u32 = u64::BITS / 8;

/// How many processors there can be.
fn processors() -> Result<u32, Error> {
    let count = libbpf_rs::num_possible_cpus().map_err(Error::bpf("counting processors"))?;
    u32::try_from(count).map_err(|_| Error::Usage(format!("{count} processors")))
}
