//! Response fields: `[[site.header]]` and `[[site.cache_control]]`.
//!
//! All tables that match a path apply in the order of the file, so those of locations with lower precedence come first,
//! and each later table sets or removes the fields that earlier ones may have changed.

use std::collections::BTreeMap;

use super::site::SiteLayout;
use crate::document::{ConfigDocument, ConfigTable};
use crate::nginx::level::{Definitions, Translation};
use crate::nginx::locations::Location;
use crate::nginx::servers::Server;
use crate::nginx::settings::{AddedField, LevelSettings};
use crate::path_globs::PathGlobs;
use crate::path_overlap::may_overlap;
use crate::toml_values::{key, list, quoted};

/// The fields of some paths that were already written.
struct WrittenFields {
    globs: PathGlobs,
    names: Vec<String>,
}

/// Writes the fields of a site. `own` are fields that `[site.tls]` sends.
pub fn write_fields(
    server: &Server,
    layout: &SiteLayout,
    own: &[String],
    translation: &mut Translation,
    document: &mut ConfigDocument,
) {
    let is_other = |field: &&AddedField| {
        !own.iter()
            .any(|name| name.eq_ignore_ascii_case(&field.name))
    };
    let base = fields_of(&server.settings, true, &is_other);
    let everything = PathGlobs::prefix("/");
    let mut written = Vec::new();
    let table = header_table(&base, &server.settings.proxy.hidden_fields);
    if !table.is_empty() {
        let names = base.iter().map(|field| field.name.clone()).collect();
        document.push(table.comment(""));
        written.push(WrittenFields {
            globs: everything,
            names,
        });
    }
    for (index, location) in server.locations.iter().enumerate().rev() {
        if location.name.is_some()
            || location.content.redirect.is_some()
            || location.settings.access.is_closed()
        {
            continue;
        }
        let is_handled = layout.is_handled(index);
        let fields = fields_of(&location.settings, is_handled, &is_other);
        let globs = layout.globs_of(index, location);
        let touched: Vec<String> = written
            .iter()
            .filter(|it| may_overlap(&it.globs, &globs))
            .flat_map(|it| it.names.iter().cloned())
            .collect();
        let is_changed = |field: &&AddedField| {
            !base.contains(field)
                || written
                    .iter()
                    .skip(1)
                    .any(|it| it.names.contains(&field.name) && may_overlap(&it.globs, &globs))
        };
        let set: Vec<AddedField> = fields.iter().filter(is_changed).cloned().collect();
        let is_lost = |name: &&String| {
            !fields
                .iter()
                .any(|field| field.name.eq_ignore_ascii_case(name))
        };
        let mut removed: Vec<String> = touched.iter().filter(is_lost).cloned().collect();
        removed.sort();
        removed.dedup();
        // An origin may send the same field, which `remove` would lose.
        if is_handled && !removed.is_empty() {
            let difference = format!("{} of other blocks stay", removed.join(", "));
            translation
                .report
                .note_difference(location.entry, &difference);
            removed.clear();
        }
        let hidden = hidden_fields(location, &server.settings);
        let names = set
            .iter()
            .map(|field| field.name.clone())
            .chain(removed.clone())
            .collect();
        let comment = match removed.is_empty() {
            true => location.comment.clone(),
            false => format!(
                "{}: its own add_header replace those around it.",
                location.comment
            ),
        };
        removed.extend(hidden);
        let mut comment = Some(comment);
        for glob in &globs.globs {
            let table = header_table(&set, &removed);
            if table.is_empty() {
                break;
            }
            let mut with_pattern = ConfigTable::new("[[site.header]]").entry(location.entry);
            with_pattern = with_pattern.comment(&comment.take().unwrap_or_default());
            if glob != "/**" {
                with_pattern = with_pattern.key("pattern", quoted(glob));
            }
            document.push(fill_header(with_pattern, &set, &removed));
        }
        written.push(WrittenFields { globs, names });
    }
}

/// The fields of a block. For files, Cache-Control is written by another table.
fn fields_of(
    settings: &LevelSettings,
    is_handled: bool,
    is_other: &dyn Fn(&&AddedField) -> bool,
) -> Vec<AddedField> {
    let is_cache_control = |field: &AddedField| {
        field.name.eq_ignore_ascii_case("cache-control")
            || field.name.eq_ignore_ascii_case("expires")
    };
    let fields = settings.fields.iter().filter(is_other);
    let mut fields: Vec<AddedField> = fields
        .filter(|field| !is_cache_control(field))
        .cloned()
        .collect();
    if let Some(value) = cache_control(settings).filter(|_| is_handled) {
        fields.push(AddedField {
            name: "Cache-Control".to_string(),
            value,
        });
    }
    fields
}

