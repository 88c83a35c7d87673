//! A configuration in the making: tables with comments, written as a person would write them.
//!
//! A table or key that the configuration parser refuses is commented out, so that the text is always usable.

use std::fmt::Write;

use crate::toml_values::{key, quoted};

/// A key of a table.
#[derive(Clone, Debug)]
struct TableKey {
    text: String,
    /// The directive that it comes from.
    entry: Option<usize>,
    is_disabled: bool,
}

/// The key of a rule in place of those that the parser refuses.
const REFUSAL: &str = "deny = 503";

/// Keys of a route that neither select requests nor change them; without one, its default is in force.
const ROUTE_LIMITS: [&str; 2] = ["timeout =", "body_len_max ="];

/// A table of the configuration.
#[derive(Clone, Debug, Default)]
pub struct ConfigTable {
    header: String,
    comments: Vec<String>,
    keys: Vec<TableKey>,
    /// The directives that it comes from.
    entries: Vec<usize>,
    /// Whether single keys are commented out instead of the whole table.
    is_essential: bool,
    is_disabled: bool,
}

impl ConfigTable {
    /// A table without keys: `[[site.route]]`.
    pub fn new(header: &str) -> ConfigTable {
        ConfigTable {
            header: one_line(header),
            ..ConfigTable::default()
        }
    }

    /// A table that the configuration can't do without, such as `[[site]]`.
    pub fn essential(header: &str) -> ConfigTable {
        ConfigTable {
            is_essential: true,
            ..ConfigTable::new(header)
        }
    }

    /// A table of texts by their names.
    pub fn with_texts<'t>(
        header: &str,
        texts: impl IntoIterator<Item = (&'t String, &'t String)>,
    ) -> ConfigTable {
        let texts = texts.into_iter();
        texts.fold(ConfigTable::new(header), |table, (name, text)| {
            table.key(&key(name), quoted(text))
        })
    }

    /// Adds a comment before the table; none if it is empty.
    pub fn comment(mut self, comment: &str) -> ConfigTable {
        self.comments
            .extend((!comment.is_empty()).then(|| comment.to_string()));
        self
    }

    /// Names a directive that the table comes from.
    pub fn entry(mut self, entry: usize) -> ConfigTable {
        self.entries.push(entry);
        self
    }

    /// Adds a key with a value in TOML.
    pub fn key(mut self, key: &str, value: impl AsRef<str>) -> ConfigTable {
        self.push(key, value.as_ref(), None);
        self
    }

    /// Adds a key if there is a value.
    pub fn optional_key(self, key: &str, value: Option<impl AsRef<str>>) -> ConfigTable {
        match value {
            Some(value) => self.key(key, value),
            None => self,
        }
    }

    /// Adds a key of a directive.
    pub fn push(&mut self, key: &str, value: &str, entry: Option<usize>) {
        self.keys.push(TableKey {
            text: one_line(&format!("{key} = {value}")),
            entry,
            is_disabled: false,
        });
    }

    /// Comments out all keys, and returns the directives of the table.
    fn disable(&mut self) -> impl Iterator<Item = usize> {
        self.is_disabled = true;
        let keys = self.keys.iter().filter_map(|key| key.entry);
        self.entries.iter().copied().chain(keys)
    }

    /// The rule that refuses the requests of the table. `refused` is the key that the parser refuses.
    fn refusal(&self, refused: Option<usize>) -> ConfigTable {
        let name = match &*self.header {
            "[[site.route]]" => "pattern = ",
            "[[site.redirect]]" | "[[site.rewrite]]" => "from = ",
            _ => "",
        };
        let mut keys = self.keys.iter().enumerate();
        let pattern = keys.find_map(|(index, key)| {
            let is_usable = !name.is_empty() && refused != Some(index);
            key.text.strip_prefix(name).filter(|_| is_usable)
        });
        ConfigTable::new("[[site.rule]]")
            .comment("Until the refused key or table is mended.")
            .optional_key("pattern", pattern)
            .optional_key("variable", self.path_condition(refused))
            .key("deny", "503")
    }

    /// The condition on the path of a rewrite with an expression that the parser accepts.
    fn path_condition(&self, refused: Option<usize>) -> Option<String> {
        let mut keys = self.keys.iter().enumerate();
        let regex = keys.find_map(|(index, key)| {
            let is_usable = self.header == "[[site.rewrite]]" && refused != Some(index);
            key.text.strip_prefix("regex = ").filter(|_| is_usable)
        })?;
        // The value keeps its quotes.
        let (quote, rest) = regex.split_at_checked(1)?;
        Some(format!("{quote}$path=~{rest}"))
    }

    /// The rule that closes the paths of a disabled table. A redirect protects at most the paths that it takes away, and a
    /// rewrite for missing files none.
    fn closing_rule(&self, refused: Option<usize>) -> Option<ConfigTable> {
        let rule = self.refusal(refused);
        match &*self.header {
            "[site.tls]" | "[[site.route]]" => Some(rule),
            "[[site.redirect]]" => rule.has_key("pattern").then_some(rule),
            "[[site.rewrite]]" => {
                let is_for_missing = self.has_key("missing") || self.has_key("exists");
                (!is_for_missing).then_some(rule)
            }
            _ => None,
        }
    }

    fn has_key(&self, name: &str) -> bool {
        let start = format!("{name} = ");
        self.keys.iter().any(|key| key.text.starts_with(&start))
    }

    /// Whether it is a rule that refuses or admits requests, and still has the keys for that.
    fn is_guard(&self) -> bool {
        let guards = ["deny =", "auth =", "forward_auth =", "close =", "respond ="];
        let mut keys = self.keys.iter().filter(|it| !it.is_disabled);
        self.header == "[[site.rule]]"
            && keys.any(|key| guards.iter().any(|guard| key.text.starts_with(guard)))
            && !self
                .keys
                .iter()
                .all(|key| key.is_disabled || key.text == REFUSAL)
    }

    /// Refuses the requests of the rule's pattern, and all if the parser refuses the pattern.
    fn refuse_instead(&mut self, refused: Option<usize>) {
        for (index, key) in self.keys.iter_mut().enumerate() {
            let is_pattern = key.text.starts_with("pattern =") && refused != Some(index);
            key.is_disabled |= !is_pattern && key.text != REFUSAL;
        }
        if !self.keys.iter().any(|key| key.text == REFUSAL) {
            self.keys.push(TableKey {
                text: REFUSAL.to_string(),
                entry: None,
                is_disabled: false,
            });
        }
    }

    /// Whether the table has no keys.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

