//! Reads the blocks of a configuration into servers and locations.

use super::condition_keys::ConditionKeys;
use super::definitions::definition;
use super::directives::{condition, translate};
use super::include::flat;
use super::level::{Level, Translation};
use super::servers::{Server, read_server, server_of_snippet};
use super::settings::{ConditionalRefusal, LevelSettings, LocationContent};
use super::tree::Directive;
use crate::report::{DirectiveOutcome, ReportEntry, unread};
use crate::toml_values::list;

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
            outcome: unread(),
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
            "server" => servers.push(read_server(translation, directive, settings.clone())),
            _ => {}
        }
    }
    let has_locations = top.iter().any(|it| it.name == "location");
    if servers.is_empty() && has_locations {
        servers.push(read_server(
            translation,
            &server_of_snippet(directives),
            settings,
        ));
    }
    servers
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
    servers
        .map(|server| read_server(translation, server, settings.clone()))
        .collect()
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

/// Records a directive as translated.
pub fn translated(translation: &mut Translation, directive: &Directive) {
    translation
        .report
        .change(directive.id, DirectiveOutcome::translated());
}

/// Records a directive, and those of its block, as left to do by hand.
pub fn by_hand(translation: &mut Translation, directive: &Directive, way: &str) {
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
pub fn simple_directives(
    translation: &mut Translation,
    directives: &[&Directive],
    settings: LevelSettings,
) -> (LevelSettings, LocationContent) {
    read_directives(Level::new(translation, settings), directives)
}

/// Translates the directives of a location as [`simple_directives`] does.
pub fn location_directives(
    translation: &mut Translation,
    directives: &[&Directive],
    settings: LevelSettings,
) -> (LevelSettings, LocationContent) {
    let mut level = Level::new(translation, settings);
    level.is_location = true;
    read_directives(level, directives)
}

fn read_directives(
    mut level: Level<'_>,
    directives: &[&Directive],
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

/// `limit_except GET { deny all; }`: other methods are refused, also where the block would admit some clients.
fn limit_except(level: &mut Level<'_>, directive: &Directive) {
    let mut allowed: Vec<String> = directive
        .args
        .iter()
        .map(|it| it.to_ascii_uppercase())
        .collect();
    // nginx' GET includes HEAD.
    if allowed.iter().any(|it| it == "GET") {
        allowed.push("HEAD".to_string());
    }
    let mut conditions = ConditionKeys::default();
    conditions.except(format!("{{ methods = {} }}", list(&allowed)));
    let refusals = &mut level.settings.access.conditional_refusals;
    refusals.push(ConditionalRefusal {
        conditions,
        status: 403,
    });
    let children = flat(directive.children());
    let is_refusal =
        children.len() == 1 && children[0].name == "deny" && children[0].arg(0) == "all";
    if !is_refusal {
        let way = "other methods are refused until then: a [[site.rule]] with `methods`";
        by_hand(level.translation, directive, way);
        return;
    }
    level.record(directive, DirectiveOutcome::translated());
    level.record(children[0], DirectiveOutcome::translated());
}
