//! One member of a group: its health, counters and current weight.

use std::fmt;
use std::sync::Arc;

use super::circuit::{CircuitBreaker, CircuitDecision};
use super::clients::ClientSet;
use super::settings::GroupSettings;

/// The internal value of weight 1, so that a percentage of it is more than 0.
pub const WEIGHT_UNIT: u64 = 256;
/// Slow start: the least percentage of its weight that a returning member has.
const SLOW_START_PERCENT_MIN: u64 = 10;

/// The parameters of a new member.
#[derive(Clone, Debug)]
pub struct NewMember {
    /// Its name in logs and status. Consistent hashing uses the name's hash.
    pub name: Arc<str>,
    /// Its share relative to others; at least 1.
    pub weight: u32,
    /// Whether it is a backup, used only if no primary member is available.
    pub backup: bool,
}

/// Counters of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberCounters {
    /// Picks.
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
    /// Responses with a status code of failure.
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
    /// It gets requests.
    Up,
    /// It has returned and gets requests with a part of its weight.
    SlowStart {
        /// The part in percent.
        percent: u32,
    },
    /// The next request is a trial after an ejection.
    Trial,
    /// A trial is in progress.
    Tried,
    /// Ejected after failed requests, until then.
    Ejected {
        /// Monotonic ms.
        until_ms: u64,
    },
    /// Active checks failed.
    Down,
    /// It has the maximum of requests, or of pending ones.
    Full,
    /// The operator drains it: it gets no new requests.
    Draining,
}

impl fmt::Display for MemberHealth {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemberHealth::Up => to.write_str("up"),
            MemberHealth::SlowStart { percent } => write!(to, "slow start, {percent} %"),
            MemberHealth::Trial => to.write_str("half-open"),
            MemberHealth::Tried => to.write_str("half-open, trial request in progress"),
            MemberHealth::Ejected { .. } => to.write_str("ejected"),
            MemberHealth::Down => to.write_str("down"),
            MemberHealth::Full => to.write_str("full"),
            MemberHealth::Draining => to.write_str("draining"),
        }
    }
}

/// A member of a group.
pub struct GroupMember<P> {
    pub generation: u32,
    pub target: P,
    pub name: Arc<str>,
    pub hash: u64,
    pub weight: u32,
    pub backup: bool,
    pub draining: bool,
    pub circuit: CircuitBreaker,
    /// By active checks; true without any.
    pub is_healthy: bool,
    /// Successive active checks with the opposite result.
    pub contrary_checks: u32,
    /// The start of its slow start.
    pub slow_start_since_ms: Option<u64>,
    /// Its credit in smooth weighted round robin.
    pub credit: i64,
    /// Requests in progress, including those that wait for a connection.
    pub requests: u32,
    /// Of them, tunnels: they count as load, but not for the maximum of requests.
    pub tunnels: u32,
    /// Requests that wait for a connection.
    pub pending: u32,
    pub counts: MemberCounters,
}

impl<P> GroupMember<P> {
    /// Its health for requests of `clients`.
    pub fn health(
        &self,
        settings: &GroupSettings,
        clients: ClientSet,
        now_ms: u64,
    ) -> MemberHealth {
        // In the order of precedence: the operator's decision, active checks, failed requests, load.
        if self.draining {
            return MemberHealth::Draining;
        }
        if !self.is_healthy {
            return MemberHealth::Down;
        }
        match self.circuit.decide(&settings.circuit, clients, now_ms) {
            // A full member gets no trial either.
            CircuitDecision::Shut { until_ms } => return MemberHealth::Ejected { until_ms },
            CircuitDecision::Tried => return MemberHealth::Tried,
            CircuitDecision::Trial if !self.is_full(settings) => return MemberHealth::Trial,
            CircuitDecision::Trial | CircuitDecision::Open => {}
        }
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

    /// Whether it has the maximum of requests, or of pending ones.
    pub fn is_full(&self, settings: &GroupSettings) -> bool {
        let circuit = &settings.circuit;
        // Tunnels last for days and have their own bound.
        self.requests - self.tunnels >= circuit.requests_max || self.pending >= circuit.pending_max
    }

    /// Its current weight; more than 0.
    pub fn current_weight(&self, settings: &GroupSettings, now_ms: u64) -> u64 {
        let full_weight = u64::from(self.weight.max(1)) * WEIGHT_UNIT;
        full_weight * self.weight_percent(settings, now_ms) / 100
    }

    /// Begins a slow start.
    pub fn begin_slow_start(&mut self, now_ms: u64) {
        self.slow_start_since_ms = Some(now_ms);
        // A credit from before the failure would send a burst at once.
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
        // Never 0: without requests it could not warm up.
        (elapsed_ms * 100 / settings.slow_start_ms).max(SLOW_START_PERCENT_MIN)
    }
}
