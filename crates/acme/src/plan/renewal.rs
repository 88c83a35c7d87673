//! Determines when a certificate is renewed: within the authority's renewal window (RFC 9773), otherwise shortly before
//! two thirds of its lifetime.

use serde::{Deserialize, Serialize};

use super::RenewalJitter;

/// The validity of a certificate, in seconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValidityPeriod {
    /// The first valid second.
    pub not_before_s: u64,
    /// The last valid second.
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

/// The stage of a certificate's lifetime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LifetimeStage {
    /// Expiry is not near; there is time for a renewal.
    #[default]
    Valid,
    /// The last tenth of the lifetime has begun.
    Expiring,
    /// The certificate has expired.
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

    /// The time at which the next stage begins.
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

    /// The time of the renewal. A window that ends before it starts is ignored; a late window is limited to 95 % of the
    /// lifetime.
    pub fn renewal_s(self, window: Option<RenewalWindow>, jitter: RenewalJitter) -> u64 {
        let lifetime_s = self.lifetime_s();
        // A later renewal would leave no time for a second attempt.
        let latest_s = self.not_before_s + lifetime_s / 20 * 19;
        match window {
            Some(window) if window.start_s < window.end_s => {
                let within_s = window.start_s + jitter.share_of(window.end_s - window.start_s);
                within_s.min(latest_s)
            }
            // The time is random within the thirtieth of the lifetime that ends at two thirds of the lifetime.
            _ => self.not_before_s + lifetime_s / 3 * 2 - jitter.share_of(lifetime_s / 30),
        }
    }
}
