//! Builds the values in force: those of the files, and the defaults of the reference for absent keys.

use super::{EffectiveConfig, ValueOrigin, table_to_json, toml_to_json};
use crate::caching;
use crate::reader::ValueReadings;
use crate::reference::{self, DefaultValue, KeyReference, TableReference};
use crate::source::SourceMap;
use crate::value;
use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

/// The tables without which their defaults are in force all the same.
const IN_FORCE: [&str; 8] = [
    "server",
    "limits",
    "buffering",
    "log",
    "site.compress",
    "site.maintenance",
    "origin.tls",
    "site.route.cache",
];

pub(super) struct EffectiveBuilder<'b> {
    map: &'b SourceMap,
    readings: &'b ValueReadings,
    config: EffectiveConfig,
}

/// The values of a table in force.
pub(super) fn effective(
    top: &DeTable<'_>,
    map: &SourceMap,
    readings: &ValueReadings,
) -> EffectiveConfig {
    let mut builder = EffectiveBuilder {
        map,
        readings,
        config: EffectiveConfig::default(),
    };
    let mut values = builder.table(top, "", "");
    // The top level has no page in the reference, so `table` adds nothing to it.
    builder.add_tables(&mut values, "", "");
    builder.config.values = values;
    builder.config
}

impl EffectiveBuilder<'_> {
    /// The values of a table. `path` has indexes, `reference_path` has none.
    fn table(
        &mut self,
        table: &DeTable<'_>,
        path: &str,
        reference_path: &str,
    ) -> Map<String, Value> {
        let mut values = Map::new();
        for (key, value) in table {
            let key = key.get_ref();
            let path = joined(path, key);
            let reference_path = match reference_path == reference::NAMED_TABLES.0 {
                true => reference::NAMED_TABLES.1.to_owned(),
                false => joined(reference_path, key),
            };
            let value = self.value(value, &path, &reference_path);
            values.insert(key.to_string(), value);
        }
        if let Some(described) = reference::table(reference_path) {
            self.add_defaults(&mut values, path, described);
            self.add_tables(&mut values, path, reference_path);
        }
        if reference_path == "site.route" && !values.contains_key("origin") {
            self.remove_keys_of_origins(&mut values, path);
        }
        values
    }

    /// Removes the defaults of `cache` that are in force with an origin only.
    fn remove_keys_of_origins(&mut self, route: &mut Map<String, Value>, path: &str) {
        let Some(Value::Object(cache)) = route.get_mut("cache") else {
            return;
        };
        // The reference of a table contains the keys of that table only, and the handler is a key of the route.
        for key in caching::KEYS_OF_ORIGINS {
            cache.remove(key);
            self.config
                .origins
                .remove(&joined(&joined(path, "cache"), key));
        }
    }

    fn value(&mut self, value: &Spanned<DeValue<'_>>, path: &str, reference_path: &str) -> Value {
        let offset = value.span().start;
        match value.get_ref() {
            DeValue::Table(table) => self.table(table, path, reference_path).into(),
            DeValue::Array(items) if crate::source::are_tables(items) => {
                let tables = items.iter().enumerate().filter_map(|(index, item)| {
                    let path = format!("{path}[{index}]");
                    Some(
                        self.table(item.get_ref().as_table()?, &path, reference_path)
                            .into(),
                    )
                });
                Value::Array(tables.collect())
            }
            plain => {
                if self.readings.secrets.contains(&offset) {
                    self.config.secrets.insert(path.to_owned());
                }
                let place = ValueOrigin::Place(self.map.place(offset), self.map.uses(offset));
                self.config.origins.insert(path.to_owned(), place);
                self.plain(plain, offset)
            }
        }
    }

    /// A value other than a table, with relative paths resolved.
    fn plain(&self, value: &DeValue<'_>, offset: usize) -> Value {
        match (value, self.readings.paths.get(&offset)) {
            (DeValue::String(_), Some(resolved)) => resolved.clone().into(),
            (DeValue::Array(items), _) => {
                let items = items.iter();
                let plain = items.map(|item| self.plain(item.get_ref(), item.span().start));
                Value::Array(plain.collect())
            }
            (DeValue::Table(table), _) => {
                let pairs = table.iter().map(|(key, value)| {
                    let plain = self.plain(value.get_ref(), value.span().start);
                    (key.get_ref().to_string(), plain)
                });
                Value::Object(pairs.collect())
            }
            (value, _) => to_json(value),
        }
    }

    fn add_defaults(
        &mut self,
        values: &mut Map<String, Value>,
        path: &str,
        table: &TableReference,
    ) {
        for key in table.keys {
            if values.contains_key(key.name) || !is_valid(key.with, values) {
                continue;
            }
            if let Some(default) = default_value(table, key, values) {
                values.insert(key.name.to_owned(), default);
                let origin = ValueOrigin::Default;
                self.config.origins.insert(joined(path, key.name), origin);
            }
        }
    }

    /// Adds the absent tables of a table that has defaults in force.
    fn add_tables(&mut self, values: &mut Map<String, Value>, path: &str, reference_path: &str) {
        for table in IN_FORCE.iter().filter_map(|path| reference::table(path)) {
            let (parent, name) = table.path().rsplit_once('.').unwrap_or(("", table.path()));
            if parent != reference_path
                || values.contains_key(name)
                || !applies(parent, name, values)
            {
                continue;
            }
            let path = joined(path, name);
            let absent = self.table(&DeTable::new(), &path, table.path());
            values.insert(name.to_owned(), absent.into());
        }
    }
}

