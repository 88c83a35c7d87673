//! Settings that a block inherits from the block around it, and the content of servers and locations.
//!
//! nginx has two kinds: a simple setting is inherited unless the block has its own, and an array (`add_header`,
//! `proxy_set_header`) is inherited as a whole, only if the block adds no entry.

use std::collections::BTreeMap;

use super::condition_keys::ConditionKeys;
use super::tried_files::TriedFile;
use crate::toml_values::quoted;

/// A value with the report index of its directive.
#[derive(Clone, Debug)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// The directive in the report.
    pub entry: usize,
}

/// A response field of `add_header`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedField {
    /// The name.
    pub name: String,
    /// The value.
    pub value: String,
}

/// An entry of `allow` or `deny`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressEntry {
    /// Whether the address may pass.
    pub is_allowed: bool,
    /// The address or prefix; none for `all`.
    pub address: Option<String>,
}

/// Basic authentication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PasswordSettings {
    /// The realm; none if it is off.
    pub realm: Option<String>,
    /// The file of passwords.
    pub file: String,
}

/// A rate limit of `limit_req`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateSetting {
    /// `10/s`
    pub rate: String,
    /// Requests at once.
    pub burst: u64,
}

/// The access settings of a location.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessSettings {
    /// `allow` and `deny`, in order.
    pub addresses: Vec<AddressEntry>,
    /// `auth_basic`
    pub password: PasswordSettings,
    /// `satisfy any`
    pub is_any_enough: bool,
    /// `auth_request`: the location with the requests to a server.
    pub auth_request: Option<String>,
    /// `auth_request_set` of a field of the server's response: the variable, and the name of the field.
    pub auth_variables: Vec<(String, String)>,
    /// Request fields with the value of such a variable: the name, and the name of the server's field.
    pub auth_fields: Vec<(String, String)>,
    /// `limit_req`
    pub rates: Vec<RateSetting>,
    /// Refusals under conditions, in order.
    pub conditional_refusals: Vec<ConditionalRefusal>,
    /// Whether a directive without an equal protects the paths: they are refused.
    pub has_unknown_guard: bool,
    /// The status of `return`; 444 closes the connection.
    pub refusal: Option<u16>,
    /// The text of that `return`.
    pub refusal_text: String,
}

/// A condition of a rule, redirect or rewrite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestCondition {
    /// Its key.
    pub key: String,
    /// Its value, in TOML.
    pub value: String,
}

/// A refusal under a condition on the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionalRefusal {
    /// The conditions.
    pub conditions: ConditionKeys,
    /// The status; 444 closes the connection.
    pub status: u16,
}

/// `proxy_pass` under a condition on the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionalPass {
    /// The conditions.
    pub conditions: ConditionKeys,
    /// The URL.
    pub url: String,
    /// The block in the report.
    pub entry: usize,
}

/// A lifetime of stored responses, of `proxy_cache_valid`.
#[derive(Clone, Debug)]
pub struct CacheTime {
    /// The statuses; an empty list means 200, 301 and 302.
    pub statuses: Vec<String>,
    /// The lifetime, in TOML.
    pub time: String,
}

impl CacheTime {
    /// The value of `status` of a cache rule; `None` for all statuses.
    pub fn status_value(&self) -> Option<String> {
        if self.statuses.iter().any(|it| it == "any") {
            return None;
        }
        Some(match self.statuses.is_empty() {
            true => "[200, 301, 302]".to_string(),
            false => format!("[{}]", self.statuses.join(", ")),
        })
    }

    /// Whether it is the lifetime of successful responses.
    pub fn is_of_success(&self) -> bool {
        let mut statuses = self.statuses.iter();
        self.statuses.is_empty() || statuses.any(|it| it == "200" || it == "any")
    }
}

/// The answer of `error_page 404` for a file that is missing: another handler, instead of a page.
#[derive(Clone, Debug)]
pub struct MissingFallback {
    /// A path, or the name of a location.
    pub target: String,
    /// The directive.
    pub entry: usize,
}

