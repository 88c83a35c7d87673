//! A response of the server: as fetched, why there is none, and the bytes to publish. Independent of whether it may be
//! stored.

pub mod fetched;
mod no_response;
pub mod prepare;

pub use no_response::FetchError;
