//! Access: `[[site.rule]]`.
//!
//! The first rule that allows or refuses a request decides, so the rules of a location come before those of locations
//! with lower precedence. A location that is less restricted ends with an `allow`.

use lowroad_config::{PathExpression, PathPattern};

use super::opened_paths::opening_keys;
use super::path_infos::write_path_infos;
use super::responses::write_responses;
use super::routes::named_handler;
use super::site::index_names;
use crate::document::{ConfigDocument, ConfigTable};
use crate::nginx::level::Translation;
use crate::nginx::locations::{Location, LocationRank};
use crate::nginx::servers::Server;
use crate::nginx::settings::AccessSettings;
use crate::path_globs::PathGlobs;
use crate::path_overlap::{has_other_front, may_overlap};
use crate::report::DirectiveOutcome;
use crate::request_selector::{exception_tables, one_or_list};
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
    let base = &server.settings.access;
    // nginx decides about them before it selects a location.
    for it in &base.conditional_refusals {
        let rule = ConfigTable::new("[[site.rule]]").entry(server.entry);
        document.push(refusal(it.conditions.write(rule), it.status));
    }
    write_responses(server, translation, document);
    write_path_infos(server, document);
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
        let mut exceptions = Vec::new();
        if access.is_closed() {
            exceptions = excepted_paths(&location.globs);
            exceptions.extend(index_folders(server, location));
        }
        exceptions.extend(paths_below(server, location));
        let excluded = one_or_list(exceptions);
        let mut opening = None;
        if needs_allow {
            opening = opening_keys(server, location);
            for table in exception_tables(&script_paths(&locations, location)) {
                opening.iter_mut().for_each(|it| it.except(table.clone()));
            }
            if opening.is_none() {
                let way = "the paths have the refusals of the locations around them until then: write a rule with `allow` for exactly these paths";
                let outcome = DirectiveOutcome::ByHand(way.to_string());
                translation.report.change(location.entry, outcome);
            }
        }
        for glob in refused_globs(&location.globs.globs, needs_allow) {
            let guarded = location.pattern(glob);
            let accesses = std::iter::once(access).chain(named);
            let rules = accesses.flat_map(|it| match exact_refusal(server, location, it) {
                Some(status) => vec![response_rule(&guarded, status, &it.refusal_text)],
                None => rules(server, it, Some(&guarded)),
            });
            for rule in rules {
                let rule = rule.comment(comment.take().unwrap_or_default());
                let rule = rule.optional_key("not", excluded.as_deref());
                document.push(rule.entry(location.entry));
            }
            if let Some(opening) = &opening {
                let table =
                    ConfigTable::new("[[site.rule]]").comment(comment.take().unwrap_or_default());
                let table = table
                    .entry(location.entry)
                    .key("pattern", quoted(&location.pattern(glob)))
                    .key("allow", "true");
                document.push(opening.write(table));
            }
        }
    }
    // Rules without a pattern match all paths, so they come after those of locations.
    for rule in rules(server, base, None) {
        document.push(rule);
    }
}

/// The tables of `not` for the paths that an expression excludes.
fn excepted_paths(globs: &PathGlobs) -> Vec<String> {
    match &globs.excepted_paths {
        Some(expression) => vec![path_table(expression)],
        None => exception_tables(&globs.exceptions),
    }
}

/// The table of conditions that an expression finds the path.
fn path_table(expression: &str) -> String {
    let condition = quoted(&format!("$path=~{expression}"));
    format!("{{ variable = {condition} }}")
}

/// The status with which an exact location refuses its path, if no script may get the paths below. `deny` would refuse
/// these, too.
fn exact_refusal(server: &Server, location: &Location, access: &AccessSettings) -> Option<u16> {
    let path = &location.text;
    let name = path.rsplit('/').next().unwrap_or_default();
    // An index file is also refused to requests for its folder.
    let is_index = index_names(server).iter().any(|it| it == name);
    let is_exact =
        location.rank == LocationRank::Exact && !is_index && !is_script_path(server, path);
    let status = access.refusal.or_else(|| {
        let is_plain = access.auth_request.is_none() && access.conditional_refusals.is_empty();
        (is_plain && access.is_closed() && !access.has_unknown_guard).then_some(403)
    });
    status.filter(|status| is_exact && !NO_RESPONSES.contains(status))
}

/// Statuses that a rule can't respond with.
const NO_RESPONSES: [u16; 7] = [401, 407, 416, 421, 426, 444, 499];

/// The rule that responds to exactly the paths of a pattern.
fn response_rule(pattern: &str, status: u16, text: &str) -> ConfigTable {
    let rule = ConfigTable::new("[[site.rule]]").key("pattern", quoted(pattern));
    rule.key(
        "respond",
        match text.is_empty() {
            true => status.to_string(),
            false => format!("{{ status = {status}, text = {} }}", quoted(text)),
        },
    )
}

/// Whether a location for scripts has a path.
fn is_script_path(server: &Server, path: &str) -> bool {
    let handlers = server.locations.iter();
    let mut handlers = handlers.filter(|it| it.content.fastcgi.is_some());
    handlers.any(|it| has_path(it, path))
}

/// Whether a path is one of a location.
pub fn has_path(location: &Location, path: &str) -> bool {
    let mut globs = location.globs.globs.iter();
    globs.any(|glob| {
        // Most locations differ without a pattern.
        let is_other = !location.ignores_case && has_other_front(glob, path);
        let has_path = |it: PathPattern| it.matches(path.as_bytes());
        !is_other && PathPattern::parse(&location.pattern(glob)).is_ok_and(has_path)
    })
}

