//! Blocks that define names for others: `map`, `upstream`, `types`.

use super::directives::{translate, upstream_directive};
use super::include::flat;
use super::level::{Level, Upstream};
use super::maps::{MapTable, map_table};
use super::tree::Directive;
use crate::report::DirectiveOutcome;

/// Translates a definition.
pub fn definition(level: &mut Level<'_>, directive: &Directive) {
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
