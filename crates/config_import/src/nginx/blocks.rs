//! Reads the blocks of a configuration into servers and locations.

use super::directives::refused_methods;
use super::directives::{condition, translate, upstream_directive};
use super::include::flat;
use super::level::{Level, Translation, Upstream};
use super::maps::{MapTable, map_table};
use super::settings::{LevelSettings, LocationContent};
use super::tree::Directive;
use crate::path_globs::PathGlobs;
use crate::report::{DirectiveOutcome, ReportEntry};

/// An address of `listen`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// The address: `*:80`.
    pub address: String,
    /// Whether it has TLS.
    pub is_tls: bool,
    /// Whether the server is the default of the address.
    pub is_default: bool,
}

/// The order in which locations are compared with a path: by this rank, then prefixes by their length, then by place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LocationRank {
    /// `=`
    Exact,
    /// `~` in another location, or a prefix longer than one with `^~`
    Nested,
    /// `^~`
    FinalPrefix,
    /// `~` and `~*`
    Regex,
    /// A prefix.
    Prefix,
}

/// One `location`.
#[derive(Clone, Debug)]
pub struct Location {
    /// The rank.
    pub rank: LocationRank,
    /// The prefix or the path; the expression of `~`.
    pub text: String,
    /// The name of `@name`; such a location has no paths.
    pub name: Option<String>,
    /// The paths.
    pub globs: PathGlobs,
    /// The settings.
    pub settings: LevelSettings,
    /// The content.
    pub content: LocationContent,
    /// The directive in the report.
    pub entry: usize,
    /// The directive as text, for comments.
    pub comment: String,
}

/// One `server`.
#[derive(Clone, Debug)]
pub struct Server {
    /// `server_name`, without those that make a default site.
    pub names: Vec<String>,
    /// Whether the server has the name `_` or none, or is the default of an address.
    pub is_default: bool,
    /// `listen`
    pub listens: Vec<ListenAddress>,
    /// The settings.
    pub settings: LevelSettings,
    /// The content.
    pub content: LocationContent,
    /// The locations, in the order of precedence.
    pub locations: Vec<Location>,
    /// The directive in the report.
    pub entry: usize,
    /// Its place, for a comment.
    pub place: String,
}

/// Blocks that other functions read.
const CONTAINERS: [&str; 13] = [
    "http",
    "server",
    "location",
    "upstream",
    "map",
    "geo",
    "split_clients",
    "types",
    "if",
    "limit_except",
    "events",
    "stream",
    "mail",
];
/// Blocks with entries that are no directives.
const OPAQUE: [&str; 4] = ["types", "map", "geo", "split_clients"];

/// Adds all directives to the report, as not translated, and gives them their numbers.
pub fn number_directives(translation: &mut Translation, directives: &mut [Directive]) {
    for directive in directives {
        directive.id = translation.report.add(ReportEntry {
            place: directive.place.to_string(),
            directive: directive.to_text(),
            outcome: DirectiveOutcome::ByHand(
                "this directive is unknown to the import".to_string(),
            ),
        });
        // Entries of a map or of `types` are data; the report would count each as a directive.
        let is_opaque = OPAQUE.contains(&&*directive.name);
        if let Some(block) = directive.block.as_mut().filter(|_| !is_opaque) {
            number_directives(translation, block);
        }
    }
}

/// Reads all servers of a configuration.
pub fn read_servers(translation: &mut Translation, directives: &[Directive]) -> Vec<Server> {
    // `flat` omits includes, so no later step would report them.
    record_includes(translation, directives);
    let top = flat(directives);
    let settings = simple_directives(translation, &top, LevelSettings::default()).0;
    let mut servers = Vec::new();
    for directive in &top {
        match &*directive.name {
            "http" => servers.extend(read_http(translation, directive, settings.clone())),
            "events" => {
                simple_directives(translation, &flat(directive.children()), settings.clone());
                translated(translation, directive);
            }
            "stream" | "mail" => {
                let way = "Lowroad is an HTTP server: use HAProxy, or systemd-socket-proxyd";
                by_hand(translation, directive, way);
            }
            // A snippet for `sites-available`, without `http` around it.
            "server" => servers.extend(read_server(translation, directive, settings.clone())),
            _ => {}
        }
    }
    let has_locations = top.iter().any(|it| it.name == "location");
    if servers.is_empty() && has_locations {
        servers.extend(read_server(
            translation,
            &server_of_snippet(directives),
            settings,
        ));
    }
    servers
}

