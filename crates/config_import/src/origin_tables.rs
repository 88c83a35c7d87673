//! Groups of servers: `[[origin]]`, each written once.

use std::collections::BTreeMap;

use crate::document::{ConfigDocument, ConfigTable};
use crate::toml_values::quoted;

/// Keys of a table with their values, in TOML.
pub type TableKeys = Vec<(&'static str, String)>;

/// A group of servers.
#[derive(Clone, Debug, Default)]
pub struct OriginGroup {
    /// Keys of `[[origin]]` but the name.
    pub keys: TableKeys,
    /// Keys of `[origin.tls]`.
    pub tls: TableKeys,
    /// A comment on these; may be empty.
    pub tls_comment: &'static str,
    /// Keys of `[origin.check]`.
    pub check: TableKeys,
}

/// The groups of servers of a configuration.
#[derive(Debug, Default)]
pub struct OriginTables {
    origins: Vec<(String, Vec<ConfigTable>)>,
    /// The name by the text of keys, so that equal groups are written once.
    names: BTreeMap<String, String>,
}

impl OriginTables {
    /// The name of a group, made from the authority of its first server.
    pub fn name_of(&mut self, group: OriginGroup, authority: &str, entry: usize) -> String {
        // Names of groups do not make them different.
        let identity = format!("{:?} {:?} {:?}", group.keys, group.tls, group.check);
        if let Some(name) = self.names.get(&identity) {
            return name.clone();
        }
        let name = self.free_name(authority);
        let table = ConfigTable::new("[[origin]]").entry(entry);
        let table = with_keys(table.key("name", quoted(&name)), &group.keys);
        let tls = ConfigTable::new("[origin.tls]").comment(group.tls_comment);
        let check = ConfigTable::new("[origin.check]");
        let tables = vec![
            table,
            with_keys(tls, &group.tls),
            with_keys(check, &group.check),
        ];
        self.origins.push((name.clone(), tables));
        self.names.insert(identity, name.clone());
        name
    }

    /// Writes the groups.
    pub fn write(self, document: &mut ConfigDocument) {
        for table in self.origins.into_iter().flat_map(|(_, tables)| tables) {
            document.push_filled(table);
        }
    }

    fn free_name(&self, authority: &str) -> String {
        let is_plain = |it: char| it.is_ascii_alphanumeric() || it == '-' || it == '_';
        let front = authority.rsplit('/').next().unwrap_or(authority);
        let name: String = front
            .chars()
            .map(|it| if is_plain(it) { it } else { '-' })
            .collect();
        // An authority of other characters leaves nothing.
        let name = match name.trim_matches('-') {
            "" => "origin".to_string(),
            name => name.to_string(),
        };
        let is_free = |name: &str| !self.origins.iter().any(|(other, ..)| other == name);
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        std::iter::once(name.clone())
            .chain(numbered)
            .find(|name| is_free(name))
            .unwrap_or(name)
    }
}

fn with_keys(mut table: ConfigTable, keys: &TableKeys) -> ConfigTable {
    for (key, value) in keys {
        table = table.key(key, value);
    }
    table
}
