//! Access control rules of a site, and fallbacks for missing files.

use lowroad_limits::RequestRate;

use super::{AuthConfig, BandwidthLimit, RequestConditions};
use crate::{AddressPrefix, PathPattern};

/// A rule for some requests of a site. `[[site.rule]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleConfig {
    /// The paths. Default: all.
    pub pattern: PathPattern,
    /// Further conditions on requests. Key `except` is a condition of `exceptions`.
    pub conditions: RequestConditions,
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
    /// The bandwidth of the response, in place of that of the route or the site; the last such rule decides.
    /// `rate = "1MB/s"`, with `after`
    Bandwidth(BandwidthLimit),
    /// The client has to authenticate. `auth = "FILE"` with `realm`, `jwt` and `forward_auth`; several with `satisfy`.
    Auth(AuthConfig),
    /// If no file is at the path, this path is answered instead. `fallback = "/index.html"`
    Fallback(String),
    /// A fixed response. `respond = 410`, `respond = { status = 200, text = "ok" }`
    Respond(FixedResponse),
    /// The connection is closed without a response. `close = true`
    Close,
    /// Whether access logs contain the request; the last such rule decides. `log = false`
    Log(bool),
}

/// A response with a configured status and content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedResponse {
    /// The status, 200 to 599 without those that need other fields or forbid content.
    pub status: u16,
    /// Fields in addition to those of the server, as names and values. Key `header`.
    pub fields: Vec<(String, String)>,
    /// The content; `None`: for an error the error page of the status, otherwise no content. Key `text`.
    pub text: Option<String>,
    /// The media type of `text`. Default `text/plain; charset=utf-8`. Key `type`.
    pub media_type: String,
}

impl RuleAction {
    /// Whether it can refuse a request. Then the rule covers all paths below its own, too.
    #[must_use]
    pub fn refuses(&self) -> bool {
        matches!(
            self,
            RuleAction::Deny(_) | RuleAction::Limit(_) | RuleAction::Auth(_) | RuleAction::Close
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
