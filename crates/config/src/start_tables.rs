//! The tables that a server reads only at its start, kept as text: a reload compares them, to name the changed keys
//! that need an upgrade.

use std::collections::BTreeMap;
use std::fmt::Write;

use toml::de::{DeTable, DeValue};

pub(crate) const TABLES: [&str; 4] = ["server", "log", "traces", "admin"];
/// The keys of `[server]` that a reload applies.
pub(crate) const APPLIED: [&str; 3] = ["disk_cache_max", "http3", "early_data"];

/// The keys of `[server]`, `[log]`, `[traces]` and `[admin]` with their values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartTables(BTreeMap<String, String>);

impl StartTables {
    pub(crate) fn new(top: &DeTable<'_>) -> StartTables {
        let mut values = BTreeMap::new();
        for name in TABLES {
            let table = top.get(name).and_then(|table| table.get_ref().as_table());
            for (key, value) in table.into_iter().flat_map(|table| table.iter()) {
                let mut text = String::new();
                append(value.get_ref(), &mut text);
                values.insert(format!("{name}.{}", key.get_ref()), text);
            }
        }
        for key in APPLIED {
            values.remove(&format!("server.{key}"));
        }
        StartTables(values)
    }

    /// The keys that differ, such as `log.format`.
    pub fn changed_keys<'a>(&'a self, other: &'a StartTables) -> Vec<&'a str> {
        let keys = self.0.keys().chain(other.0.keys());
        let mut changed: Vec<&str> = keys
            .filter(|key| self.0.get(*key) != other.0.get(*key))
            .map(String::as_str)
            .collect();
        changed.sort_unstable();
        changed.dedup();
        changed
    }
}

/// Appends a value. Equal values have equal texts, wherever they are in the file.
fn append(value: &DeValue<'_>, out: &mut String) {
    // Writing into memory does not fail.
    let _ = match value {
        DeValue::String(text) => write!(out, "{text:?}"),
        DeValue::Integer(number) => write!(out, "{number}"),
        DeValue::Float(number) => write!(out, "{number}"),
        DeValue::Boolean(is_true) => write!(out, "{is_true}"),
        DeValue::Datetime(time) => write!(out, "{time}"),
        DeValue::Array(items) => {
            out.push('[');
            for item in items.iter() {
                append(item.get_ref(), out);
                out.push(',');
            }
            write!(out, "]")
        }
        DeValue::Table(table) => {
            out.push('{');
            for (key, value) in table.iter() {
                let _ = write!(out, "{:?}=", key.get_ref());
                append(value.get_ref(), out);
                out.push(',');
            }
            write!(out, "}}")
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(text: &str) -> StartTables {
        StartTables::new(DeTable::parse(text).expect("TOML").get_ref())
    }

    #[test]
    fn changed_keys_are_named() {
        let old = tables(
            "[server]\nworkers = 1\nlist = [1, {a = 2}]\n[log]\nformat = \"json\"\n[[site]]\nroot = \"/\"",
        );
        let moved = tables(
            "# a comment\n[log]\nformat = 'json'\n[server]\ndisk_cache_max = \"1G\"\nlist = [1, {a = 2}]\nworkers = 1",
        );
        assert_eq!(old.changed_keys(&moved), <[&str; 0]>::default());
        let new =
            tables("[server]\nworkers = 2\nlist = [1, {a = 3}]\n[admin]\nlisten = \"127.0.0.1:1\"");
        let changed = [
            "admin.listen",
            "log.format",
            "server.list",
            "server.workers",
        ];
        assert_eq!(old.changed_keys(&new), changed);
        assert_eq!(new.changed_keys(&old), changed);
    }
}
