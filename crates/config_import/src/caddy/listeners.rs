//! Names and listeners: the addresses of a block as sites.

use std::collections::BTreeSet;

use super::address::SiteAddress;
use super::globals::GlobalOptions;
use super::site::SiteSettings;
use super::tree::CaddyDirective;
use crate::document::{ConfigDocument, ConfigTable};
use crate::report::DirectiveOutcome;
use crate::toml_values::list;

/// Addresses of a block with the same names.
#[derive(Clone, Debug, Default)]
pub struct SiteGroup {
    /// Names; none for all hosts.
    pub names: Vec<String>,
    /// Listeners without TLS.
    pub plain: Vec<String>,
    /// Listeners with TLS.
    pub encrypted: Vec<String>,
    /// Whether plain requests are redirected.
    pub redirects: bool,
    /// Whether certificates are of this machine's own authority.
    pub is_local: bool,
}

impl SiteGroup {
    /// Writes `[site.tls]`.
    pub fn write_tls(&self, settings: &SiteSettings, entry: usize, document: &mut ConfigDocument) {
        if self.encrypted.is_empty() {
            return;
        }
        let mut table = ConfigTable::new("[site.tls]").entry(entry);
        if self.encrypted != ["*:443"] {
            table = table.key("listen", list(&self.encrypted));
        }
        if !settings.names_certificate() {
            // Without any certificate, the site would answer without TLS.
            let is_own = self.is_local || self.has_wildcard();
            table = table.key(if is_own { "local" } else { "automatic" }, "true");
        }
        for (key, value) in settings.tls.iter().flatten() {
            table = table.key(key, value);
        }
        if self.redirects {
            table = table.key("redirect", "true");
        }
        document.push(table);
    }

    fn has_wildcard(&self) -> bool {
        self.names.iter().any(|name| name.starts_with("*."))
    }

    /// Whether its certificates are ordered by a challenge of the DNS, which needs a command.
    pub fn needs_dns(&self, settings: &SiteSettings) -> bool {
        self.has_wildcard() && self.orders_certificates(settings)
    }

    /// Whether a public authority issues the certificates.
    pub fn is_automatic(&self, settings: &SiteSettings) -> bool {
        !self.has_wildcard() && self.orders_certificates(settings)
    }

    fn orders_certificates(&self, settings: &SiteSettings) -> bool {
        !(self.encrypted.is_empty() || self.is_local || settings.names_certificate())
    }
}

/// Groups the addresses of a block. `plain_names` are the names of sites that answer plain requests themselves.
pub fn site_groups(
    addresses: &[SiteAddress],
    settings: &SiteSettings,
    globals: &GlobalOptions,
    plain_names: &BTreeSet<String>,
) -> Vec<SiteGroup> {
    let mut hosts: Vec<(Option<String>, SiteGroup)> = Vec::new();
    for address in addresses {
        let index = hosts.iter().position(|(host, _)| *host == address.host);
        let index = index.unwrap_or_else(|| {
            hosts.push((address.host.clone(), SiteGroup::default()));
            hosts.len() - 1
        });
        let group = &mut hosts[index].1;
        let listens = listens(address.port, settings, globals);
        // The same name may have both kinds of listeners.
        match address.is_tls {
            true => group.encrypted.extend(listens),
            false => group.plain.extend(listens),
        }
        group.is_local |= address.is_tls && (address.is_local || globals.is_local);
        let name = address.host.as_deref().unwrap_or_default();
        // Caddy redirects from its own HTTP port to its own HTTPS port only.
        let is_usual = address.is_tls && address.port == globals.ports.https;
        let is_free = !plain_names.contains(name) && !name.is_empty();
        if is_usual && globals.redirects && is_free && group.plain.is_empty() {
            group
                .plain
                .extend(self::listens(globals.ports.http, settings, globals));
            group.redirects = true;
        }
    }
    // Names with the same listeners are one site.
    let mut groups: Vec<SiteGroup> = Vec::new();
    for (host, group) in hosts {
        let same = groups.iter_mut().find(|it| {
            (&it.plain, &it.encrypted, it.redirects, it.is_local)
                == (
                    &group.plain,
                    &group.encrypted,
                    group.redirects,
                    group.is_local,
                )
                && host.is_some()
                && !it.names.is_empty()
        });
        match same {
            Some(same) => same.names.extend(host),
            None => groups.push(SiteGroup {
                names: host.into_iter().collect(),
                ..group
            }),
        }
    }
    groups
}

/// The addresses of `bind` and `default_bind`. Other networks than TCP become the loopback address: a site for a local
/// socket must not be public.
pub fn bound_hosts(directive: &CaddyDirective) -> (Vec<String>, DirectiveOutcome) {
    let hosts: Vec<String> = directive.args().iter().map(|it| it.text.clone()).collect();
    if hosts.iter().any(|it| it.contains(['/', '{'])) {
        let way = "sites listen at TCP addresses: until then at 127.0.0.1";
        let outcome = DirectiveOutcome::ByHand(way.to_string());
        return (vec!["127.0.0.1".to_string()], outcome);
    }
    (hosts, DirectiveOutcome::translated())
}

fn listens(port: u16, settings: &SiteSettings, globals: &GlobalOptions) -> Vec<String> {
    // The directive of a site replaces the global option.
    let hosts = match settings.hosts.is_empty() {
        true => &globals.hosts,
        false => &settings.hosts,
    };
    match &hosts[..] {
        [] => vec![format!("*:{port}")],
        hosts => hosts.iter().map(|host| listen(host, port)).collect(),
    }
}

fn listen(host: &str, port: u16) -> String {
    match host {
        "0.0.0.0" | "::" | "[::]" => format!("*:{port}"),
        host if host.contains(':') && !host.starts_with('[') => format!("[{host}]:{port}"),
        host => format!("{host}:{port}"),
    }
}
