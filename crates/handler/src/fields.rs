//! The fields of a program's response: those that every response has (`lowroad_http::fields`).

pub use lowroad_http::fields::{Fields, is_token};

/// The field by which a program names what its response depends on; not for clients.
pub const TAG_FIELD: &str = lowroad_http::fields::Known::CacheTag.as_str();
