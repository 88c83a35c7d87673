//! A response of the server: as fetched, why there is none, and the bytes to publish. Independent of whether it may be
//! stored.

pub mod encoder;
pub mod fetched_response;
mod no_response;

pub use no_response::FetchError;
