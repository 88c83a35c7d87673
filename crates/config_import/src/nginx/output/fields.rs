//! Response fields: `[[site.header]]` and `[[site.cache_control]]`.
//!
//! All tables that match a path apply in the order of the file, so those of locations with lower precedence come first,
//! and each later table sets or removes the fields that earlier ones may have changed.

use std::collections::BTreeMap;

use super::layout::SiteLayout;
use crate::document::{ConfigDocument, ConfigTable};
use crate::nginx::level::{Definitions, Translation};
use crate::nginx::locations::Location;
use crate::nginx::servers::Server;
use crate::nginx::settings::{AddedField, LevelSettings};
use crate::path_globs::PathGlobs;
use crate::path_overlap::may_overlap;
use crate::report::DirectiveOutcome;
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
        let globs = layout.globs_of(index, location);
        // Tables of their own set those of scripts.
        let is_by_name = |it: &WrittenFields| it.globs.globs.iter().all(|it| it.starts_with('*'));
        let is_script = location.content.fastcgi.is_some();
        let touched: Vec<String> = written
            .iter()
            .filter(|it| may_overlap(&it.globs, &globs) && !(is_script && is_by_name(it)))
            .flat_map(|it| it.names.iter().cloned())
            .collect();
        // A table may have removed the lifetime of files around these.
        let has_lifetime = is_handled
            || touched.iter().any(|name| name == "Cache-Control")
                && location.exact_keys().is_none();
        let fields = fields_of(&location.settings, has_lifetime, &is_other);
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
        if !is_handled && inherits_lifetime(server, layout, index) {
            match location.exact_keys() {
                None => removed.push("Cache-Control".to_string()),
                // A lifetime can't be removed under a condition.
                Some(_) => translation
                    .report
                    .note_difference(location.entry, "Cache-Control of other locations stays"),
            }
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
                with_pattern = with_pattern.key("pattern", quoted(&location.pattern(glob)));
            }
            if let Some(keys) = location.exact_keys() {
                with_pattern = keys.write(with_pattern);
            }
            document.push(fill_header(with_pattern, &set, &removed));
        }
        if location.content.fastcgi.is_some() {
            write_script_fields(location, &fields, &written, document);
        }
        written.push(WrittenFields { globs, names });
    }
}

/// Whether the files of a location without a lifetime would get that of a location with lower precedence.
fn inherits_lifetime(server: &Server, layout: &SiteLayout, index: usize) -> bool {
    let has_lifetime = |it: &LevelSettings| cache_control(it).is_some() || it.expires_map.is_some();
    let location = &server.locations[index];
    let mut lower = (index + 1..server.locations.len()).filter(|it| !layout.is_handled(*it));
    !has_lifetime(&location.settings)
        && lower.any(|other| {
            let other = &server.locations[other];
            has_lifetime(&other.settings) && may_overlap(&other.globs, &location.globs)
        })
}

/// Writes the fields of scripts for paths that end like the files of other locations: `/index.php/app.css`. Lowroad compares
/// the last segment with patterns of names, and nginx has selected the location of the script.
fn write_script_fields(
    location: &Location,
    fields: &[AddedField],
    written: &[WrittenFields],
    document: &mut ConfigDocument,
) {
    let has_name =
        |names: &[String], name: &str| names.iter().any(|it| it.eq_ignore_ascii_case(name));
    let scripts = location.globs.globs.iter();
    let scripts: Vec<&str> = scripts.filter_map(|it| it.strip_prefix('*')).collect();
    for files in written {
        let endings = files
            .globs
            .globs
            .iter()
            .filter_map(|it| it.strip_prefix('*'));
        // Names of scripts have the table of their location.
        let endings = endings.filter(|ending| !scripts.contains(ending));
        let paths = endings.flat_map(|ending| {
            let scripts = scripts.iter();
            scripts.map(move |script| format!("/**{script}/**{ending}"))
        });
        let paths: Vec<String> = paths.collect();
        let set = fields.iter().filter(|it| has_name(&files.names, &it.name));
        let set: Vec<AddedField> = set.cloned().collect();
        let is_lost = |name: &&String| !fields.iter().any(|it| it.name.eq_ignore_ascii_case(name));
        let removed: Vec<String> = files.names.iter().filter(is_lost).cloned().collect();
        if paths.is_empty() || files.names.is_empty() {
            continue;
        }
        let table = ConfigTable::new("[[site.header]]").entry(location.entry);
        let table = table.comment("Scripts with a path that ends like a file.");
        let table = table.key("pattern", list(&paths));
        document.push(fill_header(table, &set, &removed));
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
    translation: &mut Translation,
    document: &mut ConfigDocument,
) {
    for (index, location) in server.locations.iter().enumerate() {
        let is_file = location.name.is_none()
            && !layout.is_handled(index)
            && location.content.redirect.is_none();
        if !is_file || location.settings.access.is_closed() {
            continue;
        }
        let value = cache_control(&location.settings);
        if value.is_some() && location.exact_keys().is_some() {
            // Names without a hash may change, so their lifetime must not be that of the others.
            let way = "Cache-Control is by pattern only, and a pattern would match other files, too: write one that fits the names";
            let outcome = DirectiveOutcome::ByHand(way.to_string());
            translation.report.change(location.entry, outcome);
        } else if let Some(value) = value {
            for glob in &layout.globs_of(index, location).globs {
                let table = ConfigTable::new("[[site.cache_control]]").entry(location.entry);
                document.push(
                    table
                        .key("pattern", quoted(&location.pattern(glob)))
                        .key("value", quoted(&value)),
                );
            }
        } else if let Some(name) = &location.settings.expires_map {
            let definitions = &translation.definitions;
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
