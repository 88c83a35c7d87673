//! Access control rules of a site, and fallbacks for missing files.

use std::path::PathBuf;

use lowroad_limits::RequestRate;

use crate::{AddressPrefix, PathPattern};

/// A rule for some requests of a site. `[[site.rule]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleConfig {
    /// The paths. Default: all.
    pub pattern: PathPattern,
    /// The methods; GET includes HEAD. Empty: all. Key `methods`.
    pub methods: Vec<String>,
    /// The clients. Empty: all. Key `addresses`.
    pub addresses: Vec<AddressPrefix>,
    /// Clients that are exempt. Key `except`.
    pub except: Vec<AddressPrefix>,
    /// The action.
    pub action: RuleAction,
}

/// The action of a rule; exactly one of these keys must be present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleAction {
    /// The request is refused with this status: 403 or 404. `deny = 403`
    Deny(u16),
    /// No later rule refuses the request. `allow = true`
    Allow,
    /// Rate limit per client; excess requests get 429. `rate = "10/s"`, with `burst`
    Limit(RequestRate),
    /// Basic authentication: a user of the file with the right password; else 401. `auth = "FILE"`, with `realm`
    Auth(AuthConfig),
    /// If no file is at the path, this path is answered instead. `fallback = "/index.html"`
    Fallback(String),
}

/// Basic authentication (RFC 7617).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthConfig {
    /// Users and the hashes of their passwords.
    pub file: PathBuf,
    /// The realm: the name of the protected area that browsers show. Default `restricted`. Key `realm`.
    pub realm: String,
}

impl RuleAction {
    /// Whether it can refuse a request. Then the rule covers all paths below its own, too.
    #[must_use]
    pub fn refuses(&self) -> bool {
        matches!(
            self,
            RuleAction::Deny(_) | RuleAction::Limit(_) | RuleAction::Auth(_)
        )
    }
}

/// Trusted proxies: downstream proxies; the server believes their reports about the client and its request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    /// Their addresses. Key `trusted_proxies`.
    pub addresses: Vec<AddressPrefix>,
    /// The field in which they report the client's address. Key `client_field`.
    pub field: ClientField,
}

/// A field in which proxies report the addresses of their clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientField {
    /// Scheme, host and port are in X-Forwarded-Proto, -Host and -Port. `"X-Forwarded-For"`
    #[default]
    XForwardedFor,
    /// RFC 7239. `"Forwarded"`
    Forwarded,
}
