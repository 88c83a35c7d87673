//! Renders the values in force: as TOML with the origin of each value, and as JSON.

use super::{EffectiveConfig, HIDDEN, ValueOrigin};
use crate::reference::{self, DefaultValue, NAMED_TABLES, TABLES, TableReference};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

impl EffectiveConfig {
    /// The values as TOML, each with its file and line, or `default`, in a comment. Secrets are hidden.
    pub fn to_toml(&self) -> String {
        let mut out = String::new();
        self.write_tables(&self.values, "", "", &mut out);
        out
    }

    /// The values and their origins as JSON. Secrets are hidden.
    pub fn to_json(&self) -> Value {
        let origins = self.origins.iter();
        let origins = origins.map(|(path, origin)| (path.clone(), origin.to_string().into()));
        json!({
            "values": self.hidden(&Value::Object(self.values.clone()), ""),
            "origins": origins.collect::<Map<_, _>>(),
        })
    }

    /// The values of the admin service's answer.
    pub fn from_json(json: &Value) -> Option<EffectiveConfig> {
        // Of the origins, only the defaults matter: the places are those of another process.
        let origins = json.get("origins")?.as_object()?.iter();
        let defaults = origins.filter(|(_, origin)| *origin == "default");
        Some(EffectiveConfig {
            values: json.get("values")?.as_object()?.clone(),
            origins: defaults
                .map(|(path, _)| (path.clone(), ValueOrigin::Default))
                .collect(),
            // The admin service has hidden the secrets already.
            secrets: BTreeSet::new(),
        })
    }

    /// The value with secrets replaced.
    pub(super) fn hidden(&self, value: &Value, path: &str) -> Value {
        match value {
            _ if self.secrets.contains(path) => HIDDEN.into(),
            Value::Object(values) => {
                let pairs = values.iter();
                let hidden = pairs.map(|(key, value)| {
                    let path = match path {
                        "" => key.clone(),
                        path => format!("{path}.{key}"),
                    };
                    (key.clone(), self.hidden(value, &path))
                });
                Value::Object(hidden.collect())
            }
            Value::Array(items) => {
                let items = items.iter().enumerate();
                let hidden =
                    items.map(|(index, item)| self.hidden(item, &format!("{path}[{index}]")));
                Value::Array(hidden.collect())
            }
            plain => plain.clone(),
        }
    }

    /// Writes the subtables of a table that have pages in the reference, in its order.
    fn write_tables(
        &self,
        values: &Map<String, Value>,
        path: &str,
        parent: &str,
        out: &mut String,
    ) {
        for table in TABLES {
            let (own_parent, name) = table.path().rsplit_once('.').unwrap_or(("", table.path()));
            if own_parent == NAMED_TABLES.0 {
                if parent.is_empty() {
                    self.write_named_tables(values, table, out);
                }
                continue;
            }
            if own_parent != parent {
                continue;
            }
            let path = match path {
                "" => name.to_owned(),
                path => format!("{path}.{name}"),
            };
            match values.get(name) {
                Some(Value::Object(keys)) => {
                    self.write_table(keys, &path, table, &format!("[{}]", table.path()), out);
                }
                Some(Value::Array(tables)) if is_array_of_tables(tables) => {
                    for (index, keys) in tables.iter().enumerate() {
                        let (path, header) =
                            (format!("{path}[{index}]"), format!("[[{}]]", table.path()));
                        let keys = keys.as_object().into_iter();
                        keys.for_each(|keys| self.write_table(keys, &path, table, &header, out));
                    }
                }
                _ => {}
            }
        }
    }

    /// Writes the tables with free names.
    fn write_named_tables(
        &self,
        values: &Map<String, Value>,
        table: &TableReference,
        out: &mut String,
    ) {
        let parent = NAMED_TABLES.0;
        let tables = values.get(parent).and_then(Value::as_object);
        for (name, keys) in tables.into_iter().flatten() {
            let path = format!("{parent}.{name}");
            let header = format!("[{parent}.{}]", toml_key(name));
            let keys = keys.as_object().into_iter();
            keys.for_each(|keys| self.write_table(keys, &path, table, &header, out));
        }
    }