/// A configuration.
#[derive(Clone, Debug, Default)]
pub struct ConfigDocument {
    head: Vec<String>,
    tables: Vec<ConfigTable>,
}

/// The origin of a line of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineOrigin {
    /// A comment or an empty line.
    None,
    /// The header of a table.
    Header(usize),
    /// A key of a table.
    Key(usize, usize),
}

impl ConfigDocument {
    /// A configuration that begins with comments.
    pub fn new(head: Vec<String>) -> ConfigDocument {
        ConfigDocument {
            head,
            tables: Vec::new(),
        }
    }

    /// Adds a table.
    pub fn push(&mut self, table: ConfigTable) {
        self.tables.push(table);
    }

    /// Adds a table unless it has no keys.
    pub fn push_filled(&mut self, table: ConfigTable) {
        if !table.is_empty() {
            self.push(table);
        }
    }

    /// Adds the tables of another configuration.
    pub fn append(&mut self, other: ConfigDocument) {
        self.tables.extend(other.tables);
    }

    /// The text in TOML.
    pub fn to_text(&self) -> String {
        self.render().0
    }

    /// Comments out the origin of a line, counted from 1. Returns the directives from which it was made; `None` if the
    /// line can't be omitted.
    pub fn disable_line(&mut self, line: usize, reason: &str) -> Option<Vec<usize>> {
        let origins = self.render().1;
        let origin = *origins.get(line.checked_sub(1)?)?;
        let (table, key) = match origin {
            LineOrigin::None => return None,
            LineOrigin::Header(table) => (table, None),
            LineOrigin::Key(table, key) => (table, Some(key)),
        };
        // Without the header of a [[site]], its subtables would belong to the previous site.
        if self.tables[table].is_essential {
            return self.disable_essential_key(table, key?);
        }
        // Fields and environment may protect the application behind the route.
        let (table, key) = match self.route_of(table) {
            Some(route) => (route, None),
            None => (table, key),
        };
        let disabled = &mut self.tables[table];
        disabled.comments.push(format!("By hand: {reason}"));
        // Paths that a rule protects must not become open.
        if disabled.is_guard() {
            disabled.refuse_instead(key);
            return Some(disabled.entries.clone());
        }
        if let Some(key) = key.filter(|_| disabled.header == "[[site.route]]") {
            let key = &mut disabled.keys[key];
            if ROUTE_LIMITS.iter().any(|it| key.text.starts_with(it)) {
                key.is_disabled = true;
                return Some(disabled.entries.clone());
            }
        }
        let refusal = disabled.closing_rule(key);
        // Subtables belong to the table before them.
        let prefix = format!("[{}.", disabled.header.trim_matches(['[', ']']));
        let mut entries: Vec<usize> = disabled.disable().collect();
        let below = self.tables[table + 1..].iter_mut();
        for table in below.take_while(|it| it.header.starts_with(&prefix)) {
            entries.extend(table.disable());
        }
        self.refuse_first(table, refusal);
        Some(entries)
    }

