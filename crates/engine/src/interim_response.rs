//! Responses before the one that counts (1xx, but for 100 and 101): sent to the client at once, while its request goes on
//! waiting. Knows not who makes them, nor how many there may be.

use lowroad_http::fields::ResponseFields;
use lowroad_http::status::StatusCode;

/// A response before the one that counts.
#[derive(Clone, Debug)]
pub struct InterimResponse {
    /// 102 to 199.
    pub status: StatusCode,
    /// Its fields.
    pub fields: ResponseFields,
}

impl InterimResponse {
    /// Whether a response with this status may come before the one that counts. The server says 100 by itself, and 101
    /// is no interim response here: nothing follows it.
    pub fn is_one(status: StatusCode) -> bool {
        (102..200).contains(&status.code())
    }
}
