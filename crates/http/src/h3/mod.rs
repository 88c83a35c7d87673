//! HTTP/3 without I/O.

pub mod qpack;
