//! Stubs for builds without the feature `tls`. They have the interface of the module `tls`.

use std::net::SocketAddr;
use std::sync::Arc;

use lowroad_config::{BuildFeature, Config, MissingFeature};
use lowroad_engine::quic_transport::QuicTransport;
use lowroad_engine::tls_session::TlsSession;
use lowroad_log::ErrorLogger;
use lowroad_privileges::account::ServerAccount;
use lowroad_store::watch::FolderWatcher;

use crate::certificate_status::CertificateStatus;
use crate::quic_identity::QuicIdentity;

/// Does nothing.
pub fn install() {}

/// Fails, since this build has no local authority.
///
/// # Errors
/// Always: the feature `tls` is missing.
pub fn trust() -> Result<String, String> {
    Err(format!("trust: {}", MissingFeature(BuildFeature::Tls)))
}

/// No errors and no warnings.
pub fn check(_: &Config) -> (Vec<String>, Vec<String>) {
    (Vec::new(), Vec::new())
}

/// Checks nothing: this build has no session tickets.
///
/// # Errors
/// Never.
pub fn check_ticket_keys(_: &std::path::Path) -> Result<(), String> {
    Ok(())
}

/// No TLS.
#[derive(Clone)]
pub struct TlsListeners;

/// A type without values, since no address has TLS.
pub enum TlsEndpoint {}

/// A worker, and the number of workers.
#[derive(Clone, Copy, Debug)]
pub struct QuicWorker {
    /// The worker's number.
    pub number: usize,
    /// The number of workers.
    pub count: usize,
}

/// A type without values, since no address has HTTP/3.
pub enum QuicListener {}

impl QuicListener {
    /// Unreachable, since no listener exists.
    pub fn set_endpoint(&self, _: &Arc<TlsEndpoint>) {
        match *self {}
    }
}

impl TlsListeners {
    /// Does nothing.
    ///
    /// # Errors
    /// Never: configurations with TLS have been refused before.
    pub fn start(
        _: &Config,
        _: &ErrorLogger,
        _: Option<&ServerAccount>,
        _: Option<&[u8]>,
        _: Option<QuicIdentity>,
    ) -> Result<TlsListeners, String> {
        Ok(TlsListeners)
    }

    /// Does nothing.
    ///
    /// # Errors
    /// Never: configurations with TLS have been refused before.
    pub fn reload(_: &Config, _: &ErrorLogger, _: &TlsListeners) -> Result<TlsListeners, String> {
        Ok(TlsListeners)
    }

    /// There are no ticket keys.
    pub fn ticket_keys(&self) -> Option<Vec<u8>> {
        None
    }

    /// There is no QUIC.
    pub fn quic_identity(&self) -> Option<QuicIdentity> {
        None
    }

    /// No address has an endpoint.
    pub fn endpoint(&self, _: SocketAddr) -> Option<Arc<TlsEndpoint>> {
        None
    }

    /// The admin service has no TLS.
    pub fn admin_endpoint(&self) -> Option<Arc<TlsEndpoint>> {
        None
    }

    /// Does nothing: no certificates are obtained.
    ///
    /// # Errors
    /// Never.
    pub fn keep(&self, _: &Config, _: &ErrorLogger) -> Result<(), String> {
        Ok(())
    }

    /// No response: there are no ACME challenges.
    pub fn challenge(&self, _: &[u8]) -> Option<Arc<str>> {
        None
    }

    /// Does nothing: there are no certificate files.
    pub fn follow(&self, _: Option<&FolderWatcher>, _: &ErrorLogger) {}

    /// No status lines.
    pub fn status(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// No certificates.
    pub fn certificates(&self) -> Vec<CertificateStatus> {
        Vec::new()
    }

    /// There is no automatic certificate.
    pub fn renew(&self, _: &str) -> bool {
        false
    }

    /// No counters.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

impl TlsEndpoint {
    /// Unreachable, since no endpoint exists.
    pub fn new_session(self: &Arc<Self>) -> Box<dyn TlsSession> {
        match **self {}
    }

    /// Unreachable, since no endpoint exists.
    pub fn quic(self: &Arc<Self>, _: QuicWorker) -> Option<(QuicListener, Box<dyn QuicTransport>)> {
        match **self {}
    }

    /// Unreachable, since no endpoint exists.
    pub fn refuses(&self, _: Option<&str>) -> bool {
        match *self {}
    }

    /// Unreachable, since no endpoint exists.
    pub fn is_misdirected(&self, _: Option<&str>, _: &str) -> bool {
        match *self {}
    }
}
