//! Counters of a module's calls.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        /// Counters that only grow.
        #[derive(Debug, Default)]
        pub struct ModuleCounters {
            $($(#[$doc])* pub $name: AtomicU64,)*
        }

        impl ModuleCounters {
            /// All counters by name, for status pages.
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Relaxed)),)*]
            }
        }
    };
}

counts! {
    /// Requests for the module.
    calls;
    /// Calls that had to wait for an event on the runtime.
    waited;
    /// Calls that the module ended with a failure.
    failed;
    /// Calls that the route's timeout ended.
    late;
    /// Calls abandoned by their client while the module waited.
    gone;
    /// Requests that got 503, since too many calls were in progress.
    refused;
    /// New versions that were loaded.
    reloads;
    /// New versions that were rejected.
    rejected;
    /// Deaths of the module's process; only for modules in a separate process.
    crashes;
}

/// Adds one.
pub(super) fn increment(count: &AtomicU64) {
    count.fetch_add(1, Relaxed);
}