/// The settings of a connection to an origin or a FastCGI server.
#[derive(Clone, Debug, Default)]
pub struct UpstreamSettings {
    /// The value of `proxy_set_header Host`; none for nginx' default.
    pub host: Option<String>,
    /// `proxy_read_timeout`
    pub timeout: Option<String>,
    /// `proxy_connect_timeout`
    pub connect_timeout: Option<String>,
    /// `proxy_http_version 2`
    pub is_h2: bool,
    /// `proxy_next_upstream_tries`
    pub tries: Option<String>,
    /// `proxy_request_buffering off`
    pub is_request_streamed: bool,
    /// `proxy_buffering off`
    pub is_response_streamed: bool,
    /// `proxy_intercept_errors on`
    pub intercepts_errors: bool,
    /// `mirror`: the path of the location that sends the copies.
    pub mirror: Option<Sourced<String>>,
    /// `proxy_redirect off`
    pub keeps_redirects: bool,
    /// `proxy_ssl_verify on`
    pub verifies: bool,
    /// Other keys of `[origin.tls]`.
    pub tls: BTreeMap<&'static str, String>,
    /// Whether responses are stored.
    pub is_cached: bool,
    /// `proxy_no_cache` or `proxy_cache_bypass`
    pub has_cache_exceptions: bool,
    /// `proxy_cache_valid`
    pub cache_times: Vec<Sourced<CacheTime>>,
    /// `proxy_ignore_headers Cache-Control`
    pub ignores_lifetimes: bool,
    /// `proxy_cache_use_stale`
    pub stale_uses: Vec<String>,
    /// `proxy_hide_header`
    pub hidden_fields: Vec<String>,
    /// Fields of requests to the origin: name and value.
    pub request_fields: Vec<Sourced<(String, String)>>,
    /// `fastcgi_param` of the configuration's own.
    pub env: BTreeMap<String, String>,
    /// The script of `SCRIPT_FILENAME`, if it is fixed.
    pub script: Option<String>,
    /// `fastcgi_index`
    pub index: Option<String>,
    /// `fastcgi_keep_conn on`
    pub keeps_connections: bool,
}

impl LevelSettings {
    /// The keys `rate` and `after`.
    pub fn bandwidth_keys(&self) -> Vec<(&'static str, String)> {
        let Some(rate) = &self.bandwidth else {
            return Vec::new();
        };
        let after = self.bandwidth_after.iter();
        std::iter::once(("rate", quoted(&rate.value)))
            .chain(after.map(|after| ("after", after.clone())))
            .collect()
    }
}

/// The folder of an `alias`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AliasFolder {
    /// The text of the location, which the folder replaces.
    pub path: String,
    /// The folder.
    pub folder: String,
}

/// Settings that are inherited.
#[derive(Clone, Debug, Default)]
pub struct LevelSettings {
    /// `root`
    pub root: Option<String>,
    /// `alias` of the location or of one around it.
    pub alias: Option<AliasFolder>,
    /// `index`
    pub index: Vec<String>,
    /// `add_header`
    pub fields: Vec<AddedField>,
    /// `expires`, as a value of Cache-Control.
    pub expires: Option<String>,
    /// `expires $name`: the variable.
    pub expires_map: Option<String>,
    /// Access.
    pub access: AccessSettings,
    /// `proxy_…`
    pub proxy: UpstreamSettings,
    /// `fastcgi_…`
    pub fastcgi: UpstreamSettings,
    /// `error_page`: status and target.
    pub error_pages: Vec<Sourced<(u16, String)>>,
    /// `error_page 500 =503 /page`: the status of the error, and that of the response.
    pub error_statuses: Vec<Sourced<(u16, u16)>>,
    /// `error_page 404` with a handler.
    pub missing_fallback: Option<MissingFallback>,
    /// `limit_rate`: `500KB/s`.
    pub bandwidth: Option<Sourced<String>>,
    /// `limit_rate_after`, in TOML.
    pub bandwidth_after: Option<String>,
    /// `autoindex on`: the directive.
    pub listing: Option<usize>,
    /// Keys of `[[site]]`: `symlinks = "none"`.
    pub site_keys: BTreeMap<&'static str, String>,
    /// Keys of `[site.compress]`.
    pub compress: BTreeMap<&'static str, String>,
    /// `default_type`
    pub default_type: Option<String>,
    /// `types`: extension and type.
    pub types: BTreeMap<String, String>,
    /// `set_real_ip_from`
    pub trusted_proxies: Vec<String>,
    /// `real_ip_header X-Forwarded-For`
    pub trusts_forwarded: bool,
    /// `real_ip_header proxy_protocol`
    pub is_proxy_protocol: bool,
    /// `access_log`; an empty list means off.
    pub access_logs: Option<Vec<AccessLogSetting>>,
    /// `ssl_…`: keys of `[site.tls]`.
    pub tls: BTreeMap<&'static str, String>,
    /// `ssl_reject_handshake on`
    pub rejects_handshakes: bool,
    /// `ssl_certificate`
    pub certificates: Vec<String>,
    /// `ssl_certificate_key`
    pub keys: Vec<String>,
    /// `set $name value`, and variables of the configuration.
    pub variables: BTreeMap<String, String>,
}