    fn write_table(
        &self,
        values: &Map<String, Value>,
        path: &str,
        table: &TableReference,
        header: &str,
        out: &mut String,
    ) {
        if !out.is_empty() {
            out.push('\n');
        }
        *out += &format!("{header}\n");
        for key in table.keys {
            match (values.get(key.name), key.default) {
                (Some(value), _) => self.write_value(key.name, value, path, table, out),
                (None, DefaultValue::Described(text))
                    if key.with.is_empty() && !text.starts_with("required") =>
                {
                    let text = text.replace('`', "");
                    *out += &format!("# {}: {text} (default)\n", key.name);
                }
                (None, _) => {}
            }
        }
        let others = values.iter().filter(|(name, _)| table.key(name).is_none());
        for (name, value) in others {
            self.write_value(name, value, path, table, out);
        }
        self.write_tables(values, path, table.path(), out);
    }

    fn write_value(
        &self,
        name: &str,
        value: &Value,
        path: &str,
        table: &TableReference,
        out: &mut String,
    ) {
        // Tables with a page follow after the keys.
        let has_page = reference::table(&format!("{}.{name}", table.path())).is_some();
        let is_table = match value {
            Value::Object(_) => true,
            Value::Array(items) => is_array_of_tables(items),
            _ => false,
        };
        if has_page && is_table {
            return;
        }
        let path = format!("{path}.{name}");
        let text = toml_text(&self.hidden(value, &path));
        *out += &format!("{} = {text}", toml_key(name));
        let origin = self.origins.get(&path).or_else(|| {
            // The origin of an inline table is that of its first value.
            let prefixes = [format!("{path}."), format!("{path}[")];
            let within = self.origins.range(path.clone()..);
            within
                .take_while(|(other, _)| other.starts_with(&*path))
                .find(|(other, _)| prefixes.iter().any(|prefix| other.starts_with(prefix)))
                .map(|(_, origin)| origin)
        });
        if let Some(origin) = origin {
            *out += &format!(" # {origin}");
        }
        out.push('\n');
    }
}

impl std::fmt::Display for ValueOrigin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ValueOrigin::Default => f.write_str("default"),
            ValueOrigin::Place(place, uses) => {
                write!(f, "{}:{}", place.file.display(), place.line)?;
                for place in uses {
                    write!(f, ", used at {}:{}", place.file.display(), place.line)?;
                }
                Ok(())
            }
        }
    }
}

fn is_array_of_tables(items: &[Value]) -> bool {
    !items.is_empty() && items.iter().all(Value::is_object)
}

/// A value on one line.
pub(super) fn toml_text(value: &Value) -> String {
    match value {
        // TOML has no null, and no value here is one.
        Value::Null => "\"\"".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => toml_string(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(toml_text).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(values) => {
            let pairs = values.iter();
            let pairs: Vec<String> = pairs
                .map(|(key, value)| format!("{} = {}", toml_key(key), toml_text(value)))
                .collect();
            match pairs.is_empty() {
                true => "{}".to_owned(),
                false => format!("{{ {} }}", pairs.join(", ")),
            }
        }
    }
}

fn toml_key(key: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    match !key.is_empty() && key.bytes().all(is_plain) {
        true => key.to_owned(),
        false => toml_string(key),
    }
}

/// A string: literal if it contains backslashes or quotes, as expressions and formats do.
fn toml_string(text: &str) -> String {
    let is_literal =
        text.contains(['\\', '"']) && !text.contains(|it: char| it == '\'' || it.is_control());
    if is_literal {
        return format!("'{text}'");
    }
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            '\n' => out += "\\n",
            '\t' => out += "\\t",
            control if control.is_control() => out += &format!("\\u{:04x}", control as u32),
            plain => out.push(plain),
        }
    }
    out.push('"');
    out
}
