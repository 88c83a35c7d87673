//! The reference of the configuration: each table and key with its values, default and meaning, for operators.
//!
//! The only source of `docs/configuration/` and of the man page lowroad.toml(5): [`pages`] and [`man_page`] render it.
//! Texts are Markdown, with links relative to `docs/configuration/`. Tests compare its keys with those that the reader
//! accepts, its defaults with those of the schema, and the committed pages with the rendered ones.

mod acme;
mod admin;
mod authentication;
mod conditions;
mod json_schema;
mod logs;
mod man_page;
mod maps;
mod markdown;
mod origin;
mod origin_sticky;
mod overview;
mod process;
mod programs;
mod route;
mod route_mirror;
mod site;
mod site_files;
mod site_policy;
mod site_rules;
mod traces;
mod value_kind;

pub use json_schema::json_schema;
pub use man_page::man_page;
pub use markdown::pages;
pub(crate) use value_kind::{ValueKind, ValueKinds};

/// The link to the description of secrets.
const SECRET_LINK: &str = "README.md#secrets";

/// A table of the file.
#[derive(Clone, Copy, Debug)]
pub struct TableReference {
    /// The table's header, as in the file: `[server]`, `[[site.route]]`.
    pub header: &'static str,
    /// A short title, shown after the header in titles and lists.
    pub title: &'static str,
    /// The purpose of the table; Markdown.
    pub intro: &'static str,
    /// The keys; empty for a table of free-form keys.
    pub keys: &'static [KeyReference],
    /// Details and examples after the keys; Markdown.
    pub notes: &'static str,
    /// For tests: a configuration to which a key of this table can be appended.
    pub context: &'static str,
    /// For tests: the line that makes the keys valid that have this word in [`KeyReference::with`]. The line of the
    /// empty word is for keys without `with`.
    pub with_lines: &'static [(&'static str, &'static str)],
}

/// A key of a table.
#[derive(Clone, Copy, Debug)]
pub struct KeyReference {
    /// The key.
    pub name: &'static str,
    /// The type and range of its values; Markdown.
    pub values: &'static str,
    /// The value if the key is absent.
    pub default: DefaultValue,
    /// Keys or settings, one of which must be present for this key to be valid; empty if the key is always valid.
    pub with: &'static [&'static str],
    /// The meaning; one paragraph of Markdown.
    pub meaning: &'static str,
}

/// The value of an absent key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultValue {
    /// The key must be present.
    Required,
    /// This value, in TOML.
    Toml(&'static str),
    /// A value that depends on other settings or on the machine; Markdown.
    Described(&'static str),
    /// No value.
    None,
}

/// The parent of tables with free names, and the path under which the reference describes them.
pub(crate) const NAMED_TABLES: (&str, &str) = ("map", "map.NAME");

/// The table with this path, such as `site.route`.
pub fn table(path: &str) -> Option<&'static TableReference> {
    TABLES.iter().find(|table| table.path() == path).copied()
}

/// Whether the keys of the table with this path are free-form, such as those of `application.env`.
pub(crate) fn is_free_form(path: &str) -> bool {
    if let Some(table) = table(path) {
        return table.keys.is_empty();
    }
    // A table without a page has free-form keys.
    path.rsplit_once('.')
        .and_then(|(parent, name)| table(parent)?.key(name))
        .is_some_and(|key| key.values == "table")
}

impl TableReference {
    /// The page's file name: `site-route.md` for `[[site.route]]`.
    pub fn file_name(&self) -> String {
        format!("{}.md", self.path().replace('.', "-"))
    }

    /// The table's path: `site.route` for `[[site.route]]`.
    pub fn path(&self) -> &'static str {
        self.header.trim_matches(['[', ']'])
    }

    /// The key with this name.
    pub fn key(&self, name: &str) -> Option<&'static KeyReference> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// The line that makes a key with `with` in its [`KeyReference::with`] valid.
    pub fn with_line(&self, with: &str) -> Option<&'static str> {
        let found = self.with_lines.iter().find(|(word, _)| *word == with);
        found.map(|(_, line)| *line)
    }
}

impl KeyReference {
    const fn new(
        name: &'static str,
        values: &'static str,
        default: DefaultValue,
        meaning: &'static str,
    ) -> KeyReference {
        KeyReference {
            name,
            values,
            default,
            with: &[],
            meaning,
        }
    }

    /// A key that must be present.
    const fn required(
        name: &'static str,
        values: &'static str,
        meaning: &'static str,
    ) -> KeyReference {
        KeyReference::new(name, values, DefaultValue::Required, meaning)
    }

    /// A key without a default.
    const fn optional(
        name: &'static str,
        values: &'static str,
        meaning: &'static str,
    ) -> KeyReference {
        KeyReference::new(name, values, DefaultValue::None, meaning)
    }

    /// A key with a fixed default, in TOML.
    const fn with_default(
        name: &'static str,
        values: &'static str,
        default: &'static str,
        meaning: &'static str,
    ) -> KeyReference {
        KeyReference::new(name, values, DefaultValue::Toml(default), meaning)
    }

    /// A key with a default described in words.
    const fn with_described_default(
        name: &'static str,
        values: &'static str,
        default: &'static str,
        meaning: &'static str,
    ) -> KeyReference {
        KeyReference::new(name, values, DefaultValue::Described(default), meaning)
    }

    /// The key, valid only with one of these.
    const fn only_with(self, with: &'static [&'static str]) -> KeyReference {
        KeyReference { with, ..self }
    }
}

/// All tables, in the order of the documentation.
pub const TABLES: &[&TableReference] = &[
    &process::SERVER,
    &process::LIMITS,
    &logs::BUFFERING,
    &logs::LOG,
    &logs::LOG_ACCESS,
    &admin::ADMIN,
    &traces::TRACES,
    &traces::HEADERS,
    &traces::HEADER_FILES,
    &traces::RESOURCE,
    &acme::ACME,
    &acme::AUTHORITY,
    &acme::ON_DEMAND,
    &site::SITE,
    &site::TLS,
    &site_files::COMPRESS,
    &site_files::TYPES,
    &site_files::ERROR_PAGES,
    &site_files::CACHE_CONTROL,
    &site_files::ALIAS,
    &site_rules::RULE,
    &conditions::RULE_NOT,
    &conditions::RULE_RESPOND,
    &authentication::FORWARD_AUTH,
    &authentication::JWT,
    &site_rules::REDIRECT,
    &site_rules::REWRITE,
    &site_rules::HEADER,
    &site_policy::CORS,
    &site_policy::MAINTENANCE,
    &route::ROUTE,
    &route::REQUEST,
    &route::CACHE,
    &route_mirror::MIRROR,
    &route::CACHE_RULE,
    &origin::ORIGIN,
    &origin::CHECK,
    &origin_sticky::STICKY,
    &origin::TLS,
    &origin::CLASS,
    &programs::MODULE,
    &programs::APPLICATION,
    &programs::DATABASE,
    &maps::MAP,
];
