//! Expands templates: `use = "NAME"` in a table takes over the keys of `[template.NAME]`.
//!
//! Each use copies the template's table into a separate region (see [`super`]), so all checks of the reader apply to
//! the copy, at the place of use.

use super::merge::{TEMPLATES, are_tables, joined, moved_table};
use super::{SourceMap, SourceNote};
use crate::reader::{KeyPosition, nearest};
use crate::reference;
use std::collections::BTreeMap;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// The maximum number of values that templates add: a bound for templates that use each other many times.
pub const TEMPLATE_VALUES_MAX: usize = 1_000_000;

/// The findings of an expansion.
pub(super) struct TemplateNotes {
    /// Whether the limit was exceeded, so that the table is incomplete.
    pub(super) is_exceeded: bool,
    pub(super) problems: Vec<SourceNote>,
    pub(super) warnings: Vec<SourceNote>,
}

struct Template<'t> {
    table: DeTable<'t>,
    /// The position of its name.
    offset: usize,
    is_used: bool,
}

struct TemplateExpander<'m, 't> {
    map: &'m mut SourceMap,
    templates: BTreeMap<String, Template<'t>>,
    /// The templates that are being expanded, from the outermost.
    stack: Vec<String>,
    values_left: usize,
    is_exceeded: bool,
    problems: Vec<SourceNote>,
}

/// Removes the templates from the top-level table and expands their uses.
pub(super) fn expand<'t>(
    mut top: DeTable<'t>,
    map: &mut SourceMap,
) -> (DeTable<'t>, TemplateNotes) {
    let mut expander = TemplateExpander {
        map,
        templates: BTreeMap::new(),
        stack: Vec::new(),
        values_left: TEMPLATE_VALUES_MAX,
        is_exceeded: false,
        problems: Vec::new(),
    };
    expander.collect(top.remove(TEMPLATES));
    let table = expander.table(top, "");
    let unused = expander.templates.iter().filter(|(_, it)| !it.is_used);
    let warnings = unused.map(|(name, template)| SourceNote {
        position: KeyPosition {
            key: joined(TEMPLATES, name),
            offset: template.offset,
        },
        message: "the template is not used".to_owned(),
        allowed: String::new(),
    });
    let notes = TemplateNotes {
        is_exceeded: expander.is_exceeded,
        warnings: warnings.collect(),
        problems: expander.problems,
    };
    (table, notes)
}

