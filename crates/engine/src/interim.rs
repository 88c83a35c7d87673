//! Responses before the one that counts (1xx, but for 100 and 101): sent to the client at once, while its request goes on
//! waiting. Knows not who makes them, nor how many there may be.

use lowroad_http::fields::Fields;
use lowroad_http::status::Status;

/// A response before the one that counts.
#[derive(Clone, Debug)]
pub struct Interim {
    /// 102 to 199.
    pub status: Status,
    /// Its fields.
    pub fields: Fields,
}

impl Interim {
    /// Whether a response with this status may come before the one that counts. The server says 100 by itself, and 101
    /// is no interim response here: nothing follows it.
    pub fn is_one(status: Status) -> bool {
        (102..200).contains(&status.code())
    }
}
