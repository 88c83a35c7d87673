//! The renewal plan of one certificate: determines the next step and its time. Pure: the time and random numbers are
//! arguments.
//!
//! Call `RenewalPlan::set_current` with the current certificate, take the next step from `RenewalPlan::next_step`, and
//! report its outcome to `RenewalPlan::record_issued`, `RenewalPlan::window` or `RenewalPlan::record_failure`.

use serde::{Deserialize, Serialize};

mod backoff;
mod renewal;
#[cfg(test)]
mod tests;

pub use backoff::{AcmeFailure, FailureKind};
pub use renewal::{LifetimeStage, RenewalWindow, ValidityPeriod};

/// The minimum time between an issued certificate and the next order, in seconds.
const ORDER_INTERVAL_S_MIN: u64 = 3600;

/// A random number, as a fraction of 2³².
#[derive(Clone, Copy, Debug)]
pub struct RenewalJitter(pub u32);

impl RenewalJitter {
    /// Maps the random number to `0..span`.
    pub(crate) fn share_of(self, span: u64) -> u64 {
        let share = (u128::from(span) * u128::from(self.0)) >> 32;
        u64::try_from(share).unwrap_or(span)
    }
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanStep {
    /// Order a certificate from the authority at this index.
    Order(usize),
    /// Request the renewal window from the issuer.
    Window,
    /// Wait until this second.
    At(u64),
}

/// The renewal plan of one certificate. It is stored in a file, so that a restart does not shorten the delays after
/// failures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewalPlan {
    /// The authorities, in order of preference.
    authorities: Vec<AuthorityHealth>,
    /// Failures on this machine, which delay orders from all authorities.
    local: RetryState,
    held: Option<CurrentCertificate>,
    last_error: Option<LastError>,
}

/// The failures of an authority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct AuthorityHealth {
    url: String,
    hold: RetryState,
}

/// The delay caused by consecutive failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct RetryState {
    /// The number of consecutive failures.
    failures: u32,
    /// No attempt before this second.
    until_s: u64,
}

/// The current certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct CurrentCertificate {
    /// The certificate's fingerprint; the validity alone does not identify it.
    fingerprint: String,
    validity: ValidityPeriod,
    window: Option<RenewalWindow>,
    /// The time of the renewal: within the window, or before two thirds of the lifetime without one.
    renewal_s: u64,
    /// The time of the next request for the window.
    ask_s: u64,
}

/// The last error, as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastError {
    /// The time of the error, in seconds since 1970-01-01 UTC.
    pub at_s: u64,
    /// The error.
    pub text: String,
}

