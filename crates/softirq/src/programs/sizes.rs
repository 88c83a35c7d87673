//! Sizes of the maps: the operator's settings, and the sizes derived from them.

use lowroad_wire::width::len_of;

use crate::error::LevelError;
use crate::layout;

/// The operator's settings for the sizes of maps.
#[derive(Clone, Copy, Debug)]
pub struct MapSizes {
    /// Number of concurrent connections; they fill half of the connection table.
    pub connections: u32,
    /// Bytes for responses and their metadata.
    pub memory: u32,
}

/// The minimum of `MapSizes::memory`.
pub const MEMORY_MIN: u32 = 1 << 20;
/// The maximum of `MapSizes::memory`.
pub const MEMORY_MAX: u32 = 512 << 20;

impl Default for MapSizes {
    fn default() -> Self {
        Self {
            connections: 32_768,
            memory: 32 << 20,
        }
    }
}

impl MapSizes {
    /// Number of buckets of the connection table; each has eight slots.
    #[must_use]
    pub fn connection_buckets(self) -> u32 {
        // Four connections per bucket occupy half of its slots.
        (self.connections.clamp(16, 1 << 22) / 4).next_power_of_two()
    }

    /// Number of response slots: one for every 4 KiB of memory.
    #[must_use]
    pub fn response_slots(self) -> u32 {
        (self.memory() / 4096).next_power_of_two()
    }

    /// Bytes of the store, including its margin: the memory that the slots leave.
    #[must_use]
    pub fn store_len(self) -> u32 {
        let slot_len = len_of::<layout::response>();
        (self.memory() - self.response_slots() * slot_len).next_multiple_of(4096)
    }

    /// The memory, limited to the range of offsets that the verifier can follow.
    fn memory(self) -> u32 {
        self.memory.clamp(MEMORY_MIN, MEMORY_MAX)
    }

    /// Number of buckets of the index; each has eight entries, of which at most a quarter are used.
    #[must_use]
    pub fn index_buckets(self) -> u32 {
        self.response_slots() / 2
    }

    /// The sizes of the maps.
    pub(super) fn map_capacity(self) -> MapCapacity {
        MapCapacity {
            connection_buckets: self.connection_buckets(),
            index_buckets: self.index_buckets(),
            response_slots: self.response_slots(),
            store_len: self.store_len(),
        }
    }
}

/// Numbers of entries of maps, and lengths of their values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapCapacity {
    /// A power of two.
    pub(crate) connection_buckets: u32,
    /// A power of two.
    pub(crate) index_buckets: u32,
    /// A power of two.
    pub(crate) response_slots: u32,
    /// Bytes of the store, including its margin.
    pub(crate) store_len: u32,
}

impl MapCapacity {
    /// The number of entries of a map, if it depends on the settings.
    pub(super) fn entries(self, map: &str) -> Result<Option<u32>, LevelError> {
        Ok(match map {
            "connections" => Some(self.connection_buckets),
            "response_index" => Some(self.index_buckets),
            "responses" => Some(self.response_slots),
            "response_hits" => Some(processors()?),
            _ => None,
        })
    }

    /// The length of a map's values, if it depends on the settings.
    pub(super) fn value_len(self, map: &str) -> Option<u32> {
        match map {
            "response_store" => Some(self.store_len),
            "response_hits" => Some(self.response_slots * HIT_COUNTER_LEN),
            _ => None,
        }
    }
}

/// Bytes of one processor's counter of one response.
const HIT_COUNTER_LEN: u32 = u64::BITS / 8;

/// The number of possible processors.
fn processors() -> Result<u32, LevelError> {
    let count = libbpf_rs::num_possible_cpus().map_err(LevelError::bpf("counting processors"))?;
    u32::try_from(count).map_err(|_| LevelError::Usage(format!("too many processors: {count}")))
}