fn hidden_fields(location: &Location, outer: &LevelSettings) -> Vec<String> {
    let settings = match location.content.fastcgi {
        Some(_) => &location.settings.fastcgi,
        None => &location.settings.proxy,
    };
    let hidden = settings.hidden_fields.iter();
    hidden
        .filter(|name| !outer.proxy.hidden_fields.contains(name))
        .cloned()
        .collect()
}

fn header_table(set: &[AddedField], removed: &[String]) -> ConfigTable {
    fill_header(ConfigTable::new("[[site.header]]"), set, removed)
}

fn fill_header(mut table: ConfigTable, set: &[AddedField], removed: &[String]) -> ConfigTable {
    if set.len() > 2 {
        // One line for each field stays readable.
        for field in set {
            table = table.key(&format!("set.{}", key(&field.name)), quoted(&field.value));
        }
    } else if !set.is_empty() {
        let pairs: Vec<String> = set
            .iter()
            .map(|field| format!("{} = {}", key(&field.name), quoted(&field.value)))
            .collect();
        table = table.key("set", format!("{{ {} }}", pairs.join(", ")));
    }
    let is_set = |name: &&String| {
        !set.iter()
            .any(|field| field.name.eq_ignore_ascii_case(name))
    };
    let removed: Vec<String> = removed.iter().filter(is_set).cloned().collect();
    if !removed.is_empty() {
        table = table.key("remove", list(&removed));
    }
    table
}

/// The value of Cache-Control of `expires` and `add_header`.
fn cache_control(settings: &LevelSettings) -> Option<String> {
    let added = settings
        .fields
        .iter()
        .find(|field| field.name.eq_ignore_ascii_case("cache-control"));
    match (added, &settings.expires) {
        // A second max-age is ignored, or makes the response stale (RFC 9111 §4.2.1).
        (Some(field), Some(expires)) if !field.value.contains("max-age") => {
            Some(format!("{}, {expires}", field.value))
        }
        (Some(field), _) => Some(field.value.clone()),
        (None, expires) => expires.clone(),
    }
}

/// Writes Cache-Control of files: the first table that matches applies.
pub fn write_cache_control(
    server: &Server,
    layout: &SiteLayout,
    definitions: &Definitions,
    document: &mut ConfigDocument,
) {
    for (index, location) in server.locations.iter().enumerate() {
        let is_file = location.name.is_none()
            && !layout.is_handled(index)
            && location.content.redirect.is_none();
        if !is_file || location.settings.access.is_closed() {
            continue;
        }
        if let Some(value) = cache_control(&location.settings) {
            for glob in &layout.globs_of(index, location).globs {
                let table = ConfigTable::new("[[site.cache_control]]").entry(location.entry);
                document.push(
                    table
                        .key("pattern", quoted(glob))
                        .key("value", quoted(&value)),
                );
            }
        } else if let Some(name) = &location.settings.expires_map {
            let Some((_, pairs)) = definitions.maps.get(name) else {
                continue;
            };
            let mut map_tables = BTreeMap::new();
            let default = map_values(pairs, definitions, &mut map_tables);
            for (extension, value) in map_tables {
                let table = ConfigTable::new("[[site.cache_control]]").entry(location.entry);
                document.push(
                    table
                        .key("pattern", quoted(&format!("*.{extension}")))
                        .key("value", quoted(&value)),
                );
            }
            // The first table that matches applies, so the default comes last.
            if let Some(value) = default {
                let table = ConfigTable::new("[[site.cache_control]]").entry(location.entry);
                document.push(
                    table
                        .key("pattern", quoted("/**"))
                        .key("value", quoted(&value)),
                );
            }
        }
    }
}

/// Adds the values of a map from media type to `expires`, by extension; returns the default.
fn map_values(
    pairs: &[(String, String)],
    definitions: &Definitions,
    values: &mut BTreeMap<String, String>,
) -> Option<String> {
    let mut default = None;
    for (media_type, time) in pairs {
        let value = match &**time {
            "off" => continue,
            "max" => "max-age=315360000".to_string(),
            "epoch" | "-1" => "no-cache".to_string(),
            time => match crate::nginx::values::seconds(time.trim_start_matches('+')) {
                Some(seconds) => format!("max-age={seconds}"),
                None => continue,
            },
        };
        if media_type == "default" {
            default = Some(value);
            continue;
        }
        let expression = media_type
            .trim_start_matches('~')
            .trim_start_matches(['*', '^']);
        let is_expression = media_type.starts_with('~');
        for (name, extensions) in &definitions.extensions {
            let is_match = if is_expression {
                name.contains(expression)
            } else {
                name == media_type
            };
            for extension in extensions.iter().filter(|_| is_match) {
                values
                    .entry(extension.clone())
                    .or_insert_with(|| value.clone());
            }
        }
    }
    default
}
