//! Access: `[[site.rule]]`.
//!
//! The first rule that allows or refuses a request decides, so the rules of a location come before those of locations
//! with lower precedence. A location that is less restricted ends with an `allow`.

use super::responses::write_responses;
use super::routes::named_handler;
use crate::document::{ConfigDocument, ConfigTable};
use crate::nginx::level::Translation;
use crate::nginx::locations::Location;
use crate::nginx::servers::Server;
use crate::nginx::settings::{AccessSettings, RequestCondition};
use crate::path_globs::PathGlobs;
use crate::path_overlap::may_overlap;
use crate::report::DirectiveOutcome;
use crate::request_selector::exception;
use crate::toml_values::{list, quoted};

impl AccessSettings {
    /// Whether it restricts no request.
    pub fn is_open(&self) -> bool {
        self.password.realm.is_none()
            && self.rates.is_empty()
            && self.conditional_refusals.is_empty()
            && !self.has_unknown_guard
            && self.refusal.is_none()
            && self.auth_request.is_none()
            && !self.addresses.iter().any(|it| !it.is_allowed)
    }

    /// Whether it refuses all requests.
    pub fn is_closed(&self) -> bool {
        // nginx takes the first entry that matches, so only `deny all` in front refuses every client.
        let is_denied = self
            .addresses
            .first()
            .is_some_and(|it| !it.is_allowed && it.address.is_none());
        self.refusal.is_some() || self.has_unknown_guard || (is_denied && !self.is_any_enough)
    }
}

/// Writes the rules of a site.
pub fn write_rules(
    server: &Server,
    has_hidden_paths: bool,
    translation: &mut Translation,
    document: &mut ConfigDocument,
) {
    if server.content.has_unknown_guard {
        let rule = ConfigTable::new("[[site.rule]]").entry(server.entry);
        let rule = rule.comment("Until the refusal of the server is translated by hand.");
        document.push(rule.key("deny", "403"));
    }
    write_responses(server, translation, document);
    let base = &server.settings.access;
    let locations: Vec<&Location> = server
        .locations
        .iter()
        .filter(|it| it.name.is_none() && !it.content.is_other)
        .collect();
    let all = locations.iter().map(|it| (&it.settings.access, it.entry));
    for (access, entry) in std::iter::once((base, server.entry)).chain(all) {
        // nginx asks for no password without a file, which is hardly intended.
        if access.password.realm.is_some() && access.password.file.is_empty() {
            let way = "auth_basic has no auth_basic_user_file: the paths are not protected";
            translation
                .report
                .change(entry, DirectiveOutcome::ByHand(way.to_string()));
        }
    }
    for (index, location) in locations.iter().enumerate() {
        let access = &location.settings.access;
        let path = access.auth_request.as_deref();
        if path.is_some_and(|path| auth_server(server, path).is_none()) {
            let way = "its auth_request asks no address that is known: the paths are refused until the rule has forward_auth";
            translation
                .report
                .change(location.entry, DirectiveOutcome::ByHand(way.to_string()));
        }
        // Rules come before redirects, so a refusal after `rewrite … permanent` would hide them.
        let has_redirects = location
            .content
            .changes
            .iter()
            .any(|it| it.status.is_some());
        if access.refusal.is_some() && has_redirects {
            let way = "rules come before redirects: its rewrites are not applied";
            translation
                .report
                .change(location.entry, DirectiveOutcome::ByHand(way.to_string()));
        }
        // Requests for missing files have the access of the location that answers them.
        let named = named_handler(server, location).map(|it| &it.settings.access);
        let named = named.filter(|it| !it.is_open() && *it != access);
        if named.is_some() {
            let difference = "access of the named location holds for the files, too";
            translation
                .report
                .note_difference(location.entry, difference);
        }
        let lower = &locations[index + 1..];
        let is_below_restriction = lower.iter().any(|other| {
            let is_other = other.settings.access != *access && !other.settings.access.is_open();
            is_other && may_overlap(&location.globs, &other.globs)
        });
        // An open location ends with an `allow`, which must not hold for these paths.
        let is_above_open = lower.iter().any(|other| {
            let is_less_restricted = other.settings.access.is_open() && !access.is_open();
            is_less_restricted && may_overlap(&location.globs, &other.globs)
        });
        let differs = access != base;
        // Names with a dot are never served as files, so their refusal needs no rule.
        let is_hidden = access.is_closed()
            && !has_hidden_paths
            && location.globs.globs.iter().all(|it| it.contains("/."));
        let has_own_rules = differs || named.is_some() || is_below_restriction || is_above_open;
        if is_hidden || !has_own_rules {
            continue;
        }
        let needs_allow = !access.is_closed() && (is_below_restriction || !base.is_open());
        let mut comment = Some(location.comment.as_str());
        // Other locations decide about excluded paths.
        let excluded = excepted_paths(&location.globs).filter(|_| access.is_closed());
        let scripts = match needs_allow {
            true => exception(&script_paths(&locations, location)),
            false => None,
        };
        for glob in refused_globs(&location.globs.globs, needs_allow) {
            let guarded = match location.ignores_case {
                true => format!("(?i){glob}"),
                false => glob.clone(),
            };
            let accesses = std::iter::once(access).chain(named);
            for rule in accesses.flat_map(|it| rules(server, it, Some(&guarded))) {
                let rule = rule.comment(comment.take().unwrap_or_default());
                let rule = rule.optional_key("not", excluded.as_deref());
                document.push(rule.entry(location.entry));
            }
            if needs_allow {
                let table =
                    ConfigTable::new("[[site.rule]]").comment(comment.take().unwrap_or_default());
                document.push(
                    table
                        .entry(location.entry)
                        .key("pattern", quoted(glob))
                        .key("allow", "true")
                        .optional_key("not", scripts.as_deref()),
                );
            }
        }
    }
    // Rules without a pattern match all paths, so they come after those of locations.
    for rule in rules(server, base, None) {
        document.push(rule);
    }
}

