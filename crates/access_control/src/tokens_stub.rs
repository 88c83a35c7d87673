//! Replaces `tokens` in builds without TLS. The configuration refuses tokens there, so no token is ever verified.

use std::io;
use std::sync::Arc;

use lowroad_config::{TokenAuth, TokenKeys};
use lowroad_engine::authentication::Authentication;
use lowroad_http::request::Request;

use crate::token_fault::TokenFault;

/// Verifies no token.
pub struct TokenVerifier(Arc<TokenKeySet>);

impl TokenVerifier {
    /// A verifier that admits no request.
    pub fn new(_: &TokenAuth, keys: Arc<TokenKeySet>) -> TokenVerifier {
        TokenVerifier(keys)
    }

    /// # Errors
    /// Always.
    pub fn verify(&self, _: &Request<'_>) -> Result<Authentication, TokenFault> {
        Err(TokenFault::NoKeys)
    }

    /// The keys.
    pub fn keys(&self) -> &TokenKeySet {
        &self.0
    }

    /// The state, as text.
    pub fn status(&self) -> String {
        String::new()
    }
}

/// No keys.
pub struct TokenKeySet;

impl TokenKeySet {
    /// # Errors
    /// Always.
    pub fn open(_: &TokenKeys) -> io::Result<TokenKeySet> {
        Err(io::Error::other("this lowroad was built without tls"))
    }

    /// # Errors
    /// Always.
    pub fn replace(&self, _: &[u8]) -> Result<(), String> {
        Err("this lowroad was built without tls".into())
    }

    /// Does nothing.
    pub fn set_fault(&self, _: Option<String>) {}

    /// No fault.
    pub fn fault(&self) -> Option<String> {
        None
    }

    /// No request.
    pub fn take_refresh_request(&self) -> bool {
        false
    }
}
