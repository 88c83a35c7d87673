//! The fields of messages, in one form for all versions of HTTP. Read RFC 9110 §5.
//!
//! The fields of a request are `FieldLines` of the buffer that received it; the fields of a response generated here are
//! `ResponseFields`. Neither has connection-specific fields, unless a client sent them.

mod lines;
mod names;
mod response;
mod standard_headers;
mod trailers;

pub use self::lines::FieldLines;
pub use self::names::FieldNames;
pub use self::response::{FieldName, ResponseFields, is_token};
pub use self::standard_headers::StandardHeader;
