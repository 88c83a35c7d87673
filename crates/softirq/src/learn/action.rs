//! Actions that the state machine requests, and its identifiers.

use super::verdict::Denial;
use crate::response::fetched::Validators;
use crate::response::prepare::Prepared;
use lowroad_wire::key::Key;

/// Identifies a fetch. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub(super) u64);

/// Identifies a published response. Never used twice, and larger than all before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Serial(pub(super) u64);

impl Serial {
    /// For publication without a `ResponseLearner`; the caller must keep serials unique and increasing.
    #[must_use]
    pub fn new(number: u64) -> Serial {
        Serial(number)
    }
}

/// A response that is not published any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    /// Its serial.
    pub serial: Serial,
    /// Its key, under which another response may be published by now.
    pub key: Key,
    /// The hash of the key.
    pub hash: u64,
}

/// An action to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Fetch a response and report the result with `ResponseLearner::fetched`.
    Fetch {
        /// Identifies the fetch in the report.
        ticket: Ticket,
        /// The request.
        key: Key,
        /// Validators for a conditional request; empty for a plain one.
        validators: Validators,
    },
    /// Enter a response into the index, in the place of one with the same key if there is one.
    Publish {
        /// Its serial.
        serial: Serial,
        /// Its key.
        key: Key,
        /// The hash of the key.
        hash: u64,
        /// Its bytes.
        prepared: Prepared,
        /// Its age is `now - born_ns`, modulo 2^64: it may have been born before the clock began.
        born_ns: u64,
        /// It must not be sent from then on.
        expires_ns: u64,
        /// The response of the same key that a later `LearnAction::Retire` retires.
        replaces: Option<Serial>,
    },
    /// Change the times of a published response.
    Extend {
        /// Its serial.
        serial: Serial,
        /// Its key.
        key: Key,
        /// The hash of the key.
        hash: u64,
        /// As in `LearnAction::Publish`.
        born_ns: u64,
        /// As in `LearnAction::Publish`.
        expires_ns: u64,
    },
    /// Remove responses from the index and free them after a grace period.
    Retire {
        /// The responses; never empty.
        gone: Vec<Gone>,
    },
    /// Do not report requests with this hash until the given time.
    Deny {
        /// The hash of the key.
        hash: u64,
        /// The end of the denial.
        until_ns: u64,
        /// The reason, for the log.
        reason: Denial,
    },
}
