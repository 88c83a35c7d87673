//! Merges the tables of several files, and moves tables within the space of offsets.

use super::{SourceMap, SourceNote};
use crate::reader::KeyPosition;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// The table of templates, each of which is in one file.
pub(super) const TEMPLATES: &str = "template";

/// Merges the tables: tables are united, arrays of tables are appended in the order of the files. A key that two files
/// set is a problem, at its second position.
pub(super) fn merge_files<'t>(
    tables: impl Iterator<Item = DeTable<'t>>,
    map: &SourceMap,
    problems: &mut Vec<SourceNote>,
) -> DeTable<'t> {
    let mut merger = FileMerger { map, problems };
    let mut merged = DeTable::new();
    for table in tables {
        merger.merge(&mut merged, table, "");
    }
    merged
}

struct FileMerger<'m> {
    map: &'m SourceMap,
    problems: &'m mut Vec<SourceNote>,
}

impl FileMerger<'_> {
    fn merge<'t>(&mut self, into: &mut DeTable<'t>, from: DeTable<'t>, path: &str) {
        for (key, value) in from {
            let key_path = joined(path, key.get_ref());
            let Some(present) = into.get_mut(&**key.get_ref()) else {
                into.insert(key, value);
                continue;
            };
            let first = present.span().start;
            // A template is one table, so that its lines are in one file.
            let is_united = path != TEMPLATES;
            match (present.get_mut(), value.into_inner()) {
                (DeValue::Table(present), DeValue::Table(table)) if is_united => {
                    self.merge(present, table, &key_path);
                }
                (DeValue::Array(present), DeValue::Array(array))
                    if are_tables(present) && are_tables(&array) =>
                {
                    array.into_iter().for_each(|item| present.push(item));
                }
                _ => self.problems.push(SourceNote {
                    message: format!("is already set at {}", self.map.place(first)),
                    position: KeyPosition {
                        key: key_path,
                        offset: key.span().start,
                    },
                    allowed: "each key once in all files".to_owned(),
                }),
            }
        }
    }
}

/// Whether an array is one of tables. An empty array is not: it may be a list of values.
pub(crate) fn are_tables(array: &DeArray<'_>) -> bool {
    !array.is_empty() && array.iter().all(|item| item.get_ref().is_table())
}

/// The path of a key in the table at `path`.
pub(super) fn joined(path: &str, key: &str) -> String {
    match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    }
}

/// The table with all positions moved by an offset.
pub(super) fn moved_table<'t>(table: DeTable<'t>, by: usize) -> DeTable<'t> {
    let mut moved = DeTable::new();
    for (key, value) in table {
        moved.insert(moved_span(key, by), moved_value(value, by));
    }
    moved
}

pub(super) fn moved_value<'t>(value: Spanned<DeValue<'t>>, by: usize) -> Spanned<DeValue<'t>> {
    let mut value = moved_span(value, by);
    // `Spanned` must keep its span, so its value is moved out by means of a placeholder.
    let inner = match std::mem::replace(value.get_mut(), DeValue::Boolean(false)) {
        DeValue::Table(table) => DeValue::Table(moved_table(table, by)),
        DeValue::Array(items) => {
            let mut moved = DeArray::new();
            for item in items {
                moved.push(moved_value(item, by));
            }
            DeValue::Array(moved)
        }
        other => other,
    };
    *value.get_mut() = inner;
    value
}

fn moved_span<T>(value: Spanned<T>, by: usize) -> Spanned<T> {
    let span = value.span();
    Spanned::new(span.start + by..span.end + by, value.into_inner())
}
