//! A response of the server above: as it was fetched, why there is none, and the bytes that are made of it.
//! It knows nothing of whether it may be stored.

pub mod fetched;
mod no_response;
pub mod prepare;

pub use no_response::FetchError;
