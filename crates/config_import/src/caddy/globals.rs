//! Global options.

use super::address::DefaultPorts;
use super::directives::proxy::ranges;
use super::listeners::bound_hosts;
use super::order::DirectiveOrder;
use super::tree::CaddyDirective;
use super::values::{bytes, duration};
use crate::document::ConfigTable;
use crate::report::{DirectiveOutcome, ImportReport};
use crate::toml_values::{list, quoted, size};

/// The global options.
#[derive(Clone, Debug)]
pub struct GlobalOptions {
    /// Ports.
    pub ports: DefaultPorts,
    /// Whether sites with TLS redirect plain requests.
    pub redirects: bool,
    /// `email`
    pub contact: Option<String>,
    /// `acme_ca`
    pub authority: Option<String>,
    /// `local_certs`
    pub is_local: bool,
    /// `default_bind`
    pub hosts: Vec<String>,
    /// The order of directives.
    pub order: DirectiveOrder,
    /// `trusted_proxies`
    pub trusted_proxies: Vec<String>,
    /// `[limits]`
    pub limits: ConfigTable,
}

impl Default for GlobalOptions {
    fn default() -> GlobalOptions {
        GlobalOptions {
            ports: DefaultPorts {
                http: 80,
                https: 443,
                is_plain: false,
            },
            redirects: true,
            contact: None,
            authority: None,
            is_local: false,
            hosts: Vec::new(),
            order: DirectiveOrder::default(),
            trusted_proxies: Vec::new(),
            limits: ConfigTable::essential("[limits]"),
        }
    }
}

impl GlobalOptions {
    /// Reads the block of global options.
    pub fn read(&mut self, block: &CaddyDirective, report: &mut ImportReport) {
        report.change(block.id, DirectiveOutcome::translated());
        for option in block.children() {
            let outcome = self.option(option, report);
            for child in option.children() {
                if report.is_open(child.id) {
                    report.change(child.id, outcome.clone());
                }
            }
            report.change(option.id, outcome);
        }
    }

    fn option(&mut self, option: &CaddyDirective, report: &mut ImportReport) -> DirectiveOutcome {
        let by_hand = |way: &str| DirectiveOutcome::ByHand(way.to_string());
        let not_needed = |reason: &str| DirectiveOutcome::NotNeeded(reason.to_string());
        let value = option.arg(0);
        match option.name() {
            "email" => self.contact = Some(value.to_string()),
            "http_port" | "https_port" => match (value.parse(), option.name()) {
                (Ok(port), "http_port") => self.ports.http = port,
                (Ok(port), _) => self.ports.https = port,
                (Err(_), _) => return by_hand("the value is not understood"),
            },
            // Whether names have TLS and a redirect.
            "auto_https" => match value {
                "off" => {
                    self.ports.is_plain = true;
                    self.redirects = false;
                }
                "disable_redirects" => self.redirects = false,
                "ignore_loaded_certs" | "disable_certs" => {
                    return by_hand("automatic in [site.tls] orders certificates");
                }
                _ => return by_hand("the value is not understood"),
            },
            "local_certs" => self.is_local = true,
            "acme_ca" => self.authority = Some(value.to_string()),
            "order" if self.order.change(option) => {}
            "order" => return by_hand("its directive is unknown to the import"),
            // Options of listeners, which Lowroad has for all sites.
            "servers" => {
                for line in option.children() {
                    let outcome = self.server_option(line, report);
                    report.change(line.id, outcome);
                }
            }
            // Options without an equal follow.
            "admin" => return not_needed("commands go to admin in [server]"),
            "debug" | "log" => return not_needed("[log] has the log of the server"),
            "persist_config"
            | "storage_clean_interval"
            | "renew_interval"
            | "grace_period"
            | "shutdown_delay"
            | "skip_install_trust"
            | "ocsp_stapling"
            | "ocsp_interval"
            | "storage_check" => return not_needed("the server needs no such option"),
            "metrics" => return not_needed("metrics for Prometheus are at [admin]"),
            "key_type" => return not_needed("keys are of P-256"),
            "storage" => return by_hand("folder in [acme]"),
            "default_sni" | "fallback_sni" => {
                return not_needed("clients without SNI get the certificate of the default site");
            }
            "acme_dns" => return by_hand("challenge = \"dns-01\" and hook in [acme]"),
            "on_demand_tls" => {
                return by_hand("[acme.on_demand] orders certificates for unknown names");
            }
            "default_bind" => {
                let (hosts, outcome) = bound_hosts(option);
                self.hosts = hosts;
                return outcome;
            }
            _ => return by_hand("this option is unknown to the import"),
        }
        DirectiveOutcome::translated()
    }

