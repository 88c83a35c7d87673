//! Compares two configurations by their values in force.
//!
//! Tables of an array are matched by the key that identifies them (a name, a pattern), so a new site does not change
//! the ones after it. Values that are equal in another notation (`"1m"`, 60) are no change.

use super::effective::plain_text;
use super::render::toml_text;
use super::{EffectiveConfig, HIDDEN, ValueOrigin};
use crate::reference::{self, ValueKind, ValueKinds};
use crate::value;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fmt;

/// The keys that identify a table in an array; the first present one counts.
const IDENTITY: [&str; 8] = [
    "name",
    "names",
    "from",
    "regex",
    "pattern",
    "path",
    "directory",
    "to",
];

/// A value that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChange {
    /// The key, with the tables of arrays named: `site["example.com"].root`.
    pub key: String,
    /// The old value in TOML, with its origin; `None` if the key is new.
    pub old: Option<String>,
    /// The new value; `None` if the key is gone.
    pub new: Option<String>,
}

impl fmt::Display for ConfigChange {
    /// One or two lines: `- KEY = VALUE # FILE:LINE`, `+ KEY = VALUE # FILE:LINE`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = [("-", &self.old), ("+", &self.new)];
        let lines = lines.iter().filter_map(|(sign, text)| {
            let text = text.as_ref()?;
            Some(format!("{sign} {} = {text}", self.key))
        });
        f.write_str(&lines.collect::<Vec<_>>().join("\n"))
    }
}

/// The changes from one configuration to another, in the order of their keys.
pub fn changes(old: &EffectiveConfig, new: &EffectiveConfig) -> Vec<ConfigChange> {
    let mut comparison = Comparison {
        old,
        new,
        changes: Vec::new(),
    };
    let place = KeyPlace::default();
    comparison.tables(&old.values, &new.values, &place);
    comparison.changes
}

struct Comparison<'c> {
    old: &'c EffectiveConfig,
    new: &'c EffectiveConfig,
    changes: Vec<ConfigChange>,
}

/// A key in both configurations.
#[derive(Clone, Default)]
struct KeyPlace {
    /// For the operator, with names.
    label: String,
    /// Without indexes.
    reference: String,
    /// With the indexes of each configuration.
    old: String,
    new: String,
}

impl KeyPlace {
    fn key(&self, key: &str) -> KeyPlace {
        let joined = |path: &str| match path {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        };
        KeyPlace {
            label: joined(&self.label),
            reference: joined(&self.reference),
            old: joined(&self.old),
            new: joined(&self.new),
        }
    }

    fn item(&self, label: &str, old: Option<usize>, new: Option<usize>) -> KeyPlace {
        let indexed = |path: &str, index: Option<usize>| {
            index.map_or_else(String::new, |index| format!("{path}[{index}]"))
        };
        KeyPlace {
            label: format!("{}[{label}]", self.label),
            reference: self.reference.clone(),
            old: indexed(&self.old, old),
            new: indexed(&self.new, new),
        }
    }
}

impl Comparison<'_> {
    fn tables(&mut self, old: &Map<String, Value>, new: &Map<String, Value>, place: &KeyPlace) {
        let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        for key in keys {
            self.values(old.get(key), new.get(key), &place.key(key));
        }
    }

    fn values(&mut self, old: Option<&Value>, new: Option<&Value>, place: &KeyPlace) {
        match (old, new) {
            (Some(Value::Object(old)), Some(Value::Object(new))) => self.tables(old, new, place),
            (Some(Value::Array(old)), Some(Value::Array(new)))
                if old.iter().chain(new).all(Value::is_object) =>
            {
                self.arrays(old, new, place);
            }
            // One of them may be a single table or none.
            (Some(Value::Array(old)), None) if old.iter().all(Value::is_object) => {
                self.arrays(old, &[], place);
            }
            (None, Some(Value::Array(new))) if new.iter().all(Value::is_object) => {
                self.arrays(&[], new, place);
            }
            _ if is_equal(old, new, &place.reference) || self.is_hidden(old, place) => {}
            _ => self.add(old, new, place),
        }
    }

    /// Whether the old value is a secret that is not known, and the new one is a secret in the same place.
    fn is_hidden(&self, old: Option<&Value>, place: &KeyPlace) -> bool {
        old.is_some_and(|old| old == HIDDEN) && self.new.secrets.contains(&place.new)
    }

    fn arrays(&mut self, old: &[Value], new: &[Value], place: &KeyPlace) {
        let [old_names, new_names] = [old, new].map(|items| names(items, &place.reference));
        for (old_index, name) in old_names.iter().enumerate() {
            let new_index = new_names.iter().position(|other| other == name);
            let place = place.item(name, Some(old_index), new_index);
            let new_item = new_index.map(|index| &new[index]);
            self.values(Some(&old[old_index]), new_item, &place);
        }
        for (new_index, name) in new_names.iter().enumerate() {
            if !old_names.contains(name) {
                let place = place.item(name, None, Some(new_index));
                self.values(None, Some(&new[new_index]), &place);
            }
        }
        let common = |names: &[String], others: &[String]| {
            let common = names.iter().filter(|name| others.contains(name));
            common.cloned().collect::<Vec<String>>()
        };
        // Added and removed tables move the others, which is no change of their order.
        let orders = [
            common(&old_names, &new_names),
            common(&new_names, &old_names),
        ];
        if orders[0] != orders[1] {
            let [old, new] = orders.map(|names| Some(format!("[{}]", names.join(", "))));
            self.changes.push(ConfigChange {
                key: format!("{} in this order", place.label),
                old,
                new,
            });
        }
    }

    fn add(&mut self, old: Option<&Value>, new: Option<&Value>, place: &KeyPlace) {
        let change = ConfigChange {
            key: place.label.clone(),
            old: old.map(|value| text(self.old, value, &place.old)),
            new: new.map(|value| text(self.new, value, &place.new)),
        };
        self.changes.push(change);
    }
}

