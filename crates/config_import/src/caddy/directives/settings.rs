//! Settings of a site: `tls`, `log`, `encode`, `bind`, `request_body`, `handle_errors`, `map`, `vars`.

use crate::caddy::listeners::bound_hosts;
use crate::caddy::placeholders::{PlaceholderNames, request_text};
use crate::caddy::site::{SiteReader, StepScope};
use crate::caddy::tree::CaddyDirective;
use crate::caddy::values::bytes;
use crate::document::ConfigTable;
use crate::origin_tables::TableKeys;
use crate::report::DirectiveOutcome;
use crate::toml_values::{key, quoted};

/// The statuses for which `{err.status_code}.html` becomes an error page.
pub(in crate::caddy) const PAGE_STATUSES: [u16; 11] =
    [400, 401, 403, 404, 405, 410, 429, 500, 502, 503, 504];

impl SiteReader<'_> {
    pub(super) fn tls(&mut self, directive: &CaddyDirective) -> DirectiveOutcome {
        let mut keys: TableKeys = Vec::new();
        let mut outcome = DirectiveOutcome::translated();
        match (directive.arg(0), directive.arg(1)) {
            ("internal", _) => keys.push(("local", "true".to_string())),
            // Two files: a certificate and its key.
            (certificate, key) if !key.is_empty() => {
                keys.push(("certificate", quoted(certificate)));
                keys.push(("key", quoted(key)));
            }
            ("", _) => {}
            (email, _) => {
                outcome = DirectiveOutcome::NotNeeded(format!("the contact is in [acme]: {email}"));
            }
        }
        for line in directive.children() {
            let outcome = tls_option(&mut keys, line);
            match line.children().is_empty() {
                true => self.report.change(line.id, outcome),
                false => self.record_all(line, &outcome),
            }
        }
        self.settings.tls.get_or_insert_default().extend(keys);
        outcome
    }

    pub(super) fn log(&mut self, directive: &CaddyDirective) -> DirectiveOutcome {
        let mut to = "stderr".to_string();
        let mut format = "json";
        for line in directive.children() {
            let outcome = match (line.name(), line.arg(0)) {
                ("output", "file") => {
                    to = line.arg(1).to_string();
                    DirectiveOutcome::Translated("logrotate rotates the file".to_string())
                }
                ("output", "stdout" | "stderr") => {
                    to = line.arg(0).to_string();
                    DirectiveOutcome::translated()
                }
                // No access log at all.
                ("output", "discard") => {
                    self.record_all(line, &DirectiveOutcome::translated());
                    return DirectiveOutcome::translated();
                }
                ("format", "json") => DirectiveOutcome::translated(),
                ("format", "console" | "transform") => {
                    format = "extended";
                    DirectiveOutcome::Translated("in the extended format".to_string())
                }
                ("level", _) => {
                    DirectiveOutcome::NotNeeded("access logs have no level".to_string())
                }
                _ => DirectiveOutcome::ByHand("see the keys of [[log.access]]".to_string()),
            };
            self.record_all(line, &outcome);
        }
        // Caddy's default is JSON on standard error.
        let table = ConfigTable::new("[[log.access]]").entry(directive.id);
        let table = table.key("to", quoted(&to)).key("format", quoted(format));
        self.settings.logs.push(table);
        DirectiveOutcome::translated()
    }

    pub(super) fn bind(&mut self, directive: &CaddyDirective) -> DirectiveOutcome {
        let (hosts, outcome) = bound_hosts(directive);
        self.settings.hosts = hosts;
        outcome
    }

    pub(super) fn encode(&mut self, directive: &CaddyDirective) -> DirectiveOutcome {
        self.settings.compresses = true;
        for line in directive.children() {
            let outcome = match line.name() {
                "gzip" | "zstd" | "br" | "match" | "minimum_length" => {
                    DirectiveOutcome::NotNeeded("text is compressed, by its media type".to_string())
                }
                _ => DirectiveOutcome::ByHand("see [site.compress]".to_string()),
            };
            self.record_all(line, &outcome);
        }
        DirectiveOutcome::translated()
    }

    pub(super) fn request_body(
        &mut self,
        directive: &CaddyDirective,
        scope: &mut StepScope,
    ) -> DirectiveOutcome {
        let (target, _) = self.target(directive, scope);
        let is_whole = target.is_whole(scope);
        let size = directive
            .children()
            .iter()
            .find(|it| it.name() == "max_size");
        match size.and_then(|it| bytes(it.arg(0))) {
            Some(len) if is_whole && scope.selector.is_everything() => {
                self.settings.body_len = Some(len);
                DirectiveOutcome::translated()
            }
            Some(len) if is_whole => {
                scope.body_len = Some(len);
                DirectiveOutcome::translated()
            }
            _ => DirectiveOutcome::ByHand("body_len_max of a site or a route".to_string()),
        }
    }

    pub(super) fn vars(&mut self, directive: &CaddyDirective) -> DirectiveOutcome {
        let pairs = std::iter::once((directive.arg(0), directive.arg(1)));
        let lines = directive.children().iter().map(|it| (it.name(), it.arg(0)));
        // The block has a line for each variable.
        let pairs: Vec<(&str, &str)> = match directive.block {
            Some(_) => lines.collect(),
            None => pairs.collect(),
        };
        for (name, value) in pairs {
            if name.starts_with(['@', '/', '*']) {
                let way = "a variable has one value: use a [map.NAME]";
                return DirectiveOutcome::ByHand(way.to_string());
            }
            let values = &mut self.placeholders.values;
            values.insert(name.to_string(), value.to_string());
        }
        DirectiveOutcome::translated()
    }

    pub(super) fn map(&mut self, directive: &CaddyDirective) -> DirectiveOutcome {
        let by_hand = |way: &str| DirectiveOutcome::ByHand(way.to_string());
        let Some((source, destinations)) = directive.args().split_first() else {
            return by_hand("a map has a source");
        };
        let Some(from) = request_text(&source.text, &PlaceholderNames::default()) else {
            return by_hand("its source has no equal");
        };
        for (index, destination) in destinations.iter().enumerate() {
            let placeholder = destination.text.trim_matches(['{', '}']).to_string();
            // Names of maps have letters, digits and underscores.
            let plain = placeholder.replace(['-', '.'], "_");
            let is_plain = |it: char| it.is_ascii_alphanumeric() || it == '_';
            if plain.is_empty() || !plain.chars().all(is_plain) {
                return by_hand("names of maps have letters, digits and underscores");
            }
            let name = match self.maps.iter().any(|(name, _)| *name == plain) {
                true => format!("{plain}_{}", self.maps.len() + 1),
                false => plain,
            };
            let Some(table) = map_table(&name, &from.to_string(), directive, index) else {
                return by_hand("values of a map have no placeholders, and keys no captures");
            };
            self.maps.push((name.clone(), table.entry(directive.id)));
            self.placeholders.maps.insert(placeholder, name);
        }
        DirectiveOutcome::translated()
    }

    pub(super) fn handle_errors(&mut self, directive: &CaddyDirective) -> DirectiveOutcome {
        let words = directive.args().iter().map(|it| it.text.as_str());
        let statuses: Vec<u16> = words.flat_map(statuses_of).collect();
        let first = self.settings.error_pages.len();
        self.error_block(directive.children(), &statuses);
        match self.settings.error_pages.len() > first {
            true => DirectiveOutcome::translated(),
            false => DirectiveOutcome::ByHand(
                "[site.error_pages] has files for statuses, others are built in".to_string(),
            ),
        }
    }

    fn error_block(&mut self, directives: &[CaddyDirective], statuses: &[u16]) {
        let mut named: Vec<(String, Vec<u16>)> = Vec::new();
        for directive in directives.iter().filter(|it| it.name().starts_with('@')) {
            let text: Vec<String> = std::iter::once(directive)
                .chain(directive.children())
                .map(CaddyDirective::to_text)
                .collect();
            let found = expression_statuses(&text.join(" "));
            let outcome = match found.is_empty() {
                true => DirectiveOutcome::ByHand("a page has statuses".to_string()),
                false => DirectiveOutcome::translated(),
            };
            self.record_all(directive, &outcome);
            named.push((directive.name().to_string(), found));
        }
        for directive in directives.iter().filter(|it| !it.name().starts_with('@')) {
            let matched = directive
                .args()
                .first()
                .filter(|it| it.text.starts_with('@'));
            let own = match matched {
                Some(word) => named.iter().find(|(name, _)| *name == word.text),
                None => None,
            };
            // Inside of a block, the statuses are those of its matcher.
            let statuses = own.map_or(statuses, |(_, found)| found);
            // A matcher that is no list of statuses must not become a page for all.
            let is_unknown = matched.is_some() && own.is_none_or(|(_, found)| found.is_empty());
            let outcome = match directive.name() {
                _ if is_unknown => DirectiveOutcome::ByHand("a page has statuses".to_string()),
                "handle" | "route" => {
                    self.error_block(directive.children(), statuses);
                    DirectiveOutcome::translated()
                }
                "rewrite" => self.error_page(directive, statuses),
                "file_server" => DirectiveOutcome::translated(),
                "respond" => DirectiveOutcome::Translated("the page is built in".to_string()),
                _ => DirectiveOutcome::ByHand("an error page is a file".to_string()),
            };
            self.report.change(directive.id, outcome);
        }
    }

    fn error_page(&mut self, directive: &CaddyDirective, statuses: &[u16]) -> DirectiveOutcome {
        let target = directive.args().last().map_or("", |it| it.text.as_str());
        // Without a matcher, the page is for all errors.
        let statuses = match statuses.is_empty() {
            true => &PAGE_STATUSES[..],
            false => statuses,
        };
        for status in statuses {
            let page = ["{err.status_code}", "{http.error.status_code}"]
                .iter()
                .fold(target.to_string(), |page, name| {
                    page.replace(name, &status.to_string())
                });
            if page.contains('{') || !page.starts_with('/') {
                return DirectiveOutcome::ByHand(
                    "an error page is a file below the root".to_string(),
                );
            }
            self.settings
                .error_pages
                .push((*status, page, directive.id));
        }
        DirectiveOutcome::translated()
    }
}