/// Whether a subtable has a meaning in a table: `cache` of a route only with an origin or programs.
fn applies(parent: &str, name: &str, values: &Map<String, Value>) -> bool {
    // TLS to an origin is a matter of the URLs of its servers.
    if (parent, name) == ("origin", "tls") {
        let servers = values.get("servers").map(Value::to_string);
        return servers.is_some_and(|servers| servers.contains("\"https:"));
    }
    let key = reference::table(parent).and_then(|table| table.key(name));
    is_valid(key.map_or(&[][..], |key| key.with), values)
}

/// Whether one of these is in a table: a key, or a value such as `format = "binary"` or `endpoint = "https://…"`.
fn is_valid(with: &[&str], values: &Map<String, Value>) -> bool {
    let is_present = |with: &&str| {
        let Some((key, pattern)) = with.split_once(" = ") else {
            return values.contains_key(*with);
        };
        let text = values.get(key).and_then(Value::as_str).unwrap_or_default();
        let pattern = pattern.trim_matches('"');
        match pattern.strip_suffix('…') {
            Some(start) => text.starts_with(start),
            None => text == pattern,
        }
    };
    with.is_empty() || with.iter().any(is_present)
}

/// The default of a key in TOML notation. Two defaults depend on another key of the table.
fn default_value(
    table: &TableReference,
    key: &KeyReference,
    values: &Map<String, Value>,
) -> Option<Value> {
    let DefaultValue::Toml(text) = key.default else {
        return None;
    };
    // With several access logs, these keys are those of each log.
    let has_logs = table.path() == "log" && values.get("access").is_some_and(Value::is_array);
    if has_logs && reference::table("log.access").is_some_and(|log| log.key(key.name).is_some()) {
        return None;
    }
    let size = |value: &Value| value::size(&plain_text(value)).ok();
    let limit = match (table.path(), key.name) {
        ("server", "cache_object") => values.get("cache").and_then(size).map(|len| len / 4),
        ("limits", "target_len_max") => values.get("head_len_max").and_then(size),
        _ => None,
    };
    let default = toml_to_json(text)?;
    match limit.zip(size(&default)) {
        Some((limit, len)) if limit < len => Some(limit.into()),
        _ => Some(default),
    }
}

/// The text of a string or a number.
pub(super) fn plain_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The path of a key in the table at `path`.
fn joined(path: &str, key: &str) -> String {
    match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    }
}

pub(super) fn to_json(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => text.to_string().into(),
        DeValue::Integer(digits) => integer(digits),
        DeValue::Float(digits) => {
            let number: Option<f64> = digits.as_str().parse().ok();
            // JSON has no infinity and no NaN.
            let number = number.and_then(serde_json::Number::from_f64);
            number.map_or_else(|| digits.to_string().into(), Value::Number)
        }
        DeValue::Boolean(flag) => (*flag).into(),
        DeValue::Datetime(time) => time.to_string().into(),
        DeValue::Array(items) => items.iter().map(|item| to_json(item.get_ref())).collect(),
        DeValue::Table(table) => table_to_json(table),
    }
}

fn integer(digits: &DeInteger<'_>) -> Value {
    match i64::from_str_radix(digits.as_str(), digits.radix()) {
        Ok(number) => number.into(),
        // Larger numbers are refused by the reader of the value.
        Err(_) => digits.to_string().into(),
    }
}
