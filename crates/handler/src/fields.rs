//! Names of special fields in an application's response.

pub use lowroad_http::fields::{ResponseFields, is_token};

/// The field with the cache tags of a response, for purging; not sent to clients.
pub const TAG_FIELD: &str = lowroad_http::fields::StandardHeader::CacheTag.as_str();