fn tls_option(keys: &mut TableKeys, line: &CaddyDirective) -> DirectiveOutcome {
    let by_hand = |way: &str| DirectiveOutcome::ByHand(way.to_string());
    match line.name() {
        "protocols" if line.arg(0) == "tls1.3" => keys.push(("min_version", quoted("1.3"))),
        "protocols" => {
            return DirectiveOutcome::NotNeeded("TLS 1.2 and 1.3 are offered".to_string());
        }
        "ciphers" | "curves" | "alpn" => {
            return DirectiveOutcome::NotNeeded("only secure ciphers are used".to_string());
        }
        "client_auth" => return client_auth(keys, line),
        "issuer" if line.arg(0) == "internal" => keys.push(("local", "true".to_string())),
        "dns"
        | "propagation_timeout"
        | "propagation_delay"
        | "resolvers"
        | "dns_ttl"
        | "dns_challenge_override_domain" => {
            return by_hand("challenge = \"dns-01\" and hook in [acme]");
        }
        "on_demand" => return by_hand("[acme.on_demand] orders certificates for unknown names"),
        "ca" | "ca_root" | "eab" | "issuer" => {
            return by_hand("[[acme.authority]] has other authorities");
        }
        "key_type" | "reuse_private_keys" => {
            return DirectiveOutcome::NotNeeded("keys are of P-256".to_string());
        }
        _ => return by_hand("see [site.tls] and [acme]"),
    }
    DirectiveOutcome::translated()
}

