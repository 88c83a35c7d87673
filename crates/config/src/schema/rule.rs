//! Rules of a site: who may ask for what, and what is answered in its place.

use std::path::PathBuf;

use lowroad_limits::Rate;

use crate::{Pattern, Prefix};

/// What holds for some requests of a site. `[[site.rule]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Which paths. Default: all.
    pub pattern: Pattern,
    /// Which methods; GET means HEAD too. Empty: all. Key `methods`.
    pub methods: Vec<String>,
    /// Which clients. Empty: all. Key `addresses`.
    pub addresses: Vec<Prefix>,
    /// Clients that the rule is not for. Key `except`.
    pub except: Vec<Prefix>,
    /// What it does.
    pub action: Action,
}

/// What a rule does; one of these keys must be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The request is refused with this status: 403 or 404. `deny = 403`
    Deny(u16),
    /// No later rule refuses the request. `allow = true`
    Allow,
    /// Each client may ask so often; what is beyond that gets 429. `rate = "10/s"`, with `burst`
    Limit(Rate),
    /// The client must name a user of a file, with the right password; else it gets 401. `auth = "FILE"`, with `realm`
    Auth(Auth),
    /// Where there is no file, this path is answered instead. `fallback = "/index.html"`
    Fallback(String),
}

/// Basic authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// Users and the hashes of their passwords.
    pub file: PathBuf,
    /// What browsers call that for which a password is needed. Default `restricted`. Key `realm`.
    pub realm: String,
}

impl Action {
    /// Whether it can refuse a request. Then the rule is for what lies below its paths, too.
    #[must_use]
    pub fn refuses(&self) -> bool {
        matches!(self, Action::Deny(_) | Action::Limit(_) | Action::Auth(_))
    }
}

/// Proxies in front whose reports about the client and its request are believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    /// Their addresses. Key `trusted_proxies`.
    pub addresses: Vec<Prefix>,
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
