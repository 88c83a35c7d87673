//! The descriptor limit that the server was started with. The server raises its limit; programs get the original one,
//! since many iterate over all possible descriptors, or use select(2), which ends at 1024.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit};

static FIRST: OnceLock<Rlimit> = OnceLock::new();

/// Records the current limit for programs and returns it; to be called before it is raised.
pub fn remember() -> Rlimit {
    *FIRST.get_or_init(|| getrlimit(Resource::Nofile))
}

/// The soft and the hard limit for programs; `None`: that of this process.
pub fn program_limits() -> Option<(Option<u64>, Option<u64>)> {
    FIRST.get().map(|first| (first.current, first.maximum))
}
