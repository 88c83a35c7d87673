//! HTTP/2.

pub mod hpack;
