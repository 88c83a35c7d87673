//! The counters of the store, including those of faults.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Numbers that threads add to.
        #[derive(Default)]
        pub(crate) struct DiskTallies { $(pub $name: AtomicU64,)* }

        /// The counters since the store was opened, and its present size.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct DiskCounters {
            $($(#[$doc])* pub $name: u64,)*
            /// Objects that there are now.
            pub objects: u64,
            /// Bytes that the segments take now, holes included.
            pub segment_bytes: u64,
            /// Segments that there are now.
            pub segments: u64,
            /// Bytes of memory that the index takes now.
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
    /// Objects found.
    hits,
    /// Keys under which there was nothing.
    misses,
    /// Objects committed.
    stored,
    /// Writers that were dropped or failed.
    abandoned,
    /// Objects removed by key or by a scan.
    removed,
    /// Objects that went for want of space.
    evicted,
    /// Objects written anew, since they were asked for, when their segment went.
    rewritten,
    /// Objects that went because a checksum was wrong.
    corrupt,
    /// Reads that failed.
    read_errors,
    /// Writes that failed.
    write_errors,
    /// Of those, how many because the disk was full.
    disk_full,
    /// Steps that could not be written to the journal.
    journal_errors,
    /// Checkpoints that could not be written.
    checkpoint_errors,
}

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}
