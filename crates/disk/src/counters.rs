//! The counters of the store, including those of errors.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The atomic counters that all threads increment.
        #[derive(Default)]
        pub(crate) struct DiskTallies { $(pub $name: AtomicU64,)* }

        /// The counters since the store was opened, and the current size.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct DiskCounters {
            $($(#[$doc])* pub $name: u64,)*
            /// The current number of objects.
            pub objects: u64,
            /// The current length of all segments in bytes, including removed objects.
            pub segment_bytes: u64,
            /// The current number of segments.
            pub segments: u64,
            /// The current memory of the index in bytes.
            pub index_bytes: u64,
        }

        impl DiskTallies {
            pub fn read(&self) -> DiskCounters {
                DiskCounters { $($name: self.$name.load(Relaxed),)* ..DiskCounters::default() }
            }
        }
    };
}

counters! {
    /// Look-ups that found an object.
    hits,
    /// Look-ups that found no object.
    misses,
    /// Objects committed.
    stored,
    /// Writers that were dropped or failed.
    abandoned,
    /// Objects removed by key or by a scan.
    removed,
    /// Objects evicted for space.
    evicted,
    /// Used objects that were rewritten when their segment was evicted.
    rewritten,
    /// Objects removed because a checksum was wrong.
    corrupt,
    /// Reads that failed.
    read_errors,
    /// Writes that failed.
    write_errors,
    /// Writes that failed because the disk was full.
    disk_full,
    /// Entries that could not be written to the journal.
    journal_errors,
    /// Checkpoints that could not be written.
    checkpoint_errors,
}

/// Increments a counter.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}
