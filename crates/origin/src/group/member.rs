//! A member of a group: health, counters and current weight.

use std::fmt;
use std::sync::Arc;

use super::circuit::{CircuitBreaker, CircuitDecision};
use super::clients::ClientSet;
use super::settings::GroupSettings;

/// The internal value of weight 1, so that one percent of it is more than 0.
pub const WEIGHT_UNIT: u64 = 256;
/// Slow start: a recovered member begins with this percentage of its weight.
const SLOW_START_PERCENT_MIN: u64 = 10;

/// The parameters of a new member.
#[derive(Clone, Debug)]
pub struct NewMember {
    /// The name in logs and status; its hash is used for consistent hashing.
    pub name: Arc<str>,
    /// The share of requests relative to other members; at least 1.
    pub weight: u32,
    /// Whether the member is a backup, used only if too few primary members are healthy.
    pub backup: bool,
    /// The operator's settings, in force from the first request.
    pub operator: OperatorSettings,
}

/// The settings of a member that an operator can change at any time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperatorSettings {
    /// The operator's decision.
    pub mode: MemberMode,
    /// The weight that replaces the configured one.
    pub weight: Option<u32>,
}

/// The operator's decision about a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemberMode {
    /// The member gets requests while it is healthy.
    #[default]
    Ready,
    /// The member gets requests of its sessions only.
    Drain,
    /// The member gets no new requests.
    Down,
    /// The member gets requests regardless of checks and failed requests.
    Force,
}

impl MemberMode {
    /// Whether the member gets requests without a session.
    pub fn is_in_rotation(self) -> bool {
        matches!(self, MemberMode::Ready | MemberMode::Force)
    }
}

/// Counters of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberCounters {
    /// Requests for which the member was picked.
    pub picked: u64,
    /// Requests with a response.
    pub answered: u64,
    /// Failed connection attempts.
    pub connect_failed: u64,
    /// Requests that timed out.
    pub timed_out: u64,
    /// Connections that were lost before the end of the response.
    pub lost: u64,
    /// Malformed responses.
    pub malformed: u64,
    /// Responses with a status code that counts as a failure.
    pub server_errors: u64,
    /// Requests cancelled without fault of the member.
    pub cancelled: u64,
    /// Ejections by the circuit breaker.
    pub ejected: u64,
    /// Successful active checks.
    pub checks_passed: u64,
    /// Failed active checks.
    pub checks_failed: u64,
}

/// The health of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberHealth {
    /// The member gets requests.
    Up,
    /// The member has recovered and gets requests with a part of its weight.
    SlowStart {
        /// The part of the weight in percent.
        percent: u32,
    },
    /// The next request is a trial after an ejection.
    Trial,
    /// A trial is in progress.
    TrialInProgress,
    /// The member is ejected after failed requests, until a time.
    Ejected {
        /// Monotonic ms.
        until_ms: u64,
    },
    /// Active checks failed.
    Down,
    /// The member has the maximum number of requests, or of pending ones.
    Full,
}

impl MemberHealth {
    /// Whether the member works, as far as is known: one that is full works, one that is due for a trial has not shown
    /// yet that it does.
    pub fn is_available(self) -> bool {
        matches!(
            self,
            MemberHealth::Up | MemberHealth::SlowStart { .. } | MemberHealth::Full
        )
    }
}

impl fmt::Display for MemberHealth {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemberHealth::Up => to.write_str("up"),
            MemberHealth::SlowStart { percent } => write!(to, "slow start, {percent} %"),
            MemberHealth::Trial => to.write_str("half-open"),
            MemberHealth::TrialInProgress => to.write_str("half-open, trial request in progress"),
            MemberHealth::Ejected { .. } => to.write_str("ejected"),
            MemberHealth::Down => to.write_str("down"),
            MemberHealth::Full => to.write_str("full"),
        }
    }
}

