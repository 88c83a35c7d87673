//! Interim responses (1xx, except 100 and 101): sent to the client at once, while its request remains deferred. Knows
//! neither their producers nor limits on their number.

use lowroad_http::fields::ResponseFields;
use lowroad_http::status::StatusCode;

/// An interim response (RFC 9110 §15.2).
#[derive(Clone, Debug)]
pub struct InterimResponse {
    /// 102 to 199.
    pub status: StatusCode,
    /// The fields.
    pub fields: ResponseFields,
}

impl InterimResponse {
    /// Whether this is the status of an interim response. 100 is excluded, as the server sends it by itself, and 101,
    /// as no final response follows it.
    pub fn is_one(status: StatusCode) -> bool {
        (102..200).contains(&status.code())
    }
}