    fn server_option(
        &mut self,
        line: &CaddyDirective,
        report: &mut ImportReport,
    ) -> DirectiveOutcome {
        let by_hand = |way: &str| DirectiveOutcome::ByHand(way.to_string());
        match line.name() {
            "trusted_proxies" => {
                let words = line.args().iter();
                self.trusted_proxies
                    .extend(words.flat_map(|it| ranges(&it.text)));
            }
            "trusted_proxies_strict" => {}
            "client_ip_headers" if line.arg(0).eq_ignore_ascii_case("x-forwarded-for") => {}
            "client_ip_headers" => {
                return by_hand("clients are reported by X-Forwarded-For or Forwarded");
            }
            "timeouts" => {
                for time in line.children() {
                    let outcome = self.timeout(time);
                    report.change(time.id, outcome);
                }
            }
            "max_header_size" => match bytes(line.arg(0)) {
                Some(len) => {
                    let len = size(len.clamp(512, 1 << 20));
                    self.limits.push("head_len_max", &len, Some(line.id));
                }
                None => return by_hand("the value is not understood"),
            },
            "protocols" | "strict_sni_host" | "keepalive_interval" | "enable_full_duplex" => {
                return DirectiveOutcome::NotNeeded("HTTP/2 is always on with TLS".to_string());
            }
            "metrics" => {
                return DirectiveOutcome::NotNeeded("metrics are at [admin]".to_string());
            }
            _ => return by_hand("see [limits] and [[site]]"),
        }
        DirectiveOutcome::translated()
    }

    fn timeout(&mut self, line: &CaddyDirective) -> DirectiveOutcome {
        let key = match line.name() {
            "read_body" => "body_timeout",
            "read_header" => "header_timeout",
            "write" => "send_timeout",
            "idle" => "idle_timeout",
            _ => return DirectiveOutcome::ByHand("see [limits]".to_string()),
        };
        match duration(line.arg(0)) {
            Some(time) => {
                self.limits.push(key, &time, Some(line.id));
                DirectiveOutcome::translated()
            }
            None => DirectiveOutcome::ByHand("the value is not understood".to_string()),
        }
    }

    /// The tables of automatic certificates.
    pub fn acme_tables(&self) -> Vec<ConfigTable> {
        let contact = self
            .contact
            .as_ref()
            .map(|it| quoted(&format!("mailto:{it}")));
        let table = ConfigTable::new("[acme]")
            .comment("The agreement to the authority's terms of service, which Caddy implies.")
            .key("terms_agreed", "true")
            .optional_key("contact", contact);
        let authority = self.authority.as_ref().map(|url| {
            let table = ConfigTable::new("[[acme.authority]]");
            table.key("directory", quoted(url))
        });
        std::iter::once(table).chain(authority).collect()
    }

    /// The value of `trusted_proxies` for a site: these are the ranges in its block.
    pub fn trusted_by(&self, own: &[String]) -> Option<String> {
        let mut all: Vec<String> = self.trusted_proxies.iter().chain(own).cloned().collect();
        // A network may be in both lists.
        let mut known = std::collections::BTreeSet::new();
        all.retain(|it| known.insert(it.clone()));
        (!all.is_empty()).then(|| list(&all))
    }
}
