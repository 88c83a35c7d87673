//! What happened to WebAssembly modules, in numbers. Knows nothing of how it happens.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident $label:literal;)*) => {
        /// Counters that only grow, but for those whose names begin with `now`.
        #[derive(Debug, Default)]
        pub struct Counts {
            $($(#[$doc])* pub $name: AtomicU64,)*
        }

        impl Counts {
            /// All counters by name, for status pages.
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$(($label, self.$name.load(Relaxed)),)*]
            }
        }
    };
}

counts! {
    /// Requests that came to a module.
    requests "wasm.requests";
    /// Instances that were made.
    instances "wasm.instances";
    /// Requests that got an instance that was put back to how it started.
    reused "wasm.reused";
    /// Instances that are there now.
    now_instances "wasm.now_instances";
    /// Those of them that wait for a request.
    now_resting "wasm.now_resting";
    /// Bytes of memory that instances have now.
    now_memory_len "wasm.now_memory_bytes";
    /// Instances that trapped, those that computed for too long not among them.
    traps "wasm.traps";
    /// Instances that computed for too long.
    deadlines "wasm.deadlines";
    /// Growths of memory or tables that were refused.
    refused "wasm.memory_refused";
    /// Requests that found no instance free, and got 503.
    full "wasm.full";
    /// Arguments of calls into the server that pointed outside of the memory.
    pointers "wasm.bad_pointers";
    /// Files that were compiled.
    compiled "wasm.compiled";
    /// Changed files that were no good; the version before them stays.
    rejected "wasm.rejected";
}

/// Adds one.
pub(super) fn one(count: &AtomicU64) {
    count.fetch_add(1, Relaxed);
}
