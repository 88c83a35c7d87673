//! Stubs for builds without TLS.

use std::net::SocketAddr;
use std::sync::Arc;

use lowroad_config::{Config, Feature, Lacking};
use lowroad_engine::layer::Layer;
use lowroad_log::Logger;
use lowroad_privileges::account::Account;
use lowroad_store::watch::Watcher;

/// Does nothing.
pub fn install() {}

/// Fails, since there is no authority to trust.
///
/// # Errors
/// Always, with the missing feature.
pub fn trust() -> Result<String, String> {
    Err(format!("trust: {}", Lacking(Feature::Tls)))
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
pub struct Tls;

/// The endpoint of an address; has no values.
pub enum Offer {}

impl Tls {
    /// No TLS.
    ///
    /// # Errors
    /// Never: a configuration with TLS was refused.
    pub fn start(_: &Config, _: &Logger, _: Option<&Account>) -> Result<Tls, String> {
        Ok(Tls)
    }

    /// No TLS.
    ///
    /// # Errors
    /// Never: a configuration with TLS was refused.
    pub fn reload(_: &Config, _: &Logger, _: &Tls) -> Result<Tls, String> {
        Ok(Tls)
    }

    /// No endpoint.
    pub fn offer(&self, _: SocketAddr) -> Option<Arc<Offer>> {
        None
    }

    /// No certificates to obtain.
    ///
    /// # Errors
    /// Never.
    pub fn keep(&self, _: &Config, _: &Logger) -> Result<(), String> {
        Ok(())
    }

    /// No response, since there are no validations.
    pub fn challenge(&self, _: &[u8]) -> Option<Arc<str>> {
        None
    }

    /// No files to check.
    pub fn follow(&self, _: Option<&Watcher>, _: &Logger) {}

    /// No lines.
    pub fn status(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

impl Offer {
    /// Unreachable: there is no endpoint.
    pub fn layer(self: &Arc<Self>) -> Box<dyn Layer> {
        match **self {}
    }

    /// Unreachable: there is no endpoint.
    pub fn is_misdirected(&self, _: Option<&str>, _: &str) -> bool {
        match *self {}
    }
}
