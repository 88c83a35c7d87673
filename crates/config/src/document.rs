//! The files of a configuration, and its effective values with the place of each: for `lowroad config`, the admin
//! service, and the messages of other checks.

mod diff;
mod effective;
mod render;

pub use diff::{ConfigChange, changes};

use crate::problem::{ConfigPlace, ConfigProblem};
use crate::reader::ValueReadings;
use crate::secret::SecretSource;
use crate::source::{MergedSource, SourceNote};
use crate::start_tables;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// The text in place of a secret.
pub const HIDDEN: &str = "(hidden)";

/// The files of a configuration, and its values with their places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigDocument {
    /// The main file, and the included files in the order of inclusion.
    pub files: Vec<PathBuf>,
    /// The places of secrets.
    pub secret_sources: Vec<SecretSource>,
    /// Warnings: globs without matches, unused templates.
    pub warnings: Vec<ConfigProblem>,
    /// The values in force.
    pub effective: EffectiveConfig,
}

/// The values in force, as in one file: those of all files and templates, relative paths resolved, and defaults.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct EffectiveConfig {
    values: Map<String, Value>,
    /// The origin of each value, by its path: `site[0].root`.
    origins: BTreeMap<String, ValueOrigin>,
    /// The paths of the values that may be secrets.
    secrets: BTreeSet<String>,
}

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ValueOrigin {
    /// The key is absent.
    Default,
    /// The place of the value, and the places that use the template it is in.
    Place(ConfigPlace, Vec<ConfigPlace>),
}

/// A TOML document as JSON, without merging and expanding; `None` if it is not TOML.
pub fn toml_text_to_json(text: &str) -> Option<Value> {
    let table = DeTable::parse(text).ok()?;
    Some(table_to_json(table.get_ref()))
}

/// A TOML value as JSON; `None` if it is not TOML.
pub(crate) fn toml_to_json(text: &str) -> Option<Value> {
    let value = DeValue::parse(text).ok()?;
    Some(effective::to_json(value.get_ref()))
}

/// A TOML table as JSON.
pub(crate) fn table_to_json(table: &DeTable<'_>) -> Value {
    let pairs = table.iter();
    pairs
        .map(|(key, value)| {
            (
                key.get_ref().to_string(),
                effective::to_json(value.get_ref()),
            )
        })
        .collect()
}

impl EffectiveConfig {
    /// These values, with those of another configuration in the tables that only a start applies.
    #[must_use]
    pub fn with_start_tables(mut self, started: &EffectiveConfig) -> EffectiveConfig {
        // A reload applies these keys, so their new values are in force.
        let table = self.values.get("server");
        let applied = start_tables::APPLIED.map(|key| Some((key, table?.get(key)?.clone())));
        for name in start_tables::TABLES {
            match started.values.get(name) {
                Some(value) => self.values.insert(name.to_owned(), value.clone()),
                None => self.values.remove(name),
            };
            let is_within = |path: &str| path.split(['.', '[']).next() == Some(name);
            self.secrets.retain(|path| !is_within(path));
            self.origins.retain(|path, _| !is_within(path));
            let secrets = started.secrets.iter().filter(|path| is_within(path));
            self.secrets.extend(secrets.cloned());
            let origins = started.origins.iter().filter(|(path, _)| is_within(path));
            self.origins
                .extend(origins.map(|(path, origin)| (path.clone(), origin.clone())));
        }
        if let Some(Value::Object(values)) = self.values.get_mut("server") {
            for (key, value) in applied.into_iter().flatten() {
                values.insert(key.to_owned(), value);
            }
        }
        self
    }
}

impl fmt::Debug for EffectiveConfig {
    /// Writes no values, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EffectiveConfig({} values)", self.origins.len())
    }
}

impl ConfigDocument {
    pub(crate) fn new(merged: &MergedSource<'_>, readings: ValueReadings) -> ConfigDocument {
        let map = &merged.map;
        let warning = |note: &SourceNote| {
            map.problem(&note.position, note.message.clone(), note.allowed.clone())
        };
        ConfigDocument {
            files: map.files.iter().map(|file| file.path.clone()).collect(),
            effective: effective::effective(&merged.table, map, &readings),
            secret_sources: readings.secret_sources,
            warnings: merged
                .warnings
                .iter()
                .chain(&readings.warnings)
                .map(warning)
                .collect(),
        }
    }

    /// The files of secrets.
    pub fn secret_files(&self) -> impl Iterator<Item = &Path> {
        let sources = self.secret_sources.iter();
        sources.filter_map(|source| match source {
            SecretSource::File(path) => Some(path.as_path()),
            SecretSource::Env(_) | SecretSource::Credential(_) => None,
        })
    }
}