/// A server around the directives of a snippet, which some other file would include in a server.
fn server_of_snippet(directives: &[Directive]) -> Directive {
    Directive {
        name: "server".to_string(),
        args: Vec::new(),
        block: Some(directives.to_vec()),
        place: directives[0].place.clone(),
        // It isn't in the report.
        id: usize::MAX,
    }
}

fn read_http(
    translation: &mut Translation,
    http: &Directive,
    settings: LevelSettings,
) -> Vec<Server> {
    let children = flat(http.children());
    let settings = simple_directives(translation, &children, settings).0;
    translated(translation, http);
    let servers = children.iter().filter(|it| it.name == "server");
    let mut read = Vec::new();
    for server in servers {
        read.extend(read_server(translation, server, settings.clone()));
    }
    read
}

fn record_includes(translation: &mut Translation, directives: &[Directive]) {
    for directive in directives {
        if directive.name == "include" {
            match directive.block {
                Some(_) => translated(translation, directive),
                None => by_hand(translation, directive, "the file is not read"),
            }
        }
        if !OPAQUE.contains(&&*directive.name) {
            record_includes(translation, directive.children());
        }
    }
}

fn translated(translation: &mut Translation, directive: &Directive) {
    translation
        .report
        .change(directive.id, DirectiveOutcome::translated());
}

fn by_hand(translation: &mut Translation, directive: &Directive, way: &str) {
    translation
        .report
        .change(directive.id, DirectiveOutcome::ByHand(way.to_string()));
    if !OPAQUE.contains(&&*directive.name) {
        for child in flat(directive.children()) {
            by_hand(translation, child, "see the block around it");
        }
    }
}

/// Translates the directives of a block that are no containers. Definitions and variables come first, since others
/// refer to them.
fn simple_directives(
    translation: &mut Translation,
    directives: &[&Directive],
    settings: LevelSettings,
) -> (LevelSettings, LocationContent) {
    let is_definition = |name: &str| {
        matches!(
            name,
            "map"
                | "geo"
                | "split_clients"
                | "upstream"
                | "types"
                | "set"
                | "log_format"
                | "limit_req_zone"
                | "limit_conn_zone"
        )
    };
    let mut level = Level::new(translation, settings);
    let is_of_server = |name: &str| matches!(name, "listen" | "server_name" | "server");
    level.is_location = !directives.iter().any(|it| is_of_server(&it.name));
    for directive in directives.iter().filter(|it| is_definition(&it.name)) {
        definition(&mut level, directive);
    }
    for directive in directives.iter().filter(|it| !is_definition(&it.name)) {
        match &*directive.name {
            "if" => condition(&mut level, directive),
            "limit_except" => limit_except(&mut level, directive),
            "listen" | "server_name" => {}
            name if CONTAINERS.contains(&name) => {}
            _ => {
                let outcome = translate(&mut level, directive);
                level.record(directive, outcome);
            }
        }
    }
    (level.settings, level.content)
}

fn definition(level: &mut Level<'_>, directive: &Directive) {
    let outcome = match &*directive.name {
        "map" => read_map(level, directive),
        "upstream" => {
            read_upstream(level, directive);
            DirectiveOutcome::translated()
        }
        "types" => read_types(level, directive),
        "geo" => DirectiveOutcome::ByHand(
            "use `addresses` and `except` of rules, or a [[class]]".to_string(),
        ),
        "split_clients" => DirectiveOutcome::ByHand("use weights of an [[origin]]".to_string()),
        _ => translate(level, directive),
    };
    level.record(directive, outcome);
}