    /// Comments out a key of a table that stays.
    fn disable_essential_key(&mut self, table: usize, key: usize) -> Option<Vec<usize>> {
        let disabled = &mut self.tables[table];
        let key = &mut disabled.keys[key];
        key.is_disabled = true;
        let entries = key.entry.into_iter().collect();
        // Without its names or listeners, a site would answer other requests.
        let selects = ["names =", "listen ="];
        let is_selecting = selects.iter().any(|it| key.text.starts_with(it));
        if is_selecting && disabled.header == "[[site]]" {
            let refusal = disabled.refusal(None);
            self.refuse_first(table, Some(refusal));
        }
        Some(entries)
    }

    /// The route of a subtable.
    fn route_of(&self, table: usize) -> Option<usize> {
        let is_part = self.tables[table].header.starts_with("[site.route.");
        let mut before = self.tables[..table].iter();
        is_part.then(|| before.rposition(|it| it.header == "[[site.route]]"))?
    }

    /// Adds a rule in front of all others of the site to which a table belongs.
    fn refuse_first(&mut self, table: usize, refusal: Option<ConfigTable>) {
        let mut before = self.tables[..=table].iter();
        let site = before.rposition(|it| it.header == "[[site]]");
        if let (Some(site), Some(refusal)) = (site, refusal) {
            self.tables.insert(site + 1, refusal);
        }
    }

    fn render(&self) -> (String, Vec<LineOrigin>) {
        let mut text = String::new();
        let mut origins = Vec::new();
        let mut line = |content: &str, is_disabled: bool, origin: LineOrigin| {
            let front = if is_disabled && !content.is_empty() {
                "# "
            } else {
                ""
            };
            let _ = writeln!(text, "{front}{content}");
            origins.push(if is_disabled {
                LineOrigin::None
            } else {
                origin
            });
        };
        for comment in self.head.iter().flat_map(|it| comment_lines(it)) {
            line(&comment, true, LineOrigin::None);
        }
        for (index, table) in self.tables.iter().enumerate() {
            if index > 0 || !self.head.is_empty() {
                line("", false, LineOrigin::None);
            }
            for comment in table.comments.iter().flat_map(|it| comment_lines(it)) {
                line(&comment, true, LineOrigin::None);
            }
            line(&table.header, table.is_disabled, LineOrigin::Header(index));
            for (number, key) in table.keys.iter().enumerate() {
                line(
                    &key.text,
                    table.is_disabled || key.is_disabled,
                    LineOrigin::Key(index, number),
                );
            }
        }
        (text, origins)
    }
}

/// A header or a key without the ends of lines that could begin another.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

/// The lines of a comment. TOML has no control characters in comments.
fn comment_lines(text: &str) -> impl Iterator<Item = String> {
    let lines = text.split(['\n', '\r']);
    lines.map(|line| line.replace(char::is_control, " "))
}

#[cfg(test)]
mod tests;