/// A value with its origin, without the defaults in it, and without secrets.
fn text(config: &EffectiveConfig, value: &Value, path: &str) -> String {
    let shown = config.hidden(&chosen(config, value, path), path);
    match config.origins.get(path) {
        Some(origin) => format!("{} # {origin}", toml_text(&shown)),
        None => toml_text(&shown),
    }
}

/// The value without keys that have their default.
fn chosen(config: &EffectiveConfig, value: &Value, path: &str) -> Value {
    match value {
        Value::Object(values) => {
            let pairs = values.iter().filter_map(|(key, value)| {
                let path = format!("{path}.{key}");
                let is_default = config.origins.get(&path) == Some(&ValueOrigin::Default);
                let chosen = (!is_default).then(|| chosen(config, value, &path))?;
                let is_empty = chosen.as_object().is_some_and(Map::is_empty);
                (!is_empty).then_some((key.clone(), chosen))
            });
            Value::Object(pairs.collect())
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            let chosen =
                items.map(|(index, item)| chosen(config, item, &format!("{path}[{index}]")));
            Value::Array(chosen.collect())
        }
        plain => plain.clone(),
    }
}

/// A name for each table of an array. Equal tables of an array are numbered.
fn names(items: &[Value], reference: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(items.len());
    let mut counts = std::collections::HashMap::new();
    for item in items {
        let key = IDENTITY.iter().find(|key| item.get(**key).is_some());
        let name = key.map_or_else(String::new, |key| {
            let value = item.get(*key).cloned().unwrap_or_default();
            toml_text(&normal(
                &value,
                kinds(&format!("{reference}.{key}")).as_ref(),
            ))
        });
        let count = counts.entry(name.clone()).or_insert(0);
        *count += 1;
        names.push(match *count {
            1 if !name.is_empty() => name,
            count => format!("{name}#{count}"),
        });
    }
    names
}

fn is_equal(old: Option<&Value>, new: Option<&Value>, reference: &str) -> bool {
    let kinds = kinds(reference);
    let [old, new] = [old, new].map(|value| value.map(|value| normal(value, kinds.as_ref())));
    old == new
}

fn kinds(reference: &str) -> Option<ValueKinds> {
    let (table, key) = reference.rsplit_once('.')?;
    Some(reference::table(table)?.key(key)?.kinds())
}

/// The value in a notation that equal values have in common.
fn normal(value: &Value, kinds: Option<&ValueKinds>) -> Value {
    let Some(kinds) = kinds else {
        return value.clone();
    };
    match value {
        Value::Array(items) if kinds.is_list => match items.as_slice() {
            [item] => normal(item, Some(kinds)),
            items => items.iter().map(|item| normal(item, Some(kinds))).collect(),
        },
        Value::String(_) | Value::Number(_) => {
            let text = plain_text(value);
            let read = kinds.single.iter().find_map(|kind| match kind {
                ValueKind::Size => value::size(&text).ok().map(Value::from),
                ValueKind::Duration => value::duration_ms(&text).ok().map(Value::from),
                _ => None,
            });
            // A number may be a string.
            read.unwrap_or(Value::String(text))
        }
        other => other.clone(),
    }
}
