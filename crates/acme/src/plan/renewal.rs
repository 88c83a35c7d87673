//! The renewal time of a certificate: in the window of its authority (RFC 9773), otherwise before two thirds of its
//! lifetime have passed.

use serde::{Deserialize, Serialize};

use super::RenewalJitter;

/// The validity of a certificate, in seconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValidityPeriod {
    /// The first second.
    pub not_before_s: u64,
    /// The last one.
    pub not_after_s: u64,
}

/// An authority's renewal window, in seconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewalWindow {
    /// The earliest renewal.
    pub start_s: u64,
    /// The latest renewal.
    pub end_s: u64,
}

/// How near a certificate's expiry is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LifetimeStage {
    /// There is time to renew it.
    #[default]
    Valid,
    /// The last tenth of its lifetime has begun.
    Expiring,
    /// It has expired.
    Expired,
}

impl ValidityPeriod {
    /// The stage at this time.
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

    /// The lifetime in seconds.
    pub fn lifetime_s(self) -> u64 {
        self.not_after_s.saturating_sub(self.not_before_s)
    }

    /// The time of the renewal. A window that ends before it starts is ignored; one that is too late for two attempts
    /// is not waited for.
    pub fn renewal_s(self, window: Option<RenewalWindow>, jitter: RenewalJitter) -> u64 {
        let lifetime_s = self.lifetime_s();
        // 95 % of the lifetime: a later renewal would leave no time for a second attempt.
        let latest_s = self.not_before_s + lifetime_s / 20 * 19;
        match window {
            Some(window) if window.start_s < window.end_s => {
                let within_s = window.start_s + jitter.share_of(window.end_s - window.start_s);
                within_s.min(latest_s)
            }
            // Spread over a thirtieth of the lifetime, before two thirds of it.
            _ => self.not_before_s + lifetime_s / 3 * 2 - jitter.share_of(lifetime_s / 30),
        }
    }
}
