//! Reads TOML tables key by key, and collects a problem for each mistake.
//!
//! The reader is independent of the schema. A `ConfigSection` records each key that the schema code looks up. The
//! recorded keys are the allowed ones; all other keys of the table are reported as unknown. So the code and the list of
//! allowed keys cannot diverge. *Table*, *array* and *key* are the terms of TOML 1.0.

mod item;
mod text;

pub(crate) use item::ConfigValue;
pub(crate) use text::{nearest, position, size_text};

use lowroad_variables::ValueMap;

use crate::problem::ConfigProblem;
use crate::secret::SecretSource;
use crate::source::SourceNote;
use crate::source::{ConfigFiles, SourceMap};
use crate::value::{self, InvalidValue};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use text::duration_text;
use toml::de::{DeTable, DeValue};

/// The files that are read, and the problems found in them so far.
pub(crate) struct ConfigSource<'d> {
    pub(crate) map: &'d SourceMap,
    access: &'d dyn ConfigFiles,
    /// The problems, each with the index of its file.
    problems: RefCell<Vec<(usize, ConfigProblem)>>,
    readings: RefCell<ValueReadings>,
    /// The maps, to which variables refer.
    maps: RefCell<Vec<Arc<ValueMap>>>,
    /// The names of the maps to which a text refers.
    used_maps: RefCell<HashSet<String>>,
}

/// A position in the files, and the full key of the value there.
#[derive(Clone, Debug)]
pub(crate) struct KeyPosition {
    pub(crate) key: String,
    /// The offset in the space of the source map.
    pub(crate) offset: usize,
}

/// Facts about values that only their readers know, by the offset of the value.
#[derive(Debug, Default)]
pub(crate) struct ValueReadings {
    /// The texts of relative paths, resolved.
    pub(crate) paths: HashMap<usize, String>,
    /// The values that are secrets.
    pub(crate) secrets: HashSet<usize>,
    /// The places of secrets.
    pub(crate) secret_sources: Vec<SecretSource>,
    /// Valid values that probably mean something else to the operator.
    pub(crate) warnings: Vec<SourceNote>,
}

/// A table that is being read.
pub(crate) struct ConfigSection<'d> {
    source: &'d ConfigSource<'d>,
    table: &'d DeTable<'d>,
    pub(crate) position: KeyPosition,
    known_keys: RefCell<Vec<&'static str>>,
}

impl<'d> ConfigSource<'d> {
    pub(crate) fn new(map: &'d SourceMap, access: &'d dyn ConfigFiles) -> ConfigSource<'d> {
        ConfigSource {
            map,
            access,
            problems: RefCell::default(),
            readings: RefCell::default(),
            maps: RefCell::default(),
            used_maps: RefCell::default(),
        }
    }

    /// Sets the maps, to which the variables of all tables read later may refer.
    pub(crate) fn set_maps(&self, maps: Vec<Arc<ValueMap>>) {
        *self.maps.borrow_mut() = maps;
    }

    /// Whether a text refers to the map.
    pub(crate) fn is_map_used(&self, name: &str) -> bool {
        self.used_maps.borrow().contains(name)
    }

    /// Warns of a valid value.
    pub(crate) fn warn(
        &self,
        position: &KeyPosition,
        message: impl Into<String>,
        allowed: impl Into<String>,
    ) {
        self.readings.borrow_mut().warnings.push(SourceNote {
            position: position.clone(),
            message: message.into(),
            allowed: allowed.into(),
        });
    }

    pub(crate) fn report(
        &self,
        key_position: &KeyPosition,
        message: impl Into<String>,
        allowed: impl Into<String>,
    ) {
        // The line and column are computed here, since most files have no problems.
        let problem = self
            .map
            .problem(key_position, message.into(), allowed.into());
        let file = self.map.locate(key_position.offset).file_index;
        self.problems.borrow_mut().push((file, problem));
    }

    /// Returns all problems in the order of the files, and the facts about the values.
    pub(crate) fn into_findings(self) -> (Vec<ConfigProblem>, ValueReadings) {
        let mut problems = self.problems.into_inner();
        // Problems are sorted by position: the order of the checks would be of no use to the operator.
        problems.sort_by_key(|(file, problem)| (*file, problem.line, problem.column));
        let problems = problems.into_iter().map(|(_, problem)| problem);
        (problems.collect(), self.readings.into_inner())
    }
}

