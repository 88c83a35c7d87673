//! The actions that the learner requests, and the identifiers in them.

use super::verdict::FetchDenial;
use crate::response::encoder::EncodedResponse;
use crate::response::fetched_response::RevalidationFields;
use lowroad_wire::key::RequestKey;

/// Identifies a fetch. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FetchTicket(pub(super) u64);

/// Identifies a published response. Never reused; each new serial is larger than all earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResponseSerial(pub(super) u64);

impl ResponseSerial {
    /// For publication without a `ResponseLearner`; the caller must keep serials unique and increasing.
    #[must_use]
    pub fn new(number: u64) -> ResponseSerial {
        ResponseSerial(number)
    }
}

/// A response that is no longer published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithdrawnResponse {
    /// The response's serial.
    pub serial: ResponseSerial,
    /// The response's key, under which another response may be published by now.
    pub key: RequestKey,
    /// The hash of the key.
    pub hash: u64,
}

/// An action to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LearnAction {
    /// Fetch a response and pass the result to `ResponseLearner::fetched`.
    Fetch {
        /// Identifies the fetch in the call of `ResponseLearner::fetched`.
        ticket: FetchTicket,
        /// The key of the request.
        key: RequestKey,
        /// Validators for a conditional request; empty for an unconditional one.
        validators: RevalidationFields,
    },
    /// Enter a response into the index. If the response replaces another one, it takes over the other's index entry.
    Publish {
        /// The response's serial.
        serial: ResponseSerial,
        /// The response's key.
        key: RequestKey,
        /// The hash of the key.
        hash: u64,
        /// The response's bytes.
        prepared: EncodedResponse,
        /// The response's age is `now - generated_ns`, modulo 2^64: it may have been generated before the clock's zero.
        generated_ns: u64,
        /// The response must not be sent from this time on.
        expires_ns: u64,
        /// The response that is replaced; it has the same key, and a later `LearnAction::Retire` retires it.
        replaces: Option<ResponseSerial>,
    },
    /// Change the times of a published response.
    Extend {
        /// The response's serial.
        serial: ResponseSerial,
        /// The response's key.
        key: RequestKey,
        /// The hash of the key.
        hash: u64,
        /// As in `LearnAction::Publish`.
        generated_ns: u64,
        /// As in `LearnAction::Publish`.
        expires_ns: u64,
    },
    /// Remove responses from the index, and free them after a grace period.
    Retire {
        /// The responses to remove; never empty.
        withdrawn: Vec<WithdrawnResponse>,
    },
    /// Do not report requests with this hash until the given time.
    Deny {
        /// The hash of the key.
        hash: u64,
        /// The end of the denial.
        until_ns: u64,
        /// The reason, for the log.
        reason: FetchDenial,
    },
}