/// The table of the paths below that of an exact location, to which a rule would apply, too.
fn paths_below(server: &Server, location: &Location) -> Option<String> {
    let mut changes = server.locations.iter().flat_map(|it| &it.content.changes);
    // A condition sees the requested path, so a rewrite could lead around the rule.
    let has_rewrites = changes.any(|it| it.status.is_none()) || !server.content.changes.is_empty();
    let path = &location.text;
    if location.rank != LocationRank::Exact || has_rewrites || is_script_path(server, path) {
        return None;
    }
    let escaped = regex_syntax::escape(path);
    Some(path_table(&match path.ends_with('/') {
        true => format!("^{escaped}."),
        false => format!("^{escaped}/"),
    }))
}

/// The tables of folders with the index file of a location with precedence. nginx selects the location by the index
/// file; a rule for files that match its name would refuse the folder.
fn index_folders(server: &Server, location: &Location) -> Vec<String> {
    let before = server.locations.iter();
    let before = before.take_while(|it| it.entry != location.entry);
    let open = before.filter(|it| it.name.is_none() && !it.settings.access.is_closed());
    let files = open.flat_map(|it| &it.globs.globs);
    let names = index_names(server);
    if is_route_index_only(server, location, &names) {
        return other_folders(location).into_iter().collect();
    }
    let is_index = |file: &&String| {
        let name = file.rsplit('/').next().unwrap_or_default();
        file.starts_with('/') && !file.contains('*') && names.iter().any(|it| it == name)
    };
    let folders = files
        .filter(is_index)
        .filter(|file| has_path(location, file))
        .map(|file| &file[..=file.rfind('/').unwrap_or_default()])
        .filter(|folder| !is_rewritten(server, folder))
        // nginx refuses a folder of the location itself before it looks for the index file.
        .filter(|folder| !has_path(location, folder));
    folders
        .map(|folder| path_table(&format!("^{}$", regex_syntax::escape(folder))))
        .collect()
}

/// The table of the folders that don't end like the names of a location: with a slash behind its name, a script still runs.
/// `None` unless all names have one ending.
fn other_folders(location: &Location) -> Option<String> {
    let [glob] = &location.globs.globs[..] else {
        return None;
    };
    let name = glob.strip_prefix('*').filter(|it| it.is_ascii())?;
    let mut ends = vec!["^".to_string()];
    for (at, character) in name.char_indices() {
        let rest = &name[at + 1..];
        // A slash before the rest begins a shorter name; two slashes are one.
        let slash = if rest.is_empty() { "/" } else { "" };
        let rest = regex_syntax::escape(rest);
        ends.push(format!("[^{character}{slash}]{rest}"));
    }
    let case = if location.ignores_case { "(?i)" } else { "" };
    let is_plain = !name.contains(['*', '/', '^', '[', ']', '-', '&', '~', '\\']);
    is_plain.then(|| path_table(&format!("{case}(?:{})/$", ends.join("|"))))
}

/// Whether a location has the index files of routes, and no folder has one: neither nginx nor a route looks for it there.
fn is_route_index_only(server: &Server, location: &Location, names: &[String]) -> bool {
    let scripts = server.locations.iter();
    let scripts = scripts.filter(|it| it.content.fastcgi.is_some());
    let indexes = scripts.clone().map(|it| {
        let index = it.settings.fastcgi.index.as_deref();
        index.unwrap_or("index.php")
    });
    let takes_folder = |it: &Location| has_path(it, "/folder/");
    let has_any = |path: &str| has_path(location, path);
    let has_route_index = indexes.clone().any(|it| has_any(&format!("/{it}")));
    let has_index = names.iter().any(|it| has_any(&format!("/{it}")));
    let locations = server.locations.iter().map(|it| &it.content);
    let contents = std::iter::once(&server.content).chain(locations);
    // A condition sees the requested path, so a rewrite could lead around the rule.
    let has_rewrites = contents
        .flat_map(|it| &it.changes)
        .any(|it| it.status.is_none());
    let is_by_name = location.globs.globs.iter().all(|it| it.starts_with('*'));
    is_by_name
        && has_route_index
        && !has_index
        && !has_rewrites
        && !scripts.clone().any(takes_folder)
}

/// Whether a rewrite may lead a path elsewhere.
fn is_rewritten(server: &Server, path: &str) -> bool {
    let locations = server.locations.iter().map(|it| &it.content);
    let contents = std::iter::once(&server.content).chain(locations);
    let mut changes = contents.flat_map(|it| &it.changes);
    changes.any(|change| {
        let expression = PathExpression::parse(&change.regex);
        change.status.is_none() && expression.is_ok_and(|it| it.is_match(path.as_bytes()))
    })
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
        let pattern = glob.map_or("/**", String::as_str);
        let text = &access.refusal_text;
        let has_text = !text.is_empty() && !NO_RESPONSES.contains(&status);
        let response = has_text.then(|| response_rule(pattern, status, text));
        // The refusal is also for paths below, such as those behind the name of a script.
        let rules = response.into_iter().chain([refusal(table(), status)]);
        return rules.collect();
    }
    // Those of the server come before all other rules.
    let of_server = &server.settings.access.conditional_refusals;
    let conditional = access.conditional_refusals.iter();
    let conditional = conditional.filter(|it| !of_server.contains(it));
    let mut rules: Vec<ConfigTable> = conditional
        .map(|it| refusal(it.conditions.write(table()), it.status))
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
