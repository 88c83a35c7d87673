//! One member: what is known of it, how it stands, and what it weighs now. It knows nothing of the others.

use std::fmt;
use std::sync::Arc;

use super::circuit::{Circuit, Passage};
use super::clients::ClientSet;
use super::settings::Settings;

/// A weight of 1 is so much, so that a part of it is still something.
pub const WEIGHT_UNIT: u64 = 256;
/// What part of its weight a member has when it has just come back.
const SLOW_START_PERCENT_MIN: u64 = 10;

/// What a member is when it is added.
#[derive(Clone, Debug)]
pub struct NewMember {
    /// How it is called in logs and status; also what consistent hashing knows it by.
    pub name: Arc<str>,
    /// How much it takes, compared to others; at least 1.
    pub weight: u32,
    /// It is only asked when none of the others can be.
    pub backup: bool,
}

/// What a member did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How often it was picked.
    pub picked: u64,
    /// Requests that it answered.
    pub answered: u64,
    /// Connections that did not come about.
    pub connect_failed: u64,
    /// Requests whose time was over.
    pub timed_out: u64,
    /// Connections that were lost before the response was whole.
    pub lost: u64,
    /// Responses that are none.
    pub malformed: u64,
    /// Responses whose status says that it fails.
    pub server_errors: u64,
    /// Requests that were given up for no fault of its.
    pub cancelled: u64,
    /// How often failing requests took it out.
    pub ejected: u64,
    /// Active checks that it passed.
    pub checks_passed: u64,
    /// Active checks that it failed.
    pub checks_failed: u64,
}

/// How a member stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is asked.
    Up,
    /// It has come back and is asked with a part of its weight.
    SlowStart {
        /// How much of it.
        percent: u32,
    },
    /// A request will try whether it is back.
    Trial,
    /// A request tries whether it is back.
    Tried,
    /// Requests failed: it is not asked until then.
    Ejected {
        /// Monotonic ms.
        until_ms: u64,
    },
    /// Active checks failed.
    Down,
    /// It has as many requests, or as many that wait, as it may.
    Full,
    /// It gets no new requests because somebody said so.
    Draining,
}

impl fmt::Display for Standing {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Standing::Up => to.write_str("up"),
            Standing::SlowStart { percent } => write!(to, "slow start, {percent} %"),
            Standing::Trial => to.write_str("to be tried"),
            Standing::Tried => to.write_str("being tried"),
            Standing::Ejected { .. } => to.write_str("ejected"),
            Standing::Down => to.write_str("down"),
            Standing::Full => to.write_str("full"),
            Standing::Draining => to.write_str("draining"),
        }
    }
}

/// A member.
pub struct Member<P> {
    pub generation: u32,
    pub place: P,
    pub name: Arc<str>,
    pub hash: u64,
    pub weight: u32,
    pub backup: bool,
    pub draining: bool,
    pub circuit: Circuit,
    /// By active checks; without any, it is.
    pub is_healthy: bool,
    /// Active checks in a row that say the opposite.
    pub opposed: u32,
    /// When its weight began to grow.
    pub grows_since_ms: Option<u64>,
    /// Its place in the turns of round robin.
    pub turn: i64,
    /// Requests, also those that wait for a connection.
    pub requests: u32,
    /// Of them, those whose connection speaks another protocol now: load, but none of the requests that it may have.
    pub tunnels: u32,
    /// Requests that wait for a connection.
    pub pending: u32,
    pub counts: Counts,
}

impl<P> Member<P> {
    /// How it stands now, for requests of `clients`.
    pub fn standing(&self, settings: &Settings, clients: ClientSet, now_ms: u64) -> Standing {
        if self.draining {
            return Standing::Draining;
        }
        if !self.is_healthy {
            return Standing::Down;
        }
        match self.circuit.passage(&settings.circuit, clients, now_ms) {
            Passage::Shut { until_ms } => return Standing::Ejected { until_ms },
            Passage::Tried => return Standing::Tried,
            Passage::Trial if !self.is_full(settings) => return Standing::Trial,
            Passage::Trial | Passage::Open => {}
        }
        if self.is_full(settings) {
            return Standing::Full;
        }
        match self.grown_percent(settings, now_ms) {
            100 => Standing::Up,
            percent => Standing::SlowStart {
                percent: percent as u32,
            },
        }
    }

    /// It has as many requests as it may.
    pub fn is_full(&self, settings: &Settings) -> bool {
        let circuit = &settings.circuit;
        self.requests - self.tunnels >= circuit.requests_max || self.pending >= circuit.pending_max
    }

    /// What it weighs now; more than 0.
    pub fn weighs(&self, settings: &Settings, now_ms: u64) -> u64 {
        let whole = u64::from(self.weight.max(1)) * WEIGHT_UNIT;
        whole * self.grown_percent(settings, now_ms) / 100
    }

    /// From now on its weight grows.
    pub fn begin_slowly(&mut self, now_ms: u64) {
        self.grows_since_ms = Some(now_ms);
        self.turn = 0;
    }

    fn grown_percent(&self, settings: &Settings, now_ms: u64) -> u64 {
        let Some(since_ms) = self.grows_since_ms else {
            return 100;
        };
        let grown_ms = now_ms.saturating_sub(since_ms);
        if grown_ms >= settings.slow_start_ms {
            return 100;
        }
        (grown_ms * 100 / settings.slow_start_ms).max(SLOW_START_PERCENT_MIN)
    }
}
