//! The descriptor limit with which the server was started. The server raises its own limit, but programs get the
//! original one, since many iterate over all possible descriptors, or use select(2), which supports only 1024.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit};

static FIRST: OnceLock<Rlimit> = OnceLock::new();

/// Records the current limit, for programs, and returns it. To be called before the limit is raised.
pub fn record_limit() -> Rlimit {
    *FIRST.get_or_init(|| getrlimit(Resource::Nofile))
}

/// The soft and the hard limit for programs; `None`: those of this process.
pub fn program_limits() -> Option<(Option<u64>, Option<u64>)> {
    FIRST.get().map(|first| (first.current, first.maximum))
}