/// One `access_log`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLogSetting {
    /// The target: a path or `syslog:…`.
    pub to: String,
    /// The value of the key `format`, without quotes.
    pub format: String,
    /// `escape=json`
    pub is_json: bool,
    /// Statuses, by a map of `$status`.
    pub statuses: Vec<String>,
}

/// A redirect or rewrite.
#[derive(Clone, Debug)]
pub struct PathChange {
    /// The expression.
    pub regex: String,
    /// The target.
    pub to: String,
    /// The status of a redirect; none for a rewrite.
    pub status: Option<u16>,
    /// Only if there is no such file.
    pub is_missing: bool,
    /// Only for these requests.
    pub conditions: ConditionKeys,
    /// Whether the location answers the new path, too: the flag `break`.
    pub stays: bool,
    /// The directive.
    pub entry: usize,
    /// The directive as text, for a comment.
    pub comment: String,
}

/// The redirect of a host, or of all but one.
#[derive(Clone, Debug)]
pub struct HostRedirect {
    /// The host; after `!` that of the exception.
    pub name: String,
    /// The target; its scheme may be `$scheme`.
    pub to: String,
    /// The status.
    pub status: u16,
}

/// The way a server or location answers a request; not inherited.
#[derive(Clone, Debug, Default)]
pub struct LocationContent {
    /// `rewrite`, and `if` with one in it.
    pub changes: Vec<PathChange>,
    /// `return` with a redirect: status and target.
    pub redirect: Option<Sourced<(u16, String)>>,
    /// `return` with another status than those of redirects and errors: status and text.
    pub respond: Option<Sourced<(u16, String)>>,
    /// `proxy_pass`: its URL.
    pub proxy: Option<Sourced<String>>,
    /// `proxy_pass http://NAME$request_uri`: the target of the client's request.
    pub passes_request_uri: bool,
    /// `proxy_pass` in an `if`.
    pub conditional_passes: Vec<ConditionalPass>,
    /// `fastcgi_pass`
    pub fastcgi: Option<Sourced<String>>,
    /// `try_files`
    pub try_files: Option<Sourced<Vec<String>>>,
    /// The first file of `try_files`, if that is none at the requested path.
    pub first_file: Option<TriedFile>,
    /// `alias`
    pub alias: Option<Sourced<String>>,
    /// Whether the route applies to missing files only.
    pub is_missing: bool,
    /// `if (!-f $request_filename) { rewrite (.*) /$1 last; }`: the location `/` answers for missing files.
    pub missing_to_slash: Option<usize>,
    /// `internal`
    pub is_internal: bool,
    /// Whether a handler without an equal answers: the paths are refused, since their files may be sources of programs.
    pub has_unknown_handler: bool,
    /// Whether a directive of another kind creates the response (`return 200`), which is reported by itself.
    pub is_other: bool,
    /// Whether the location has its own `root`.
    pub has_root: bool,
    /// Hosts that `if` redirects to another host.
    pub host_redirects: Vec<Sourced<HostRedirect>>,
    /// `if ($scheme = http)`
    pub redirects_to_https: bool,
    /// Whether a condition of a server without an equal refuses requests: all are refused.
    pub has_unknown_guard: bool,
}
