//! TLS with clients where it is not built in.

use std::net::SocketAddr;
use std::sync::Arc;

use lowroad_config::{Config, Feature, Lacking};
use lowroad_engine::layer::Layer;
use lowroad_log::Logger;
use lowroad_privileges::account::Account;
use lowroad_store::watch::Watcher;

/// Nothing to be installed.
pub fn install() {}

/// There is nothing to be trusted.
///
/// # Errors
/// Always: says so.
pub fn trust() -> Result<String, String> {
    Err(format!("trust: {}", Lacking(Feature::Tls)))
}

/// There is nothing to check.
pub fn check(_: &Config) -> (Vec<String>, Vec<String>) {
    (Vec::new(), Vec::new())
}

/// There are no tickets.
///
/// # Errors
/// None.
pub fn check_ticket_keys(_: &std::path::Path) -> Result<(), String> {
    Ok(())
}

/// No TLS.
#[derive(Clone)]
pub struct Tls;

/// What no address has.
pub enum Offer {}

impl Tls {
    /// None.
    ///
    /// # Errors
    /// Never: a configuration that names it was refused.
    pub fn start(_: &Config, _: &Logger, _: Option<&Account>) -> Result<Tls, String> {
        Ok(Tls)
    }

    /// None.
    ///
    /// # Errors
    /// Never: a configuration that names it was refused.
    pub fn reload(_: &Config, _: &Logger, _: &Tls) -> Result<Tls, String> {
        Ok(Tls)
    }

    /// None.
    pub fn offer(&self, _: SocketAddr) -> Option<Arc<Offer>> {
        None
    }

    /// There is nothing to keep.
    ///
    /// # Errors
    /// Never.
    pub fn keep(&self, _: &Config, _: &Logger) -> Result<(), String> {
        Ok(())
    }

    /// Nobody looks.
    pub fn challenge(&self, _: &[u8]) -> Option<Arc<str>> {
        None
    }

    /// There is nothing to follow.
    pub fn follow(&self, _: Option<&Watcher>, _: &Logger) {}

    /// Nothing.
    pub fn status(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

impl Offer {
    /// None.
    pub fn layer(self: &Arc<Self>) -> Box<dyn Layer> {
        match **self {}
    }

    /// Never asked.
    pub fn is_misdirected(&self, _: Option<&str>, _: &str) -> bool {
        match *self {}
    }
}