/// The value of `not` for the paths that an expression excludes.
fn excepted_paths(globs: &PathGlobs) -> Option<String> {
    let expression = globs.excepted_paths.as_ref();
    let value = expression.map(|it| quoted(&format!("$path=~{it}")));
    let value = value.map(|value| format!("{{ variable = {value} }}"));
    value.or_else(|| exception(&globs.exceptions))
}

/// The paths behind the names of scripts, as globs. `/x.php/y.css` is a script here, and a file for nginx, if the location of
/// `.css` comes first; the permission for the files must not open the script.
fn script_paths(locations: &[&Location], file_location: &Location) -> Vec<String> {
    let handlers = locations
        .iter()
        .filter(|it| it.content.fastcgi.is_some() && it.entry != file_location.entry);
    let names = handlers.flat_map(|it| &it.globs.globs);
    let names = names.filter_map(|glob| glob.strip_prefix('*'));
    names.map(|name| format!("/**{name}/**")).collect()
}

/// The globs of rules. A rule that refuses covers everything below its path, so `/data` needs no `/data/**`.
fn refused_globs(globs: &[String], needs_allow: bool) -> impl Iterator<Item = &String> {
    let is_covered = move |glob: &str| {
        let folder = glob.strip_suffix("/**");
        !needs_allow && folder.is_some_and(|folder| globs.iter().any(|it| it == folder))
    };
    globs.iter().filter(move |glob| !is_covered(glob))
}

