//! Responses of the server: as fetched, the errors of fetches, and the encoded form to publish. Independent of whether
//! a response may be stored.

pub mod encoder;
pub mod fetched_response;
mod no_response;

pub use no_response::FetchError;