fn read_map(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let entries = flat(directive.children());
    let pairs: Vec<(String, String)> = entries
        .iter()
        .map(|entry| (entry.name.clone(), entry.arg(0).to_string()))
        .collect();
    let name = directive.arg(1).trim_start_matches('$').to_string();
    let source = directive.arg(0).to_string();
    let outcome = match &*source {
        "$http_upgrade" => DirectiveOutcome::NotNeeded("WebSocket needs no fields".to_string()),
        "$status" | "$sent_http_content_type" => DirectiveOutcome::translated(),
        _ => match map_table(&name, &source, &pairs) {
            Some(map) => keep_map(level, directive, &name, map),
            None => DirectiveOutcome::ByHand(
                "[map.NAME] has texts, *.HOST and ~REGEX as keys, and values without variables"
                    .to_string(),
            ),
        },
    };
    level.definitions().maps.insert(name, (source, pairs));
    outcome
}

fn keep_map(
    level: &mut Level<'_>,
    directive: &Directive,
    name: &str,
    map: MapTable,
) -> DirectiveOutcome {
    let definitions = level.definitions();
    let table = map.table.entry(directive.id);
    definitions.map_tables.insert(name.to_string(), table);
    if !map.omitted.is_empty() {
        definitions.incomplete_maps.insert(name.to_string());
        let omitted = map.omitted.join("; ");
        return DirectiveOutcome::ByHand(format!("these entries have no equal: {omitted}"));
    }
    DirectiveOutcome::Translated(match map.is_reordered {
        true => "expressions are tried in the order of their texts".to_string(),
        false => String::new(),
    })
}

fn read_upstream(level: &mut Level<'_>, directive: &Directive) {
    let mut upstream = Upstream::default();
    for child in flat(directive.children()) {
        let outcome = upstream_directive(&mut upstream, child);
        level.record(child, outcome);
    }
    level
        .definitions()
        .upstreams
        .insert(directive.arg(0).to_string(), upstream);
}

/// Media types. Those of `mime.types` are built in; others become `[site.types]`.
fn read_types(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let is_standard = directive.place.file.ends_with("mime.types");
    for entry in flat(directive.children()) {
        // `expires $map` names media types, and needs the extensions of built-in ones, too.
        level
            .definitions()
            .extensions
            .entry(entry.name.clone())
            .or_default()
            .extend(entry.args.iter().cloned());
        if !is_standard {
            let extensions = entry
                .args
                .iter()
                .map(|it| (it.to_ascii_lowercase(), entry.name.clone()));
            level.settings.types.extend(extensions);
        }
    }
    match is_standard {
        true => DirectiveOutcome::NotNeeded("media types are built in".to_string()),
        false => DirectiveOutcome::translated(),
    }
}

/// `limit_except GET { deny all; }`
fn limit_except(level: &mut Level<'_>, directive: &Directive) {
    let children = flat(directive.children());
    let is_refusal =
        children.len() == 1 && children[0].name == "deny" && children[0].arg(0) == "all";
    if !is_refusal {
        by_hand(
            level.translation,
            directive,
            "a [[site.rule]] with `methods`",
        );
        return;
    }
    let mut allowed: Vec<String> = directive
        .args
        .iter()
        .map(|it| it.to_ascii_uppercase())
        .collect();
    // nginx' GET includes HEAD, as in rules.
    allowed.push("HEAD".to_string());
    level.settings.access.refused_methods = refused_methods(&allowed);
    level.settings.access.method_status = 403;
    level.record(
        directive,
        DirectiveOutcome::Translated("further methods are refused by name".to_string()),
    );
    level.record(children[0], DirectiveOutcome::translated());
}

