//! When a certificate is renewed: in the window that its authority says (RFC 9773), else before two thirds of its
//! lifetime are over.

use serde::{Deserialize, Serialize};

use super::Jitter;

/// From when to when a certificate is valid, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validity {
    /// The first second.
    pub not_before_s: u64,
    /// The last one.
    pub not_after_s: u64,
}

/// When an authority wants a certificate renewed, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Not before.
    pub start_s: u64,
    /// Before.
    pub end_s: u64,
}

/// How near the end of a certificate is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LifetimeStage {
    /// There is time to renew it.
    #[default]
    Valid,
    /// The last tenth of its lifetime has begun.
    Expiring,
    /// It is over.
    Expired,
}

impl Validity {
    /// How near its end is.
    pub fn stage(self, now_s: u64) -> LifetimeStage {
        match now_s {
            _ if now_s > self.not_after_s => LifetimeStage::Expired,
            _ if now_s > self.last_tenth_s() => LifetimeStage::Expiring,
            _ => LifetimeStage::Valid,
        }
    }

    /// When the next stage begins.
    pub fn next_stage_s(self, now_s: u64) -> u64 {
        match self.stage(now_s) {
            LifetimeStage::Valid => self.last_tenth_s() + 1,
            LifetimeStage::Expiring => self.not_after_s + 1,
            LifetimeStage::Expired => u64::MAX,
        }
    }

    fn last_tenth_s(self) -> u64 {
        self.not_after_s - self.lifetime_s() / 10
    }

    /// In seconds.
    pub fn lifetime_s(self) -> u64 {
        self.not_after_s.saturating_sub(self.not_before_s)
    }

    /// A second at which to renew. A window that ends before it starts says nothing; one that is too late to try
    /// twice is not waited for.
    pub fn renewal_s(self, window: Option<Window>, jitter: Jitter) -> u64 {
        let lifetime_s = self.lifetime_s();
        let latest_s = self.not_before_s + lifetime_s / 20 * 19;
        match window {
            Some(window) if window.start_s < window.end_s => {
                let within_s = window.start_s + jitter.of(window.end_s - window.start_s);
                within_s.min(latest_s)
            }
            _ => self.not_before_s + lifetime_s / 3 * 2 - jitter.of(lifetime_s / 30),
        }
    }
}
