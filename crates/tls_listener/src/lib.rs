//! TLS of the server's listeners: certificates from files, the local authority or ACME, and the TLS endpoint of each
//! address. Without the feature `tls`, stubs have the same names.

#![forbid(unsafe_code)]

pub mod certificate_status;
#[cfg_attr(not(feature = "tls"), path = "stubs.rs")]
mod tls;

pub use tls::{TlsEndpoint, TlsListeners, check, check_ticket_keys, install, trust};
