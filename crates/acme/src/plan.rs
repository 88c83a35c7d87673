//! What is due when, for one certificate. It knows no clock, network or file: the time, and chance, are arguments.
//!
//! Call [`Plan::holds`] with the certificate that there is, then ask [`Plan::due`] what to do, and say what came of
//! it: [`Plan::got`], [`Plan::window`] or [`Plan::failed`].

use serde::{Deserialize, Serialize};

mod backoff;
mod renewal;
#[cfg(test)]
mod tests;

pub use backoff::{Kind, Trouble};
pub use renewal::{LifetimeStage, Validity, Window};

/// From a certificate to the next order.
const BETWEEN_S: u64 = 3600;

/// Chance, as a part of 2³².
#[derive(Clone, Copy, Debug)]
pub struct Jitter(pub u32);

impl Jitter {
    /// Somewhere in `0..span`.
    pub(crate) fn of(self, span: u64) -> u64 {
        let part = (u128::from(span) * u128::from(self.0)) >> 32;
        u64::try_from(part).unwrap_or(span)
    }
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// A certificate is to be ordered from the authority at this place.
    Order(usize),
    /// The authority is to be asked when it wants the certificate renewed.
    Window,
    /// Nothing before this second.
    At(u64),
}

/// What is planned for one certificate. It is kept in a file, so that a restart asks no authority too early.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// In the order in which they are tried.
    authorities: Vec<Standing>,
    /// What stands in the way here: no authority can help.
    local: Hold,
    held: Option<Held>,
    last_error: Option<LastError>,
}

/// An authority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Standing {
    url: String,
    hold: Hold,
}

/// What failures have led to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Hold {
    /// One after the other.
    failures: u32,
    /// It is not tried before.
    until_s: u64,
}

/// The certificate that there is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Held {
    /// What tells it from others; two may last equally long.
    fingerprint: String,
    validity: Validity,
    window: Option<Window>,
    /// A second in the window, or before two thirds of the lifetime.
    renewal_s: u64,
    /// When the window is asked for next.
    ask_s: u64,
}

/// What went wrong last, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastError {
    /// When, in seconds since 1970.
    pub at_s: u64,
    /// What.
    pub text: String,
}

