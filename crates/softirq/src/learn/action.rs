//! What the state machine wants done, and how it names things. It knows nothing of why.

use super::verdict::Denial;
use crate::response::fetched::Validators;
use crate::response::prepare::Prepared;
use lowroad_wire::key::Key;

/// Names a fetch that was asked for. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub(super) u64);

/// Names a published response. Never used twice, and larger than all before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Serial(pub(super) u64);

impl Serial {
    /// For who publishes without a [`super::Learner`]; what is asked of a name is for the caller to keep.
    #[must_use]
    pub fn new(number: u64) -> Serial {
        Serial(number)
    }
}

/// A response that is published no longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    /// Its name.
    pub serial: Serial,
    /// Its key, under which another response may be published by now.
    pub key: Key,
    /// The hash of the key.
    pub hash: u64,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Fetch the response and say what came with [`super::Learner::fetched`].
    Fetch {
        /// To be given back.
        ticket: Ticket,
        /// What to ask for.
        key: Key,
        /// What to ask after; empty for a plain request.
        validators: Validators,
    },
    /// Put a response into the index, in the place of one with the same key if there is one.
    Publish {
        /// Its name.
        serial: Serial,
        /// Its key.
        key: Key,
        /// The hash of the key.
        hash: u64,
        /// Its bytes.
        prepared: Prepared,
        /// Its age is `now - born_ns`, modulo 2^64: it may have been born before the clock began.
        born_ns: u64,
        /// From then on it must not be sent.
        expires_ns: u64,
        /// The response of the same key that a later [`Action::Retire`] names.
        replaces: Option<Serial>,
    },
    /// Change the times of a published response.
    Extend {
        /// Its name.
        serial: Serial,
        /// Its key.
        key: Key,
        /// The hash of the key.
        hash: u64,
        /// As in [`Action::Publish`].
        born_ns: u64,
        /// As in [`Action::Publish`].
        expires_ns: u64,
    },
    /// Take responses out of the index and free them after a grace period.
    Retire {
        /// Which; never empty.
        gone: Vec<Gone>,
    },
    /// Do not report this hash as asked until then.
    Deny {
        /// The hash of the key.
        hash: u64,
        /// The end of it.
        until_ns: u64,
        /// Why, for the log.
        reason: Denial,
    },
}