fn client_auth(keys: &mut TableKeys, block: &CaddyDirective) -> DirectiveOutcome {
    let mut policy = "require";
    let mut authority = String::new();
    for line in block.children() {
        match (line.name(), line.arg(0)) {
            ("mode", "request" | "verify_if_given") => policy = "request",
            ("trusted_ca_cert_file", file) => authority = file.to_string(),
            ("trust_pool", "file") => {
                let inner = line.children().iter().find(|it| it.name() == "pem_file");
                authority = inner.map_or(line.arg(1), |it| it.arg(0)).to_string();
            }
            _ => {}
        }
    }
    // Without authorities the site is refused by the parser: it must not be open.
    keys.push(("client", quoted(policy)));
    if authority.is_empty() {
        return DirectiveOutcome::ByHand("client_ca in [site.tls] is a file".to_string());
    }
    keys.push(("client_ca", quoted(&authority)));
    DirectiveOutcome::translated()
}

fn map_table(name: &str, from: &str, map: &CaddyDirective, index: usize) -> Option<ConfigTable> {
    let mut table = ConfigTable::new(&format!("[map.{name}]")).key("from", quoted(from));
    let mut entries = Vec::new();
    for line in map.children() {
        let value = line.arg(index);
        if value.contains(['{', '$']) {
            return None;
        }
        match line.name() {
            "default" => table = table.key("default", quoted(value)),
            // A dash leaves the destination without a value.
            _ if value == "-" => {}
            text => entries.push(format!("{} = {}", key(text), quoted(value))),
        }
    }
    (!entries.is_empty()).then(|| {
        table
            .key("ignore_case", "false")
            .key("entries", format!("{{ {} }}", entries.join(", ")))
    })
}

/// `404`, `4xx`, `404-410`.
fn statuses_of(word: &str) -> Vec<u16> {
    match (word.parse::<u16>(), word.strip_suffix("xx")) {
        (Ok(status), _) => vec![status],
        (_, Some(class)) => of_class(class),
        _ => Vec::new(),
    }
}

fn of_class(class: &str) -> Vec<u16> {
    let statuses = PAGE_STATUSES.iter().copied();
    statuses
        .filter(|it| it.to_string().starts_with(class))
        .collect()
}

/// The statuses of `{err.status_code} == 404`, `>= 500` and `in [403, 404]`.
fn expression_statuses(text: &str) -> Vec<u16> {
    if !text.contains("status_code") || text.contains("!=") || text.contains('!') {
        return Vec::new();
    }
    // Only numbers after the placeholder are statuses; `@404` in front is a name.
    let after = text.split("status_code").nth(1).unwrap_or_default();
    let numbers = after.split(|it: char| !it.is_ascii_digit());
    let numbers: Vec<u16> = numbers.filter_map(|it| it.parse().ok()).collect();
    match (&numbers[..], after.contains(">=")) {
        ([500], true) => of_class("5"),
        ([400], true) if !text.contains('<') => PAGE_STATUSES.to_vec(),
        ([..], true) => Vec::new(),
        (numbers, false) if !after.contains(['<', '>']) => numbers.to_vec(),
        _ => Vec::new(),
    }
}