impl Plan {
    /// Without a certificate, for authorities with these directories, the preferred first.
    pub fn new<'a>(urls: impl IntoIterator<Item = &'a str>) -> Plan {
        Plan::default().with(urls)
    }

    /// The same plan for other authorities: what is known of those that stay is kept.
    pub fn with<'a>(mut self, urls: impl IntoIterator<Item = &'a str>) -> Plan {
        let known = std::mem::take(&mut self.authorities);
        let standing = |url: &str| {
            let known = known.iter().find(|standing| standing.url == url);
            known.cloned().unwrap_or_else(|| Standing {
                url: url.into(),
                hold: Hold::default(),
            })
        };
        self.authorities = urls.into_iter().map(standing).collect();
        self
    }

    /// There is this certificate. If it is another than before, all is well again, and its window is asked for.
    pub fn holds(&mut self, fingerprint: &str, validity: Validity, jitter: Jitter) {
        let held = self.held.as_ref();
        if held.is_some_and(|held| held.fingerprint == fingerprint) {
            return;
        }
        self.held = Some(Held {
            fingerprint: fingerprint.into(),
            validity,
            window: None,
            renewal_s: validity.renewal_s(None, jitter),
            ask_s: 0,
        });
        self.last_error = None;
        self.forgive();
    }

    /// An order has brought this certificate. Whatever its authority says of it, the next order comes no sooner than
    /// an hour later: certificates that are to be renewed as soon as they are there would be ordered for ever.
    pub fn got(&mut self, now_s: u64, fingerprint: &str, validity: Validity, jitter: Jitter) {
        self.holds(fingerprint, validity, jitter);
        self.local.until_s = now_s + BETWEEN_S;
    }

    /// There is none, or not for all names.
    pub fn holds_none(&mut self) {
        self.held = None;
    }

    /// There was one, and it cannot be read any more: the wait between two certificates is over. What authorities are
    /// waited for stays.
    pub fn lost(&mut self) {
        self.held = None;
        self.local = Hold::default();
    }

    /// The authority has said when it wants the certificate renewed, or nothing; it is asked again at `ask_s`.
    pub fn window(&mut self, window: Option<Window>, ask_s: u64, jitter: Jitter) {
        let Some(held) = &mut self.held else {
            return;
        };
        held.ask_s = ask_s;
        // The same window means the same second: it would move on and on otherwise.
        if held.window != window {
            held.window = window;
            held.renewal_s = held.validity.renewal_s(window, jitter);
        }
    }

    /// The authority could not be asked for its window; what it said before holds until `ask_s`.
    pub fn ask_later(&mut self, ask_s: u64) {
        if let Some(held) = &mut self.held {
            held.ask_s = ask_s;
        }
    }

    /// An order of the authority at this place has failed. The next is tried at once, this one later.
    pub fn failed(&mut self, now_s: u64, place: usize, trouble: &Trouble, jitter: Jitter) {
        let lifetime_s = self.validity().map(|validity| validity.lifetime_s());
        let hold = match (trouble.kind, self.authorities.get_mut(place)) {
            (Kind::Local, _) | (_, None) => &mut self.local,
            (_, Some(standing)) => &mut standing.hold,
        };
        hold.failures = hold.failures.saturating_add(1);
        hold.until_s = now_s + trouble.delay_s(hold.failures, lifetime_s, jitter);
        self.note_error(now_s, &trouble.text);
    }

    /// Something is wrong that no order waits for.
    pub fn note_error(&mut self, now_s: u64, text: &str) {
        self.last_error = Some(LastError {
            at_s: now_s,
            text: text.into(),
        });
    }

    /// What went wrong last is well again.
    pub fn forget_error(&mut self) {
        self.last_error = None;
        self.local = Hold::default();
    }

    /// Somebody says that it will go well now: nothing is waited for.
    pub fn forgive(&mut self) {
        self.local = Hold::default();
        for standing in &mut self.authorities {
            standing.hold = Hold::default();
        }
    }

    /// What to do now.
    pub fn due(&self, now_s: u64) -> Due {
        match &self.held {
            Some(held) if now_s < held.renewal_s => match now_s < held.ask_s {
                true => Due::At(held.renewal_s.min(held.ask_s)),
                false => Due::Window,
            },
            _ => self.next_order(now_s),
        }
    }

    /// Whether a certificate is wanted, be it that none can be had now.
    pub fn needs_order(&self, now_s: u64) -> bool {
        let held = self.held.as_ref();
        held.is_none_or(|held| held.renewal_s <= now_s)
    }

    /// The first of the authorities that need not be waited for, or when there will be one.
    fn next_order(&self, now_s: u64) -> Due {
        let ready_s = |standing: &Standing| standing.hold.until_s.max(self.local.until_s);
        let ready = |standing: &Standing| ready_s(standing) <= now_s;
        match self.authorities.iter().position(ready) {
            Some(place) => Due::Order(place),
            None => Due::At(
                self.authorities
                    .iter()
                    .map(ready_s)
                    .min()
                    .unwrap_or(u64::MAX),
            ),
        }
    }

    /// When something is ordered next, if nobody says otherwise.
    pub fn next_order_s(&self, now_s: u64) -> u64 {
        match &self.held {
            Some(held) if now_s < held.renewal_s => held.renewal_s.max(self.local.until_s),
            _ => match self.next_order(now_s) {
                Due::At(at_s) => at_s,
                _ => now_s,
            },
        }
    }

    /// How long the certificate that there is lasts.
    pub fn validity(&self) -> Option<Validity> {
        self.held.as_ref().map(|held| held.validity)
    }

    /// What went wrong last, if nothing went well since.
    pub fn last_error(&self) -> Option<&LastError> {
        self.last_error.as_ref()
    }
}