impl RenewalPlan {
    /// A plan without a certificate, for the authorities with these directory URLs, in order of preference.
    pub fn new<'a>(urls: impl IntoIterator<Item = &'a str>) -> RenewalPlan {
        RenewalPlan::default().with_authorities(urls)
    }

    /// Replaces the authorities; those with unchanged URLs keep their state.
    pub fn with_authorities<'a>(mut self, urls: impl IntoIterator<Item = &'a str>) -> RenewalPlan {
        let previous = std::mem::take(&mut self.authorities);
        let health = |url: &str| {
            let known_health = previous.iter().find(|health| health.url == url);
            known_health.cloned().unwrap_or_else(|| AuthorityHealth {
                url: url.into(),
                hold: RetryState::default(),
            })
        };
        self.authorities = urls.into_iter().map(health).collect();
        self
    }

    /// Sets the current certificate. For a new certificate, clears all errors and delays, and makes the request for its
    /// window due.
    pub fn set_current(
        &mut self,
        fingerprint: &str,
        validity: ValidityPeriod,
        jitter: RenewalJitter,
    ) {
        let current = self.held.as_ref();
        // Setting the same certificate again, for example after a restart, keeps the delays and the window.
        if current.is_some_and(|current| current.fingerprint == fingerprint) {
            return;
        }
        self.held = Some(CurrentCertificate {
            fingerprint: fingerprint.into(),
            validity,
            window: None,
            renewal_s: validity.renewal_s(None, jitter),
            ask_s: 0,
        });
        // A new certificate shows that the causes of earlier failures are gone.
        self.last_error = None;
        self.reset_failures();
    }

    /// Records an issued certificate. The next order follows after at least an hour, even if the window is earlier: an
    /// authority with certificates that are always due for renewal would otherwise cause endless orders.
    pub fn record_issued(
        &mut self,
        now_s: u64,
        fingerprint: &str,
        validity: ValidityPeriod,
        jitter: RenewalJitter,
    ) {
        self.set_current(fingerprint, validity, jitter);
        self.local.until_s = now_s + ORDER_INTERVAL_S_MIN;
    }

    /// Records that there is no certificate, or that it lacks names.
    pub fn clear_current(&mut self) {
        self.held = None;
    }

    /// Records that the certificate has become unreadable. Ends the minimum time between two orders, but not the delays
    /// after failures of authorities.
    pub fn current_lost(&mut self) {
        self.held = None;
        self.local = RetryState::default();
    }

    /// Sets the authority's renewal window, if it has one, and the time of the next request.
    pub fn window(&mut self, window: Option<RenewalWindow>, ask_s: u64, jitter: RenewalJitter) {
        let Some(current) = &mut self.held else {
            return;
        };
        current.ask_s = ask_s;
        // An unchanged window keeps its renewal time: drawing a new time after each request could postpone the renewal
        // forever.
        if current.window != window {
            current.window = window;
            current.renewal_s = current.validity.renewal_s(window, jitter);
        }
    }

    /// Records that the request for the window failed; the last window stays in use. The next request is at `ask_s`.
    pub fn postpone_query(&mut self, ask_s: u64) {
        if let Some(current) = &mut self.held {
            current.ask_s = ask_s;
        }
    }

    /// Records a failed order from the authority at this index. The next authority is tried immediately, this one after
    /// a delay.
    pub fn record_failure(
        &mut self,
        now_s: u64,
        authority_index: usize,
        failure: &AcmeFailure,
        jitter: RenewalJitter,
    ) {
        let lifetime_s = self.validity().map(|validity| validity.lifetime_s());
        // A local failure delays orders from all authorities; a failure of an authority delays only orders from it.
        let retry = match (failure.kind, self.authorities.get_mut(authority_index)) {
            (FailureKind::Local, _) | (_, None) => &mut self.local,
            (_, Some(health)) => &mut health.hold,
        };
        retry.failures = retry.failures.saturating_add(1);
        retry.until_s = now_s + failure.delay_s(retry.failures, lifetime_s, jitter);
        self.record_error(now_s, &failure.text);
    }

    /// Records an error without delaying orders.
    pub fn record_error(&mut self, now_s: u64, text: &str) {
        self.last_error = Some(LastError {
            at_s: now_s,
            text: text.into(),
        });
    }

    /// Clears the last error, and the delay after local failures.
    pub fn forget_error(&mut self) {
        self.last_error = None;
        self.local = RetryState::default();
    }

    /// Ends all delays.
    pub fn reset_failures(&mut self) {
        self.local = RetryState::default();
        for health in &mut self.authorities {
            health.hold = RetryState::default();
        }
    }

    /// Makes an order due at the operator's request, and ends the delay after local failures: the operator may have removed
    /// their cause. Delays after failures of an authority stay, so that its rate limits are kept.
    pub fn request_order(&mut self, now_s: u64) {
        self.local = RetryState::default();
        if let Some(current) = &mut self.held {
            current.renewal_s = current.renewal_s.min(now_s);
        }
    }

    /// The next step.
    pub fn next_step(&self, now_s: u64) -> PlanStep {
        match &self.held {
            // The window is requested before the renewal, since it may make the renewal earlier.
            Some(current) if now_s < current.renewal_s => match now_s < current.ask_s {
                true => PlanStep::At(current.renewal_s.min(current.ask_s)),
                false => PlanStep::Window,
            },
            _ => self.next_order(now_s),
        }
    }

    /// Whether an order is due, even if it is delayed.
    pub fn needs_order(&self, now_s: u64) -> bool {
        let current = self.held.as_ref();
        current.is_none_or(|current| current.renewal_s <= now_s)
    }

    /// An order from the first authority that is not delayed, or the end of the shortest delay.
    fn next_order(&self, now_s: u64) -> PlanStep {
        // Both delays must be over: the authority's and the local one.
        let ready_s = |health: &AuthorityHealth| health.hold.until_s.max(self.local.until_s);
        let ready = |health: &AuthorityHealth| ready_s(health) <= now_s;
        match self.authorities.iter().position(ready) {
            Some(authority_index) => PlanStep::Order(authority_index),
            None => PlanStep::At(
                self.authorities
                    .iter()
                    .map(ready_s)
                    .min()
                    .unwrap_or(u64::MAX),
            ),
        }
    }

    /// The time of the next order, unless an event changes it.
    pub fn next_order_s(&self, now_s: u64) -> u64 {
        match &self.held {
            Some(current) if now_s < current.renewal_s => current.renewal_s.max(self.local.until_s),
            _ => match self.next_order(now_s) {
                PlanStep::At(at_s) => at_s,
                _ => now_s,
            },
        }
    }

    /// The validity of the current certificate.
    pub fn validity(&self) -> Option<ValidityPeriod> {
        self.held.as_ref().map(|current| current.validity)
    }

    /// The last error; `None` if an order has succeeded since.
    pub fn last_error(&self) -> Option<&LastError> {
        self.last_error.as_ref()
    }
}
