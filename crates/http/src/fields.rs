//! The fields of messages, the same for every version of HTTP. Read RFC 9110 §5.
//!
//! Those of a request are [`Lines`] of the buffer that it came in; those of a response that is made here are [`Fields`].
//! Neither has a field of the connection, unless a client sent it.

mod known;
mod lines;
mod names;
mod response;
mod trailers;

pub use self::known::Known;
pub use self::lines::Lines;
pub use self::names::FieldNames;
pub use self::response::{Fields, Name, is_token};
