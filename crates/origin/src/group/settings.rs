//! The settings of a group: load balancing policy, health thresholds, circuit breaker.

/// A load balancing policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BalancingPolicy {
    /// Smooth weighted round robin: members take turns by weight, evenly interleaved.
    #[default]
    RoundRobin,
    /// The member with the fewest requests relative to its weight.
    LeastConnections,
    /// Power of two choices: the less loaded of two random members.
    RandomOfTwo,
    /// Consistent hashing with bounded loads: the same member for the same key, unless that member's load exceeds its
    /// share.
    ConsistentHash {
        /// The bound on a member's load, in percent of its share by weight: more than 100.
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
    /// Slow start: the time in which the weight of a recovered member increases, ms; 0: it has its full weight
    /// immediately.
    pub slow_start_ms: u64,
    /// Panic threshold (Envoy): if less than this percentage of the primary members is healthy, and no backup is, the
    /// health data is considered wrong, and all members get requests. 0: unhealthy members never get requests.
    pub panic_percent: u32,
}

/// How many active checks change a member's health.
#[derive(Clone, Copy, Debug)]
pub struct HealthThresholds {
    /// Successive passed checks after which a member is healthy.
    pub rise: u32,
    /// Successive failed checks after which a member is unhealthy.
    pub fall: u32,
}

/// Circuit breaker: when failed requests eject a member, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct CircuitSettings {
    /// The window in which failures are counted, ms.
    pub window_ms: u64,
    /// The minimum number of failures that ejects a member; 0: failures never eject a member.
    pub failures_min: u32,
    /// The minimum percentage of failures among all requests that ejects a member.
    pub failure_percent: u32,
    /// The number of successive failed or lost connections that ejects a member, regardless of its earlier
    /// responses; 0: they never do.
    pub absences_max: u32,
    /// The first ejection time, ms. It doubles each time.
    pub open_ms: u64,
    /// The maximum ejection time, ms.
    pub open_ms_max: u64,
    /// The maximum number of concurrent trial requests.
    pub trials_max: u32,
    /// The maximum number of concurrent requests of a member, including those that wait for a connection.
    pub requests_max: u32,
    /// The maximum number of concurrent requests of a member that wait for a connection.
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
