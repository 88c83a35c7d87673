//! Renders the reference as a JSON Schema (draft 2020-12), by which editors complete and check a configuration file.
//!
//! The schema is looser than the reader: it knows names, types, words and ranges of numbers, not the relations between
//! keys.

use super::{DefaultValue, KeyReference, NAMED_TABLES, TABLES, TableReference, ValueKind, table};
use crate::document::toml_to_json;
use serde_json::{Map, Value, json};

/// A number of bytes, as in `crate::value::size`.
const SIZE: &str = "^[0-9]+[KMG]?B?$";
/// A duration, as in `crate::value::duration_ms`.
const DURATION: &str = "^[0-9]+(ms|s|m|h|d|w|y)?$";

/// The schema of a configuration file.
pub fn json_schema() -> Value {
    let mut definitions: Map<String, Value> = TABLES
        .iter()
        .map(|table| (table.path().to_owned(), table_schema(table)))
        .collect();
    definitions.insert("secret".to_owned(), secret_schema());
    let texts = json!({"type": ["string", "array"], "items": {"type": "string"}});
    let mut properties = Map::new();
    properties.insert(
        "include".to_owned(),
        with_text(texts, "Further files: paths, or patterns in the file name."),
    );
    let templates = json!({"type": "object", "additionalProperties": {"type": "object"}});
    properties.insert(
        "template".to_owned(),
        with_text(templates, "Keys that tables take over by `use`."),
    );
    let (parent, path) = NAMED_TABLES;
    let named = table(path).map(reference_to);
    properties.insert(
        parent.to_owned(),
        json!({"type": "object", "additionalProperties": named}),
    );
    for table in TABLES.iter().filter(|table| !table.path().contains('.')) {
        properties.insert(table.path().to_owned(), reference_to(table));
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "lowroad.toml",
        "description": "The configuration of Lowroad.",
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
        "$defs": definitions,
    })
}

fn table_schema(table: &TableReference) -> Value {
    if table.keys.is_empty() {
        return with_text(free_form(), table.title);
    }
    let keys = table.keys.iter();
    let mut properties: Map<String, Value> = keys
        .map(|key| (key.name.to_owned(), key_schema(table, key)))
        .collect();
    let names = json!({"type": ["string", "array"], "items": {"type": "string"}});
    properties.insert(
        "use".to_owned(),
        with_text(names, "The templates whose keys this table takes over."),
    );
    let mut schema = json!({
        "type": "object",
        "description": table.title,
        "properties": properties,
        "additionalProperties": false,
    });
    let is_required =
        |key: &&KeyReference| key.default == DefaultValue::Required && key.with.is_empty();
    let required: Vec<&str> = table
        .keys
        .iter()
        .filter(is_required)
        .map(|key| key.name)
        .collect();
    if !required.is_empty() {
        // A template may have the required keys.
        schema["anyOf"] = json!([{"required": required}, {"required": ["use"]}]);
    }
    schema
}

fn key_schema(parent: &TableReference, key: &KeyReference) -> Value {
    let path = format!("{}.{}", parent.path(), key.name);
    let described = table(&path).or_else(|| match key.name {
        // The conditions are described once, for rules.
        "not" => table("site.rule.not"),
        _ => None,
    });
    let kinds = key.kinds();
    let mut single: Vec<Value> = Vec::new();
    let words: Vec<&String> = kinds
        .single
        .iter()
        .filter_map(|kind| match kind {
            ValueKind::Word(word) => Some(word),
            _ => None,
        })
        .collect();
    // Among other texts, the words are only suggestions.
    if !words.is_empty() {
        single.push(json!({"enum": words}));
    }
    single.extend(
        kinds
            .single
            .iter()
            .filter_map(|kind| kind_schema(kind, described)),
    );
    let mut all = single.clone();
    if kinds.is_list {
        // The elements of some lists may be tables that the reference does not describe.
        if !kinds.single.iter().any(is_table) {
            single.push(json!({"type": "object"}));
        }
        all.push(json!({"type": "array", "items": any_of(single)}));
    }
    // `access` is a target, or an array of tables.
    if let Some(described) = described.filter(|_| !kinds.single.iter().any(is_table)) {
        all.push(reference_to(described));
    }
    let mut schema = with_text(any_of(all), key.meaning);
    if let DefaultValue::Toml(text) = key.default
        && let Some(default) = toml_to_json(text)
    {
        schema["default"] = default;
    }
    schema
}

fn is_table(kind: &ValueKind) -> bool {
    matches!(kind, ValueKind::Table | ValueKind::Tables)
}

fn kind_schema(kind: &ValueKind, described: Option<&TableReference>) -> Option<Value> {
    Some(match kind {
        ValueKind::Boolean => json!({"type": "boolean"}),
        ValueKind::Number(low, high) => json!({
            "anyOf": [{"type": "number", "minimum": low, "maximum": high}, {"type": "string", "pattern": "^[0-9.]+$"}]
        }),
        ValueKind::Size => {
            json!({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": SIZE}]})
        }
        ValueKind::Duration => {
            json!({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": DURATION}]})
        }
        ValueKind::Text => json!({"type": ["string", "number"]}),
        ValueKind::Secret => json!({"$ref": "#/$defs/secret"}),
        ValueKind::Table | ValueKind::Tables => described.map_or_else(free_form, reference_to),
        // Collected by the caller.
        ValueKind::Word(_) => return None,
    })
}

fn reference_to(table: &TableReference) -> Value {
    let reference = json!({"$ref": format!("#/$defs/{}", table.path())});
    match table.header.starts_with("[[") {
        true => json!({"type": "array", "items": reference}),
        false => reference,
    }
}

/// A table with any keys.
fn free_form() -> Value {
    json!({
        "type": "object",
        "additionalProperties": {"anyOf": [{"type": ["string", "number", "boolean"]}, {"$ref": "#/$defs/secret"}]},
    })
}

fn secret_schema() -> Value {
    let places = ["file", "env", "credential"];
    let places = places.map(|place| {
        json!({
            "type": "object",
            "properties": {place: {"type": "string"}},
            "required": [place],
            "additionalProperties": false,
        })
    });
    json!({"description": "A secret in another place.", "oneOf": places})
}

fn any_of(mut kinds: Vec<Value>) -> Value {
    match kinds.len() {
        1 => kinds.remove(0),
        _ => json!({"anyOf": kinds}),
    }
}

fn with_text(mut schema: Value, text: &str) -> Value {
    schema["description"] = text.trim().into();
    schema
}
