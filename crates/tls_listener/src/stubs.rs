//! Stubs for builds without TLS.

use std::net::SocketAddr;
use std::sync::Arc;

use lowroad_config::{BuildFeature, Config, MissingFeature};
use lowroad_engine::tls_session::TlsSession;
use lowroad_log::ErrorLogger;
use lowroad_privileges::account::ServerAccount;
use lowroad_store::watch::FolderWatcher;

use crate::certificate_status::CertificateStatus;

/// Does nothing.
pub fn install() {}

/// Fails, since there is no authority to trust.
///
/// # Errors
/// Always, with the missing feature.
pub fn trust() -> Result<String, String> {
    Err(format!("trust: {}", MissingFeature(BuildFeature::Tls)))
}

/// No errors and no warnings.
pub fn check(_: &Config) -> (Vec<String>, Vec<String>) {
    (Vec::new(), Vec::new())
}

/// No tickets to check.
///
/// # Errors
/// None.
pub fn check_ticket_keys(_: &std::path::Path) -> Result<(), String> {
    Ok(())
}

/// No TLS.
#[derive(Clone)]
pub struct TlsListeners;

/// The endpoint of an address; has no values.
pub enum TlsEndpoint {}

impl TlsListeners {
    /// No TLS.
    ///
    /// # Errors
    /// Never: a configuration with TLS was refused.
    pub fn start(
        _: &Config,
        _: &ErrorLogger,
        _: Option<&ServerAccount>,
    ) -> Result<TlsListeners, String> {
        Ok(TlsListeners)
    }

    /// No TLS.
    ///
    /// # Errors
    /// Never: a configuration with TLS was refused.
    pub fn reload(_: &Config, _: &ErrorLogger, _: &TlsListeners) -> Result<TlsListeners, String> {
        Ok(TlsListeners)
    }

    /// No endpoint.
    pub fn endpoint(&self, _: SocketAddr) -> Option<Arc<TlsEndpoint>> {
        None
    }

    /// No certificates to obtain.
    ///
    /// # Errors
    /// Never.
    pub fn keep(&self, _: &Config, _: &ErrorLogger) -> Result<(), String> {
        Ok(())
    }

    /// No response, since there are no validations.
    pub fn challenge(&self, _: &[u8]) -> Option<Arc<str>> {
        None
    }

    /// No files to check.
    pub fn follow(&self, _: Option<&FolderWatcher>, _: &ErrorLogger) {}

    /// No lines.
    pub fn status(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// No certificates.
    pub fn certificates(&self) -> Vec<CertificateStatus> {
        Vec::new()
    }

    /// No counters.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

impl TlsEndpoint {
    /// Unreachable: there is no endpoint.
    pub fn new_session(self: &Arc<Self>) -> Box<dyn TlsSession> {
        match **self {}
    }

    /// Unreachable: there is no endpoint.
    pub fn is_misdirected(&self, _: Option<&str>, _: &str) -> bool {
        match *self {}
    }
}
