//! A route to an origin in the making: servers, load balancing, transport.

use crate::caddy::plan::{FieldChanges, ProxyAction};
use crate::caddy::tree::CaddyDirective;
use crate::caddy::values::duration;
use crate::report::DirectiveOutcome;
use crate::toml_values::quoted;

/// The URL of an upstream: `localhost:80`, `https://host`, `unix//path`; `None` for placeholders and ranges.
pub fn upstream_url(text: &str) -> Option<String> {
    if text.contains(['{', '*']) {
        return None;
    }
    if let Some(path) = text
        .strip_prefix("unix+h2c/")
        .or_else(|| text.strip_prefix("unix/"))
    {
        return Some(format!("unix:{path}"));
    }
    let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
    let authority = rest.trim_end_matches('/');
    let port = authority
        .rsplit(']')
        .next()
        .and_then(|it| it.rsplit_once(':'));
    // A range of ports, or a path.
    let is_plain =
        !authority.contains('/') && port.is_none_or(|(_, port)| port.parse::<u16>().is_ok());
    // Without a host, the server is on this machine.
    let authority = match authority.strip_prefix(':') {
        Some(port) => format!("127.0.0.1:{port}"),
        None => authority.to_string(),
    };
    let is_known = matches!(scheme, "http" | "https" | "h2c");
    (is_plain && is_known && !authority.is_empty()).then(|| format!("{scheme}://{authority}"))
}

/// A proxy in the making.
#[derive(Default)]
pub struct ProxyDraft {
    /// URLs.
    pub servers: Vec<String>,
    /// Upstreams without an equal.
    pub has_unknown: bool,
    weights: Vec<Option<String>>,
    is_first_preferred: bool,
    balance: Option<String>,
    is_encrypted: bool,
    /// The route.
    pub action: ProxyAction,
    /// Response fields.
    pub down: FieldChanges,
}

