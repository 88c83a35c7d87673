//! The fields of messages, in one form for all versions of HTTP. Read RFC 9110 §5.
//!
//! The fields of a request are `FieldLines` of the buffer that received it; those of a response made here are
//! `ResponseFields`. Neither has connection-specific fields, unless a client sent them.

mod known;
mod lines;
mod names;
mod response;
mod trailers;

pub use self::known::Known;
pub use self::lines::Lines;
pub use self::names::FieldNames;
pub use self::response::{Fields, Name, is_token};