/// A member of a group.
pub struct GroupMember<P> {
    pub generation: u32,
    pub target: P,
    pub name: Arc<str>,
    pub hash: u64,
    /// The configured weight.
    pub weight: u32,
    /// The operator's weight, which replaces the configured one.
    pub live_weight: Option<u32>,
    pub backup: bool,
    pub mode: MemberMode,
    pub circuit: CircuitBreaker,
    /// Whether the member is healthy by active checks; true if there are none.
    pub is_healthy: bool,
    /// The number of successive active checks with a result that differs from `is_healthy`.
    pub contrary_checks: u32,
    /// When the slow start began, if there was one.
    pub slow_start_since_ms: Option<u64>,
    /// The credit in smooth weighted round robin.
    pub credit: i64,
    /// Requests in progress, including those that wait for a connection.
    pub requests: u32,
    /// How many of `requests` are tunnels. Tunnels count as load, but not for the maximum number of requests.
    pub tunnels: u32,
    /// Requests that wait for a connection.
    pub pending: u32,
    pub counts: MemberCounters,
}

impl<P> GroupMember<P> {
    /// The health for requests of `clients`, by active checks, failed requests and load, in this order of precedence. It
    /// does not depend on the operator's decision.
    pub fn health(
        &self,
        settings: &GroupSettings,
        clients: ClientSet,
        now_ms: u64,
    ) -> MemberHealth {
        if !self.is_healthy {
            return MemberHealth::Down;
        }
        match self.circuit.decide(&settings.circuit, clients, now_ms) {
            CircuitDecision::Ejected { until_ms } => return MemberHealth::Ejected { until_ms },
            CircuitDecision::TrialInProgress => return MemberHealth::TrialInProgress,
            // A full member gets no trial either.
            CircuitDecision::Trial if !self.is_full(settings) => return MemberHealth::Trial,
            CircuitDecision::Trial | CircuitDecision::Open => {}
        }
        self.load_health(settings, now_ms)
    }

    fn load_health(&self, settings: &GroupSettings, now_ms: u64) -> MemberHealth {
        if self.is_full(settings) {
            return MemberHealth::Full;
        }
        match self.weight_percent(settings, now_ms) {
            100 => MemberHealth::Up,
            percent => MemberHealth::SlowStart {
                percent: percent as u32,
            },
        }
    }

    /// Whether the member has the maximum number of requests, or of pending ones.
    pub fn is_full(&self, settings: &GroupSettings) -> bool {
        let circuit = &settings.circuit;
        // Tunnels are not counted: they may last for days, and have their own limit.
        self.requests - self.tunnels >= circuit.requests_max || self.pending >= circuit.pending_max
    }

    /// The weight in force without a slow start: the operator's, or the configured one.
    pub fn weight_in_force(&self) -> u32 {
        self.live_weight.unwrap_or(self.weight)
    }

    /// The current weight; more than 0.
    pub fn current_weight(&self, settings: &GroupSettings, now_ms: u64) -> u64 {
        let full_weight = u64::from(self.weight_in_force().max(1)) * WEIGHT_UNIT;
        full_weight * self.weight_percent(settings, now_ms) / 100
    }

    /// Begins a slow start.
    pub fn begin_slow_start(&mut self, now_ms: u64) {
        self.slow_start_since_ms = Some(now_ms);
        // With a credit from before the failure, the member would get a burst of requests.
        self.credit = 0;
    }

    fn weight_percent(&self, settings: &GroupSettings, now_ms: u64) -> u64 {
        let Some(since_ms) = self.slow_start_since_ms else {
            return 100;
        };
        let elapsed_ms = now_ms.saturating_sub(since_ms);
        if elapsed_ms >= settings.slow_start_ms {
            return 100;
        }
        // Never 0, since without requests the member could not warm up.
        (elapsed_ms * 100 / settings.slow_start_ms).max(SLOW_START_PERCENT_MIN)
    }
}
