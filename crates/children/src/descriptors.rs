//! The limit of descriptors that the server was started with. It raises its own; programs get that back, as many walk
//! through all descriptors there may be, or use select(2), which ends at 1024. Knows nothing of programs.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit};

static FIRST: OnceLock<Rlimit> = OnceLock::new();

/// The limit as it is now is the one that programs get: to be called before it is raised. Gives it.
pub fn remember() -> Rlimit {
    *FIRST.get_or_init(|| getrlimit(Resource::Nofile))
}

/// The soft and the hard limit that programs get; `None`: what this process has.
pub fn of_programs() -> Option<(Option<u64>, Option<u64>)> {
    FIRST.get().map(|first| (first.current, first.maximum))
}