impl<'t> TemplateExpander<'_, 't> {
    fn collect(&mut self, templates: Option<Spanned<DeValue<'t>>>) {
        let Some(templates) = templates else { return };
        let offset = templates.span().start;
        let DeValue::Table(tables) = templates.into_inner() else {
            return self.report(offset, TEMPLATES, "is not a table", "[template.NAME]");
        };
        for (name, value) in tables {
            let offset = name.span().start;
            let name = name.into_inner().into_owned();
            let DeValue::Table(table) = value.into_inner() else {
                let key = joined(TEMPLATES, &name);
                self.report(offset, &key, "is not a table", "[template.NAME]");
                continue;
            };
            let template = Template {
                table,
                offset,
                is_used: false,
            };
            self.templates.insert(name, template);
        }
    }

    /// Expands the uses in a table. `path` is its path in the reference, without indexes.
    fn table(&mut self, mut table: DeTable<'t>, path: &str) -> DeTable<'t> {
        // In a table of free-form keys, `use` is one of them.
        let uses = match path.is_empty() || reference::is_free_form(path) {
            true => None,
            false => table.remove("use"),
        };
        let mut own = DeTable::new();
        for (key, value) in table {
            let value = self.value(value, &joined(path, key.get_ref()));
            own.insert(key, value);
        }
        let Some(uses) = uses else { return own };
        // Later templates override earlier ones, and own keys override all.
        let mut combined = DeTable::new();
        for name in self.names(uses) {
            if let Some(template) = self.instance(&name, path) {
                overlay(&mut combined, template);
            }
        }
        overlay(&mut combined, own);
        combined
    }

    fn value(&mut self, mut value: Spanned<DeValue<'t>>, path: &str) -> Spanned<DeValue<'t>> {
        let inner = match std::mem::replace(value.get_mut(), DeValue::Boolean(false)) {
            DeValue::Table(table) => DeValue::Table(self.table(table, path)),
            DeValue::Array(items) => {
                let mut expanded = DeArray::new();
                for item in items {
                    expanded.push(self.value(item, path));
                }
                DeValue::Array(expanded)
            }
            other => other,
        };
        *value.get_mut() = inner;
        value
    }

    /// The names in `use`.
    fn names(&mut self, uses: Spanned<DeValue<'t>>) -> Vec<Spanned<String>> {
        let span = uses.span();
        let items = match uses.into_inner() {
            DeValue::Array(items) => items.into_iter().collect(),
            single => vec![Spanned::new(span, single)],
        };
        let mut names = Vec::new();
        for item in items {
            match item.get_ref().as_str() {
                Some(name) => names.push(Spanned::new(item.span(), name.to_owned())),
                None => {
                    let allowed = "\"NAME\", or [\"NAME\", …]";
                    self.report(
                        item.span().start,
                        "use",
                        "not the name of a template",
                        allowed,
                    );
                }
            }
        }
        names
    }

    /// A copy of a template, with its own uses expanded.
    fn instance(&mut self, name: &Spanned<String>, path: &str) -> Option<DeTable<'t>> {
        let (offset, name) = (name.span().start, name.get_ref());
        let Some(template) = self.templates.get_mut(name) else {
            self.report_unknown(offset, name);
            return None;
        };
        template.is_used = true;
        if self.stack.contains(name) {
            let chain = self.stack.join(" uses ");
            let message = format!("the template uses itself: {chain} uses {name}");
            self.report(offset, "use", &message, "templates without a cycle");
            return None;
        }
        // Counted before the copy: templates that use each other twice grow exponentially.
        let count = value_count(&template.table);
        let Some(left) = self.values_left.checked_sub(count) else {
            // Reported once: each further use would exceed the limit, too.
            if !self.is_exceeded {
                let message = format!("templates add more than {TEMPLATE_VALUES_MAX} values");
                (self.values_left, self.is_exceeded) = (0, true);
                self.report(offset, "use", &message, "fewer uses");
            }
            return None;
        };
        self.values_left = left;
        let spot = self.map.locate(template.offset);
        let (file, file_start) = (spot.file_index, template.offset - spot.offset);
        let start = self.map.add_region(file, Some(offset));
        // The region of a file is before all regions of uses.
        let table = moved_table(template.table.clone(), start - file_start);
        self.stack.push(name.clone());
        let table = self.table(table, path);
        self.stack.pop();
        Some(table)
    }

    fn report_unknown(&mut self, offset: usize, name: &str) {
        let known: Vec<&str> = self.templates.keys().map(String::as_str).collect();
        let (message, allowed) = match nearest(name, &known) {
            Some(near) => (
                format!("there is no template {name:?}; did you mean {near}?"),
                known.join(", "),
            ),
            None => (
                format!("there is no template {name:?}"),
                format!("the name of a [{TEMPLATES}.NAME]"),
            ),
        };
        self.report(offset, "use", &message, &allowed);
    }

    fn report(&mut self, offset: usize, key: &str, message: &str, allowed: &str) {
        self.problems.push(SourceNote {
            position: KeyPosition {
                key: key.to_owned(),
                offset,
            },
            message: message.to_owned(),
            allowed: allowed.to_owned(),
        });
    }
}

/// Puts the keys of a table over those of another: tables are united, arrays of tables appended, and other values
/// replaced.
fn overlay<'t>(under: &mut DeTable<'t>, over: DeTable<'t>) {
    for (key, value) in over {
        let Some(present) = under.get_mut(&**key.get_ref()) else {
            under.insert(key, value);
            continue;
        };
        let span = value.span();
        match (present.get_mut(), value.into_inner()) {
            (DeValue::Table(present), DeValue::Table(table)) => overlay(present, table),
            (DeValue::Array(present), DeValue::Array(array))
                if are_tables(present) && are_tables(&array) =>
            {
                array.into_iter().for_each(|item| present.push(item));
            }
            (_, value) => {
                // Removed first, since an insertion would keep the position of the present key.
                under.remove(&**key.get_ref());
                under.insert(key, Spanned::new(span, value));
            }
        }
    }
}

/// The number of values in a table, with those in its tables and arrays.
fn value_count(table: &DeTable<'_>) -> usize {
    fn of_value(value: &DeValue<'_>) -> usize {
        1 + match value {
            DeValue::Table(table) => value_count(table),
            DeValue::Array(items) => items.iter().map(|item| of_value(item.get_ref())).sum(),
            _ => 0,
        }
    }
    let values = table.iter().map(|(_, value)| of_value(value.get_ref()));
    // Each use costs a table and a region, so an empty template counts, too.
    1 + values.sum::<usize>()
}
