//! What happened to a module's calls, in numbers. Knows nothing of how it happens.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        /// Counters that only grow.
        #[derive(Debug, Default)]
        pub struct Counts {
            $($(#[$doc])* pub $name: AtomicU64,)*
        }

        impl Counts {
            /// All of them by name, for status pages.
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Relaxed)),)*]
            }
        }
    };
}

counts! {
    /// Requests that came to the module.
    calls;
    /// Those that it did not answer at once.
    waited;
    /// Those of which it said that it failed.
    failed;
    /// Those that were ended by the route's timeout.
    late;
    /// Those whose client went away while the module waited.
    gone;
    /// Those that got 503, as too many were under way.
    refused;
    /// New versions that were loaded.
    reloads;
    /// New versions that were no good.
    rejected;
    /// Times that its process died; only for modules with a process of their own.
    crashes;
}

/// Adds one.
pub(super) fn one(count: &AtomicU64) {
    count.fetch_add(1, Relaxed);
}