/// Adds a key if its value is understood.
pub fn checked(
    keys: &mut Vec<(&'static str, String)>,
    key: &'static str,
    value: Option<String>,
) -> DirectiveOutcome {
    match value {
        Some(value) => {
            keys.push((key, value));
            DirectiveOutcome::translated()
        }
        None => DirectiveOutcome::ByHand("the value is not understood".to_string()),
    }
}

/// A number as a value in TOML.
pub fn number(text: &str) -> Option<String> {
    let number: u32 = text.parse().ok()?;
    Some(number.to_string())
}

impl ProxyDraft {
    /// Adds an upstream.
    pub fn add_server(&mut self, text: &str) {
        match upstream_url(text) {
            Some(url) => {
                self.is_encrypted |= url.starts_with("https:");
                if text.starts_with("unix+h2c") {
                    self.action.group.keys.push(("protocol", quoted("h2")));
                }
                self.servers.push(url);
            }
            None => self.has_unknown = true,
        }
    }

    /// Reads `lb_policy`.
    pub fn balance(&mut self, line: &CaddyDirective) -> DirectiveOutcome {
        let hash = match (line.arg(0), line.arg(1)) {
            ("round_robin", _) => {
                self.balance = Some("round-robin".to_string());
                return DirectiveOutcome::translated();
            }
            ("weighted_round_robin", _) => {
                self.balance = Some("round-robin".to_string());
                self.weights = line
                    .args()
                    .iter()
                    .skip(1)
                    .map(|it| number(&it.text))
                    .collect();
                if self.weights.contains(&None) {
                    return DirectiveOutcome::ByHand("the value is not understood".to_string());
                }
                return DirectiveOutcome::translated();
            }
            ("random" | "random_choose", _) => {
                self.balance = Some("random".to_string());
                return DirectiveOutcome::translated();
            }
            ("least_conn", _) => {
                self.balance = Some("least-connections".to_string());
                return DirectiveOutcome::translated();
            }
            // All but the first are backups.
            ("first", _) => {
                self.is_first_preferred = true;
                return DirectiveOutcome::translated();
            }
            // The same server for the same key.
            ("ip_hash" | "client_ip_hash", _) => "address".to_string(),
            ("uri_hash", _) => "url".to_string(),
            ("header", name) => format!("header:{name}"),
            ("cookie", name) => {
                // Caddy's default name.
                let name = if name.is_empty() { "lb" } else { name };
                let sticky = format!("{{ cookie = {} }}", quoted(name));
                self.action.group.keys.push(("sticky", sticky));
                return DirectiveOutcome::Translated("the cookie has another value".to_string());
            }
            _ => return DirectiveOutcome::ByHand("see balance in [[origin]]".to_string()),
        };
        self.balance = Some("hash".to_string());
        self.action.group.keys.push(("hash", quoted(&hash)));
        DirectiveOutcome::translated()
    }

    /// Reads an option of `transport http`.
    pub fn transport_option(&mut self, option: &CaddyDirective) -> DirectiveOutcome {
        let not_needed = |reason: &str| DirectiveOutcome::NotNeeded(reason.to_string());
        let value = option.arg(0);
        let group = &mut self.action.group;
        match option.name() {
            "tls" => self.is_encrypted = true,
            // These options also turn TLS on.
            "tls_insecure_skip_verify" => {
                self.is_encrypted = true;
                group.tls.push(("verify", "false".to_string()));
            }
            "tls_server_name" => {
                self.is_encrypted = true;
                group.tls.push(("name", quoted(value)));
            }
            "tls_trusted_ca_certs" => group.tls.push(("ca", quoted(value))),
            "tls_trust_pool" if value == "file" => group.tls.push(("ca", quoted(option.arg(1)))),
            "tls_client_auth" => {
                group.tls.push(("certificate", quoted(value)));
                group.tls.push(("key", quoted(option.arg(1))));
            }
            "dial_timeout" => return checked(&mut group.keys, "connect_timeout", duration(value)),
            "response_header_timeout" => {
                return checked(&mut self.action.keys, "timeout", duration(value));
            }
            "versions" => {
                let is_h2 = option
                    .args()
                    .iter()
                    .any(|it| it.text == "h2c" || it.text == "2");
                // With both versions, TLS negotiates one.
                let is_h1 = option.args().iter().any(|it| it.text == "1.1");
                match (is_h2, is_h1) {
                    (true, false) => group.keys.push(("protocol", quoted("h2"))),
                    (true, true) => group.keys.push(("protocol", quoted("auto"))),
                    _ => {}
                }
            }
            "max_conns_per_host" => {
                return checked(&mut group.keys, "connections", number(value));
            }
            "proxy_protocol" => group.keys.push(("proxy_protocol", quoted(value))),
            "keepalive"
            | "keepalive_interval"
            | "keepalive_idle_conns"
            | "keepalive_idle_conns_per_host" => {
                return not_needed("connections to origins are kept");
            }
            "read_timeout"
            | "write_timeout"
            | "expect_continue_timeout"
            | "dial_fallback_delay"
            | "tls_timeout" => return not_needed("the route's timeout applies"),
            "read_buffer" | "write_buffer" | "max_response_header" => {
                return not_needed("buffers grow as needed; [buffering] has limits");
            }
            "compression" => return not_needed("Accept-Encoding is the client's"),
            "resolvers" => return not_needed("names are resolved by the system, every 10 s"),
            _ => return DirectiveOutcome::ByHand("see [[origin]] and [origin.tls]".to_string()),
        }
        DirectiveOutcome::translated()
    }

    /// The route: a URL suffices for one server without settings.
    pub fn finish(self) -> ProxyAction {
        let mut action = self.action;
        let servers = self.servers.iter().map(|url| match self.is_encrypted {
            // TLS of the transport holds for all servers.
            true if url.starts_with("http:") => url.replacen("http:", "https:", 1),
            _ => url.clone(),
        });
        let servers: Vec<String> = servers.collect();
        action.keys.push(("keep", quoted("never")));
        action.authority = servers[0]
            .rsplit("//")
            .next()
            .unwrap_or_default()
            .to_string();
        let group = &mut action.group;
        let has_settings =
            !(group.keys.is_empty() && group.tls.is_empty() && group.check.is_empty());
        // A single server without settings needs no group.
        if servers.len() == 1 && !has_settings {
            action.url = Some(servers[0].clone());
            return action;
        }
        if servers.len() > 1 && !self.is_first_preferred {
            // Caddy's default is random.
            let balance = self.balance.as_deref().unwrap_or("random");
            group.keys.push(("balance", quoted(balance)));
        }
        let tables = servers.iter().enumerate().map(|(index, url)| {
            // Weights are in the order of the servers.
            let weight = self.weights.get(index).and_then(Option::as_ref);
            let weight = weight.map(|it| format!(", weight = {it}"));
            let backup =
                (self.is_first_preferred && index > 0).then(|| ", backup = true".to_string());
            match weight.or(backup) {
                Some(key) => format!("{{ url = {}{key} }}", quoted(url)),
                None => quoted(url),
            }
        });
        let tables: Vec<String> = tables.collect();
        // A list of one server is the server.
        let list = match &tables[..] {
            [server] if server.starts_with('"') => server.clone(),
            _ => format!("[{}]", tables.join(", ")),
        };
        group.keys.insert(0, ("servers", list));
        action
    }
}
