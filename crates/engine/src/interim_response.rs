//! Interim responses (1xx, except 100 and 101), which are sent to the client while its request remains deferred.

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
    /// Whether `status` is that of an interim response that a handler may send. 100 is excluded, as the engine sends
    /// it, and 101, as no final response follows it.
    pub fn is_interim_status(status: StatusCode) -> bool {
        (102..200).contains(&status.code())
    }
}