/// The rules of settings for a glob; for all paths without one.
fn rules(server: &Server, access: &AccessSettings, glob: Option<&String>) -> Vec<ConfigTable> {
    let table =
        || ConfigTable::new("[[site.rule]]").optional_key("pattern", glob.map(|glob| quoted(glob)));
    let forward = access.auth_request.as_deref();
    let forward = forward.map(|path| auth_server(server, path));
    // Paths that nginx protects must not become open.
    if forward == Some(None) {
        return vec![refusal(table(), 403)];
    }
    let forward = forward.flatten();
    let unknown = access.has_unknown_guard.then_some(503);
    if let Some(status) = access.refusal.or(unknown) {
        return vec![refusal(table(), status)];
    }
    let conditional = access.conditional_refusals.iter();
    let mut rules: Vec<ConfigTable> = conditional
        .map(|it| refusal(with_condition(table(), Some(&it.condition)), it.status))
        .collect();
    let password = access
        .password
        .realm
        .as_ref()
        .filter(|_| !access.password.file.is_empty());
    let is_any = access.is_any_enough && (password.is_some() || forward.is_some());
    if !is_any {
        rules.extend(address_rules(access, table));
    }
    // Before the password, as in nginx, so that guesses count.
    for rate in &access.rates {
        rules.push(
            table()
                .key("rate", quoted(&rate.rate))
                .key("burst", rate.burst.to_string()),
        );
    }
    if password.is_some() || forward.is_some() {
        // `satisfy any`: allowed addresses need no password.
        let allowed: Vec<String> = match is_any {
            true => access
                .addresses
                .iter()
                .filter(|it| it.is_allowed)
                .filter_map(|it| it.address.clone())
                .collect(),
            false => Vec::new(),
        };
        let except = (!allowed.is_empty()).then(|| list(&allowed));
        let mut rule = table().optional_key("except", except);
        if let Some(realm) = password {
            rule = rule.key("auth", quoted(&access.password.file));
            rule = rule.key("realm", quoted(realm));
        }
        // Alternatives of one rule; exempt addresses are in `except`.
        let is_one_enough = access.is_any_enough && password.is_some() && forward.is_some();
        let forward = forward.map(|url| forward_auth(&url, &access.auth_fields));
        rule = rule.optional_key("forward_auth", forward);
        rules.push(rule.optional_key("satisfy", is_one_enough.then(|| quoted("any"))));
    }
    rules
}

/// The URL to which the location of `auth_request` sends its requests; `None` without an equivalent.
fn auth_server(server: &Server, path: &str) -> Option<String> {
    let mut locations = server.locations.iter();
    let location = locations.find(|it| it.name.is_none() && it.text == path)?;
    let url = &location.content.proxy.as_ref()?.value;
    // A URL with variables can be any server.
    let (_, rest) = url.split_once("://").filter(|_| !url.contains('$'))?;
    let host = rest.split('/').next().unwrap_or_default();
    // A name without dots is that of an `upstream` in most cases.
    if !host.contains(['.', ':']) && host != "localhost" {
        return None;
    }
    // Without a path in the URL, nginx sends that of the location.
    Some(match rest.contains('/') {
        true => url.clone(),
        false => format!("{url}{path}"),
    })
}

/// The value of `forward_auth`.
fn forward_auth(url: &str, fields: &[(String, String)]) -> String {
    if fields.is_empty() {
        return quoted(url);
    }
    let pairs = fields.iter();
    let pairs = pairs.map(|(name, field)| format!("{} = {}", quoted(name), quoted(field)));
    let pairs: Vec<String> = pairs.collect();
    format!(
        "{{ url = {}, copy = {{ {} }} }}",
        quoted(url),
        pairs.join(", ")
    )
}

/// Adds a condition on requests.
pub fn with_condition(table: ConfigTable, condition: Option<&RequestCondition>) -> ConfigTable {
    match condition {
        Some(condition) => table.key(&condition.key, &condition.value),
        None => table,
    }
}

/// The rule of `return` with a status of refusals.
fn refusal(rule: ConfigTable, status: u16) -> ConfigTable {
    match status {
        // nginx' own status for a connection that it closes without a response.
        444 => rule.key("close", "true"),
        _ => rule.key("deny", status.to_string()),
    }
}

/// The rules of `allow` and `deny`: each denies addresses except those that were allowed before.
fn address_rules(access: &AccessSettings, table: impl Fn() -> ConfigTable) -> Vec<ConfigTable> {
    let mut rules = Vec::new();
    let mut allowed: Vec<String> = Vec::new();
    let mut entries = access.addresses.iter().peekable();
    while let Some(entry) = entries.next() {
        match (&entry.address, entry.is_allowed) {
            (Some(address), true) => allowed.push(address.clone()),
            // After `allow all` nothing is denied.
            (None, true) => break,
            (address, false) => {
                let mut denied: Vec<String> = address.iter().cloned().collect();
                while let Some(next) = entries
                    .next_if(|it| !it.is_allowed && it.address.is_some() && !denied.is_empty())
                {
                    denied.extend(next.address.clone());
                }
                let addresses = (!denied.is_empty()).then(|| list(&denied));
                let except = (!allowed.is_empty()).then(|| list(&allowed));
                let rule = table()
                    .optional_key("addresses", addresses)
                    .optional_key("except", except);
                rules.push(rule.key("deny", "403"));
            }
        }
    }
    rules
}