impl<'d> ConfigSection<'d> {
    /// The top-level table.
    pub(crate) fn top(source: &'d ConfigSource<'d>, table: &'d DeTable<'d>) -> ConfigSection<'d> {
        let position = KeyPosition {
            key: String::new(),
            offset: 0,
        };
        ConfigSection {
            source,
            table,
            position,
            known_keys: RefCell::default(),
        }
    }

    /// Looks up a key, and records it as known.
    pub(crate) fn item(&self, key: &'static str) -> Option<ConfigValue<'d>> {
        // The key is recorded even if absent: the recorded keys are also the list of allowed keys.
        let mut known_keys = self.known_keys.borrow_mut();
        if !known_keys.contains(&key) {
            known_keys.push(key);
        }
        let value = self.table.get(key)?;
        Some(self.at_key(key, value.span().start, value.get_ref()))
    }

    /// Records keys that are handled before the tables are read.
    pub(crate) fn allow(&self, keys: &[&'static str]) {
        self.known_keys.borrow_mut().extend(keys);
    }

    /// Looks up a mandatory key; its absence is a problem.
    pub(crate) fn required(&self, key: &'static str) -> Option<ConfigValue<'d>> {
        let item = self.item(key);
        if item.is_none() {
            self.report(format!("{key} is missing"), "");
        }
        item
    }

    /// All keys with their values and positions, for tables with free-form keys (for example, environment variables).
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'d str, KeyPosition, ConfigValue<'d>)> {
        self.table.iter().map(|(key, value)| {
            let name: &'d str = key.get_ref();
            let item = self.at_key(name, value.span().start, value.get_ref());
            (
                name,
                KeyPosition {
                    key: item.position.key.clone(),
                    // Problems of a free-form key are reported at the key, problems of its value at the value.
                    offset: key.span().start,
                },
                item,
            )
        })
    }

    /// A subtable (`[key]`).
    pub(crate) fn section(&self, key: &'static str) -> Option<ConfigSection<'d>> {
        self.item(key)?.section()
    }

    /// An array of tables (`[[key]]`).
    pub(crate) fn sections(&self, key: &'static str) -> Vec<ConfigSection<'d>> {
        // `[key]` instead of `[[key]]` is a common mistake.
        let items = self.item(key).and_then(|item| match item.value {
            DeValue::Array(_) => item.items(),
            _ => {
                item.refuse(
                    "an array of tables",
                    format!("[[{}]] before its keys", item.position.key),
                );
                None
            }
        });
        items
            .unwrap_or_default()
            .iter()
            .filter_map(ConfigValue::section)
            .collect()
    }

    pub(crate) fn report(&self, message: impl Into<String>, allowed: impl Into<String>) {
        self.source.report(&self.position, message, allowed);
    }

    /// Reports a problem at a position, for example of a key from [`ConfigSection::entries`].
    pub(crate) fn report_at(
        &self,
        key_position: &KeyPosition,
        message: impl Into<String>,
        allowed: impl Into<String>,
    ) {
        self.source.report(key_position, message, allowed);
    }

    /// Reports a key that has no effect in this context, if it is present. Records it as known.
    pub(crate) fn only_with(&self, key: &'static str, other: &str) {
        if let Some(item) = self.item(key) {
            item.report("has no effect here", format!("only with {other}"));
        }
    }

    /// Whether a key is absent or an empty array. The key is not recorded as known.
    pub(crate) fn is_absent_or_empty(&self, key: &str) -> bool {
        let value = self.table.get(key).map(toml::Spanned::get_ref);
        // TOML has no null: an empty array counts as an absent array of tables.
        value.is_none_or(|value| value.as_array().is_some_and(|array| array.is_empty()))
    }

    /// Whether the table has no keys.
    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Reports unknown keys: the keys that were never looked up. Called after the last look-up.
    pub(crate) fn finish(self) {
        let known_keys = self.known_keys.take();
        for (key, key_position, _) in self.entries() {
            if known_keys.contains(&key) {
                continue;
            }
            // Only keys of this table are suggested.
            let message = match nearest(key, &known_keys) {
                Some(nearest_key) => format!("unknown key; did you mean {nearest_key}?"),
                None => "unknown key".to_string(),
            };
            self.source
                .report(&key_position, message, known_keys.join(", "));
        }
    }

    fn at_key(&self, key: &str, offset: usize, value: &'d DeValue<'d>) -> ConfigValue<'d> {
        // The top-level table has no name.
        let dot = if self.position.key.is_empty() {
            ""
        } else {
            "."
        };
        let position = KeyPosition {
            key: format!("{}{dot}{key}", self.position.key),
            offset,
        };
        ConfigValue {
            source: self.source,
            value,
            position,
        }
    }
}

/// Readers of single values. The default also replaces an invalid value, so that reading can continue.
impl ConfigSection<'_> {
    pub(crate) fn flag(&self, key: &'static str, default: bool) -> bool {
        let Some(item) = self.item(key) else {
            return default;
        };
        item.value.as_bool().unwrap_or_else(|| {
            item.refuse("a boolean", "true or false");
            default
        })
    }

    pub(crate) fn size(&self, key: &'static str, default: u64, range: RangeInclusive<u64>) -> u64 {
        self.number(key, value::size, size_text, range)
            .unwrap_or(default)
    }

    pub(crate) fn optional_size(
        &self,
        key: &'static str,
        range: RangeInclusive<u64>,
    ) -> Option<u64> {
        self.number(key, value::size, size_text, range)
    }

    /// Reads a size in the range, or 0.
    pub(crate) fn size_or_zero(
        &self,
        key: &'static str,
        default: u64,
        range: RangeInclusive<u64>,
    ) -> u64 {
        let Some(item) = self.item(key) else {
            return default;
        };
        let Some(len) = item.read(value::size) else {
            return default;
        };
        // 0 is outside of the range: it turns the feature off.
        if len != 0 && !range.contains(&len) {
            let (low, high) = (size_text(*range.start()), size_text(*range.end()));
            item.report(
                format!("{} is out of range", item.to_display()),
                format!("0 (off), or {low} to {high}"),
            );
            return default;
        }
        len
    }

    pub(crate) fn duration_ms(
        &self,
        key: &'static str,
        default: u64,
        range: RangeInclusive<u64>,
    ) -> u64 {
        self.optional_duration_ms(key, range).unwrap_or(default)
    }

    pub(crate) fn optional_duration_ms(
        &self,
        key: &'static str,
        range: RangeInclusive<u64>,
    ) -> Option<u64> {
        self.number(key, value::duration_ms, duration_text, range)
    }

    pub(crate) fn count(&self, key: &'static str, default: u64, range: RangeInclusive<u64>) -> u64 {
        self.number(key, value::count, |count| count.to_string(), range)
            .unwrap_or(default)
    }

    /// Reads one of several words.
    pub(crate) fn choice<T: Copy>(
        &self,
        key: &'static str,
        choices: &[(&str, T)],
        default: T,
    ) -> T {
        self.item(key)
            .and_then(|item| item.choice(choices))
            .unwrap_or(default)
    }

    fn number(
        &self,
        key: &'static str,
        read: fn(&str) -> Result<u64, InvalidValue>,
        show: fn(u64) -> String,
        range: RangeInclusive<u64>,
    ) -> Option<u64> {
        let item = self.item(key)?;
        // A value of the wrong type was already reported by `read`.
        let number = item.read(read)?;
        if !range.contains(&number) {
            let allowed = format!("{} to {}", show(*range.start()), show(*range.end()));
            item.report(format!("{} is out of range", item.to_display()), allowed);
            return None;
        }
        Some(number)
    }
}