fn read_server(
    translation: &mut Translation,
    directive: &Directive,
    settings: LevelSettings,
) -> Option<Server> {
    let children = flat(directive.children());
    let (settings, content) = simple_directives(translation, &children, settings);
    translated(translation, directive);
    let mut server = Server {
        names: Vec::new(),
        is_default: false,
        listens: Vec::new(),
        settings,
        content,
        locations: Vec::new(),
        entry: directive.id,
        place: directive.place.to_string(),
    };
    let is_named = children.iter().any(|it| it.name == "server_name");
    // nginx' default server_name is empty: no Host selects the server by its name.
    server.is_default = !is_named;
    // Until nginx 1.25.1, `ssl on` turned TLS on at all addresses of a server.
    let is_ssl_on = children
        .iter()
        .any(|it| it.name == "ssl" && it.arg(0) == "on");
    for child in &children {
        let outcome = match &*child.name {
            "server_name" => read_names(&mut server, child),
            "listen" => read_listen(&mut server, child, is_ssl_on),
            _ => continue,
        };
        translation.report.change(child.id, outcome);
    }
    // nginx listens at *:80 without `listen` if root starts it.
    if server.listens.is_empty() {
        server.listens.push(ListenAddress {
            address: "*:80".to_string(),
            is_tls: is_ssl_on,
            is_default: false,
        });
    }
    server.is_default |= server.listens.iter().any(|it| it.is_default);
    for child in children.iter().filter(|it| it.name == "location") {
        read_location(
            translation,
            child,
            &server.settings.clone(),
            None,
            &mut server.locations,
        );
    }
    sort_locations(&mut server.locations);
    Some(server)
}

fn read_names(server: &mut Server, directive: &Directive) -> DirectiveOutcome {
    let mut refused = Vec::new();
    for name in &directive.args {
        match name.strip_prefix('.') {
            // In nginx, `.example.com` is short for `example.com *.example.com`.
            Some(suffix) => server
                .names
                .extend([suffix.to_string(), format!("*.{suffix}")]),
            None if name == "_" || name.is_empty() => server.is_default = true,
            None if name.starts_with('~') || name.ends_with('*') => refused.push(name.clone()),
            None if name.contains('$') => refused.push(name.clone()),
            None => server.names.push(name.clone()),
        }
    }
    server.names.dedup();
    match refused.is_empty() {
        true => DirectiveOutcome::translated(),
        false => DirectiveOutcome::ByHand(format!(
            "names are exact or *.example.com: {}",
            refused.join(" ")
        )),
    }
}

fn read_listen(server: &mut Server, directive: &Directive, is_ssl_on: bool) -> DirectiveOutcome {
    let text = directive.arg(0);
    let has = |word: &str| directive.args.iter().any(|it| it == word);
    if text.starts_with("unix:") {
        return DirectiveOutcome::ByHand("sites listen at TCP addresses".to_string());
    }
    if has("quic") {
        return DirectiveOutcome::ByHand("Lowroad has no HTTP/3; clients use HTTP/2".to_string());
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if port.chars().all(|it| it.is_ascii_digit()) && !port.is_empty() => {
            (host, port)
        }
        _ if text.chars().all(|it| it.is_ascii_digit()) => ("*", text),
        _ => (text, "80"),
    };
    // One listener accepts IPv4 and IPv6.
    let address = match host {
        "*" | "0.0.0.0" | "[::]" => format!("*:{port}"),
        "localhost" => format!("127.0.0.1:{port}"),
        host => format!("{host}:{port}"),
    };
    let listen = ListenAddress {
        address,
        is_tls: has("ssl") || is_ssl_on,
        is_default: has("default_server") || has("default"),
    };
    if has("proxy_protocol") {
        server.settings.is_proxy_protocol = true;
    }
    // `listen 80` and `listen [::]:80` are one address here, so default_server of either counts.
    match server
        .listens
        .iter_mut()
        .find(|it| it.address == listen.address)
    {
        Some(present) => present.is_default |= listen.is_default,
        None => server.listens.push(listen),
    }
    DirectiveOutcome::translated()
}

