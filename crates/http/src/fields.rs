//! The fields of messages, the same for every version of HTTP. Read RFC 9110 §5.

mod lines;

pub use self::lines::Lines;
