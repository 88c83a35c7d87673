//! Renders the reference as the Markdown pages of `docs/configuration/`.

use super::{DefaultValue, KeyReference, TABLES, TableReference, overview};

/// With more keys that have [`KeyReference::with`], the table gets a column for it; otherwise it is written as
/// sentences.
const WITH_SENTENCES_MAX: usize = 3;

/// All pages: file name and text. The first is the overview.
pub fn pages() -> Vec<(String, String)> {
    let mut pages = vec![("README.md".to_string(), overview_page())];
    pages.extend(
        TABLES
            .iter()
            .map(|table| (table.file_name(), table_page(table))),
    );
    pages
}

fn overview_page() -> String {
    let mut page = format!(
        "# Configuration\n\n{}\n\n{}\n\n## Tables\n\n",
        overview::INTRO.trim(),
        overview::TASKS.trim(),
    );
    page += "| table | |\n|---|---|\n";
    for table in TABLES {
        page += &format!(
            "| [`{}`]({}) | {} |\n",
            table.header,
            table.file_name(),
            table.title
        );
    }
    for part in [
        overview::FILE,
        overview::VALUES,
        overview::PATTERNS,
        overview::VARIABLES,
    ] {
        page += &format!("\n{}\n", part.trim());
    }
    page
}

fn table_page(table: &TableReference) -> String {
    let mut page = format!(
        "# `{}`: {}\n\n{}\n",
        table.header,
        table.title,
        table.intro.trim()
    );
    if !table.keys.is_empty() {
        page += &format!("\n{}", key_table(table.keys));
    }
    if !table.notes.trim().is_empty() {
        page += &format!("\n{}\n", table.notes.trim());
    }
    page += "\n[All tables, values and patterns](README.md)\n";
    page
}

fn key_table(keys: &[KeyReference]) -> String {
    let limited = keys.iter().filter(|key| !key.with.is_empty()).count();
    let has_column = limited > WITH_SENTENCES_MAX;
    let mut text = String::from(match has_column {
        true => "| key | with | values | default | meaning |\n|---|---|---|---|---|\n",
        false => "| key | values | default | meaning |\n|---|---|---|---|\n",
    });
    for key in keys {
        let with: Vec<String> = key.with.iter().map(|with| as_code(with)).collect();
        let column = match has_column {
            true if with.is_empty() => " all |".to_string(),
            true => format!(" {} |", with.join(", ")),
            false => String::new(),
        };
        let sentence = match has_column || with.is_empty() {
            true => String::new(),
            false => format!(" Only with {}.", with.join(" or ")),
        };
        let default = default_text(key.default);
        text += &format!(
            "| `{}` |{column} {} | {default} | {}{sentence} |\n",
            key.name, key.values, key.meaning
        );
    }
    text
}

/// The text of a default.
pub(super) fn default_text(default: DefaultValue) -> String {
    match default {
        DefaultValue::Required => "required".to_string(),
        DefaultValue::Toml(value) => format!("`{value}`"),
        DefaultValue::Described(text) => text.to_string(),
        DefaultValue::None => "–".to_string(),
    }
}

/// A key or value as code; a phrase marks its keys itself.
fn as_code(text: &str) -> String {
    match text.contains('`') {
        true => text.to_string(),
        false => format!("`{text}`"),
    }
}
