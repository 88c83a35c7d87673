//! TLS for the server's listeners: the certificates (from files, the local authority or ACME) and the TLS endpoint of
//! each address. Without the feature `tls`, this crate consists of stubs with the same interface.

#![forbid(unsafe_code)]

pub mod certificate_status;
mod quic_identity;
#[cfg_attr(not(feature = "tls"), path = "stubs.rs")]
mod tls;

pub use quic_identity::QuicIdentity;
pub use tls::{
    QuicListener, QuicWorker, TlsEndpoint, TlsListeners, check, check_ticket_keys, install, trust,
};
