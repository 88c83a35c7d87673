//! Settings of a group.

/// Load balancing policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BalancingPolicy {
    /// Smooth weighted round robin: in turns by weight, evenly spread.
    #[default]
    RoundRobin,
    /// The member with the fewest requests for its weight.
    LeastConnections,
    /// Power of two choices: the less loaded of two random members.
    RandomOfTwo,
    /// Consistent hashing with bounded loads: the same member for the same key, unless its load exceeds its share.
    ConsistentHash {
        /// The bound on a member's load, in percent of its even share: more than 100.
        load_percent_max: u32,
    },
}

/// The settings of a group.
#[derive(Clone, Copy, Debug)]
pub struct GroupSettings {
    /// The load balancing policy.
    pub policy: BalancingPolicy,
    /// The thresholds of active checks.
    pub health: HealthThresholds,
    /// The circuit breaker.
    pub circuit: CircuitSettings,
    /// Slow start: how long the weight of a returning member grows, ms; 0: it has its full weight at once.
    pub slow_start_ms: u64,
    /// Panic threshold: if less than this share of members is healthy, in percent, the health data is considered
    /// wrong, and all members get requests. 0: unhealthy members never get requests.
    pub panic_percent: u32,
}

/// When active checks change a member's health.
#[derive(Clone, Copy, Debug)]
pub struct HealthThresholds {
    /// Successive good checks that bring it back.
    pub rise: u32,
    /// Successive bad checks that take it out.
    pub fall: u32,
}

/// Circuit breaker: when failed requests eject a member, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct CircuitSettings {
    /// The window in which failures are counted, ms.
    pub window_ms: u64,
    /// The least number of failures that eject a member; 0: never by this rule.
    pub failures_min: u32,
    /// The least share of failures among all requests, in percent.
    pub failure_percent: u32,
    /// Successive failed or lost connections that eject a member, independent of its earlier responses; 0: never by this
    /// rule.
    pub absences_max: u32,
    /// The first ejection time, ms. It doubles each time.
    pub open_ms: u64,
    /// The maximum of the ejection time, ms.
    pub open_ms_max: u64,
    /// Concurrent trial requests.
    pub trials_max: u32,
    /// Concurrent requests of a member, including those that wait for a connection.
    pub requests_max: u32,
    /// Concurrent requests of a member that wait for a connection.
    pub pending_max: u32,
}

impl Default for GroupSettings {
    fn default() -> GroupSettings {
        GroupSettings {
            policy: BalancingPolicy::default(),
            health: HealthThresholds { rise: 2, fall: 3 },
            circuit: CircuitSettings {
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
