//! How a group behaves. Plain values; it knows nothing of members.

/// By what a member is chosen of those that may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Each in its turn, as often as its weight says, and evenly spread.
    #[default]
    RoundRobin,
    /// The one with the fewest requests for its weight.
    LeastConnections,
    /// Two are drawn by weight, and the one with fewer requests is taken.
    RandomOfTwo,
    /// The same for the same key, as long as it has not more than its share of the load.
    ConsistentHash {
        /// How much of its even share a member may have, in percent: more than 100.
        load_percent_max: u32,
    },
}

/// All of a group's settings.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// By what is chosen.
    pub policy: Policy,
    /// Of active checks.
    pub health: Health,
    /// Of what requests find.
    pub circuit: Circuit,
    /// How long the weight of a member grows after it came back, ms; 0: it has all of it at once.
    pub slow_start_ms: u64,
    /// When fewer than this share of members is well, it is thought that the judgement is wrong, and
    /// all are asked, in percent. 0: who is not well is never asked.
    pub panic_percent: u32,
}

/// When active checks change a member's state.
#[derive(Clone, Copy, Debug)]
pub struct Health {
    /// So many good ones in a row bring it back.
    pub rise: u32,
    /// So many bad ones in a row take it out.
    pub fall: u32,
}

/// When requests that fail take a member out, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Circuit {
    /// In how long failures are counted, ms.
    pub window_ms: u64,
    /// So many take it out; 0: none does.
    pub failures_min: u32,
    /// And only if they are this share of all requests, in percent.
    pub failure_percent: u32,
    /// So many in a row for which the member was not there take it out whatever it answered before; 0: none does.
    pub absences_max: u32,
    /// For how long the first time, ms. It doubles each time.
    pub open_ms: u64,
    /// For how long at most, ms.
    pub open_ms_max: u64,
    /// How many requests try at a time whether it is back.
    pub trials_max: u32,
    /// How many requests a member has at a time, also those that wait for a connection.
    pub requests_max: u32,
    /// How many of them may wait for a connection.
    pub pending_max: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            policy: Policy::default(),
            health: Health { rise: 2, fall: 3 },
            circuit: Circuit {
                window_ms: 10_000,
                failures_min: 5,
                failure_percent: 50,
                absences_max: 5,
                open_ms: 5_000,
                open_ms_max: 300_000,
                trials_max: 1,
                requests_max: 1024,
                pending_max: 256,
            },
            slow_start_ms: 10_000,
            panic_percent: 10,
        }
    }
}
