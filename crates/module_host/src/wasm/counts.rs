//! Counters of WebAssembly modules.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident $label:literal;)*) => {
        /// Counters that only grow, except the gauges, named `answer_now…`.
        #[derive(Debug, Default)]
        pub struct WasmCounters {
            $($(#[$doc])* pub $name: AtomicU64,)*
        }

        impl WasmCounters {
            /// All counters by name, for status pages.
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$(($label, self.$name.load(Relaxed)),)*]
            }
        }
    };
}

counts! {
    /// Requests for a module.
    requests "wasm.requests";
    /// Instances that were created.
    instances "wasm.instances";
    /// Requests that got a reset instance.
    reused "wasm.reused";
    /// Instances that exist now.
    now_instances "wasm.now_instances";
    /// Instances that are idle now.
    now_resting "wasm.now_resting";
    /// Bytes of memory of all instances now.
    now_memory_len "wasm.now_memory_bytes";
    /// Instances that trapped, except those that computed for too long.
    traps "wasm.traps";
    /// Instances that computed for too long.
    deadlines "wasm.deadlines";
    /// Growths of memory or tables that were refused.
    refused "wasm.memory_refused";
    /// Requests that found no free instance and got 503.
    full "wasm.full";
    /// Arguments of calls into the server that pointed outside the instance's memory.
    pointers "wasm.bad_pointers";
    /// Files that were compiled.
    compiled "wasm.compiled";
    /// Changed files that were rejected; the version before them stays in use.
    rejected "wasm.rejected";
}

/// Adds one.
pub(super) fn increment(count: &AtomicU64) {
    count.fetch_add(1, Relaxed);
}