fn read_location(
    translation: &mut Translation,
    directive: &Directive,
    settings: &LevelSettings,
    outer: Option<&Location>,
    locations: &mut Vec<Location>,
) {
    let mut settings = settings.clone();
    settings.access.refusal = None;
    let Some(mut location) = location_paths(directive, outer, settings) else {
        let way = "its expression has no equal pattern; write the paths as globs";
        by_hand(translation, directive, way);
        return;
    };
    let children = flat(directive.children());
    let inherited = std::mem::take(&mut location.settings);
    (location.settings, location.content) = simple_directives(translation, &children, inherited);
    let mut difference = String::new();
    if location.globs.is_wider {
        difference = "the globs match more paths than the expression".to_string();
    } else if directive.arg(0) == "~*"
        && location.text.contains(|it: char| it.is_ascii_alphabetic())
    {
        difference = "paths are compared case-sensitively".to_string();
    }
    translation
        .report
        .change(directive.id, DirectiveOutcome::Translated(difference));
    let inner_settings = location.settings.clone();
    // Inner locations come before the outer one: the sort is stable, and nginx prefers the inner.
    for child in children.iter().filter(|it| it.name == "location") {
        read_location(
            translation,
            child,
            &inner_settings,
            Some(&location),
            locations,
        );
    }
    locations.push(location);
}

/// Rank and paths of a location, without its content.
fn location_paths(
    directive: &Directive,
    outer: Option<&Location>,
    settings: LevelSettings,
) -> Option<Location> {
    let (modifier, text) = match directive.args.len() {
        0 => return None,
        1 => split_modifier(directive.arg(0)),
        _ => (directive.arg(0), directive.arg(1)),
    };
    let mut name = None;
    let (rank, globs) = match modifier {
        "=" => (LocationRank::Exact, PathGlobs::literal(text)),
        "^~" => (LocationRank::FinalPrefix, PathGlobs::prefix(text)),
        "~" | "~*" => {
            let globs = PathGlobs::from_regex(text)?;
            match outer {
                Some(outer) if outer.rank != LocationRank::Regex => {
                    (LocationRank::Nested, globs.below(&outer.text))
                }
                // An outer expression has no prefix that could confine the globs.
                _ => (LocationRank::Regex, globs),
            }
        }
        _ if text.starts_with('@') => {
            name = Some(text.to_string());
            (LocationRank::Prefix, PathGlobs::default())
        }
        _ => match outer {
            // `^~` of the outer location also keeps other expressions from taking these paths.
            Some(outer) if outer.rank == LocationRank::FinalPrefix => {
                (LocationRank::FinalPrefix, PathGlobs::prefix(text))
            }
            _ => (LocationRank::Prefix, PathGlobs::prefix(text)),
        },
    };
    Some(Location {
        rank,
        text: text.to_string(),
        name,
        globs,
        settings,
        content: LocationContent::default(),
        entry: directive.id,
        comment: directive.to_text(),
    })
}

/// `location =/path` and `location ~\.php$` have their modifier in the same word.
fn split_modifier(text: &str) -> (&str, &str) {
    // `~*` comes before `~`, with which it begins.
    for modifier in ["^~", "~*", "~", "="] {
        if let Some(rest) = text.strip_prefix(modifier) {
            return (modifier, rest);
        }
    }
    ("", text)
}

/// Sorts locations by precedence; expressions keep their order.
pub fn sort_locations(locations: &mut [Location]) {
    // A longer prefix has precedence over a shorter one with `^~`.
    let finals: Vec<String> = locations
        .iter()
        .filter(|it| it.rank == LocationRank::FinalPrefix)
        .map(|it| it.text.clone())
        .collect();
    for location in locations
        .iter_mut()
        .filter(|it| it.rank == LocationRank::Prefix)
    {
        if finals
            .iter()
            .any(|text| location.text.starts_with(&**text) && location.text != *text)
        {
            location.rank = LocationRank::Nested;
        }
    }
    let key = |location: &Location| {
        let len = match location.rank {
            LocationRank::Regex | LocationRank::Nested => 0,
            _ => location.text.len(),
        };
        (location.rank, std::cmp::Reverse(len))
    };
    locations.sort_by_key(key);
}
