//! The kinds of values that a key has, read from the words of the reference.
//!
//! The words ([`KeyReference::values`]) are the only source: the documentation shows them, the JSON Schema and the
//! comparison of configurations are derived from them here.

use super::{KeyReference, SECRET_LINK};

/// One kind of values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ValueKind {
    Boolean,
    /// A number in a range; also as a string.
    Number(f64, f64),
    /// A number of bytes, also with K, M or G.
    Size,
    /// A number of seconds, also with a unit.
    Duration,
    /// One of several strings.
    Word(String),
    /// Any string or number.
    Text,
    /// A secret in another place.
    Secret,
    /// A table.
    Table,
    /// An array of tables.
    Tables,
}

/// The kinds of a key's values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ValueKinds {
    /// The kinds of a single value.
    pub(crate) single: Vec<ValueKind>,
    /// Whether an array of such values is allowed. An array of one element equals that element.
    pub(crate) is_list: bool,
}

impl KeyReference {
    /// The kinds of values.
    pub(crate) fn kinds(&self) -> ValueKinds {
        let is_list = ["list", "array"]
            .iter()
            .any(|word| self.values.contains(word));
        ValueKinds {
            single: single_kinds(self.values),
            is_list,
        }
    }
}

fn single_kinds(values: &str) -> Vec<ValueKind> {
    match values {
        "table" => return vec![ValueKind::Table],
        "tables" => return vec![ValueKind::Tables],
        _ if values.starts_with("size") => return vec![ValueKind::Size],
        _ if values.starts_with("duration") => return vec![ValueKind::Duration],
        _ => {}
    }
    let mut kinds = Vec::new();
    let mut rest = values.to_owned();
    if values.contains(SECRET_LINK) {
        kinds.push(ValueKind::Secret);
        rest = rest.replace(&format!("[secret]({SECRET_LINK})"), "");
    }
    if rest.contains("boolean") || rest.contains("`true`") {
        kinds.push(ValueKind::Boolean);
        rest = rest.replace("boolean", "");
    }
    // Words are quoted in code; a word with `…` or capitals stands for many.
    let is_sample = |word: &str| word.contains('…') || word.contains(|it: char| it.is_uppercase());
    let quoted = values.split('`').skip(1).step_by(2);
    let words = quoted.filter_map(|code| code.strip_prefix('"')?.strip_suffix('"'));
    let (samples, words): (Vec<&str>, Vec<&str>) = words.partition(|word| is_sample(word));
    let outside: String = rest.split('`').step_by(2).collect();
    let has_other = outside.split([' ', ',']).any(|word| {
        !matches!(
            word,
            "" | "or" | "and" | "array" | "list" | "of" | "table" | "tables"
        )
    });
    // A table beside other values: `table, or array of tables`.
    if outside.split([' ', ',']).any(|word| word == "table") {
        kinds.push(ValueKind::Table);
    }
    kinds.extend(words.iter().map(|word| ValueKind::Word((*word).to_owned())));
    match numbers(&outside) {
        Some((low, high)) => {
            kinds.push(ValueKind::Number(low, high));
            // A rate may have a unit.
            if outside.contains("with") && outside.contains("second") {
                kinds.push(ValueKind::Text);
            }
        }
        None if has_other || !samples.is_empty() || kinds.is_empty() => kinds.push(ValueKind::Text),
        None => {}
    }
    kinds
}

/// The lowest and the highest number of a range such as `64 to 1048576, or 0`, or of a list such as `403 or 404`.
fn numbers(text: &str) -> Option<(f64, f64)> {
    if text.contains("characters") {
        return None;
    }
    let words = text.split([' ', ',']);
    let numbers: Vec<f64> = words.filter_map(|word| word.parse().ok()).collect();
    let low = numbers.iter().copied().reduce(f64::min)?;
    let high = numbers.iter().copied().reduce(f64::max)?;
    Some((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read_from_the_words_of_the_reference() {
        use ValueKind::{Boolean, Duration, Number, Secret, Size, Table, Tables, Text};
        let word = |text: &str| ValueKind::Word(text.to_owned());
        for (values, single, is_list) in [
            ("boolean", vec![Boolean], false),
            ("`true` or `false`", vec![Boolean], false),
            ("table, or array of tables", vec![Table], true),
            (
                "200 to 599, or table",
                vec![Table, Number(200.0, 599.0)],
                false,
            ),
            ("path or `true`", vec![Boolean, Text], false),
            ("size, 64K to 1024G, or 0", vec![Size], false),
            ("duration, up to 1h", vec![Duration], false),
            ("64 to 1048576, or 0", vec![Number(0.0, 1_048_576.0)], false),
            ("403 or 404", vec![Number(403.0, 404.0)], false),
            (
                "`\"auto\"`, or 0 to 1024",
                vec![word("auto"), Number(0.0, 1024.0)],
                false,
            ),
            (
                "`\"file\"` or `\"content\"`",
                vec![word("file"), word("content")],
                false,
            ),
            (
                "`\"off\"`, `\"auto\"`, or an interface",
                vec![word("off"), word("auto"), Text],
                false,
            ),
            (
                "boolean, or array of `\"br\"`, `\"gzip\"`",
                vec![Boolean, word("br"), word("gzip")],
                true,
            ),
            (
                "`\"unix:PATH\"`, `\"HOST:PORT\"`, or array of them",
                vec![Text],
                true,
            ),
            (
                "1 to 1000000 a second, or with `/s`, `/m`, `/h`",
                vec![Number(1.0, 1_000_000.0), Text],
                false,
            ),
            ("1 to 48 printable characters", vec![Text], false),
            ("list of patterns", vec![Text], true),
            ("[secret](README.md#secrets)", vec![Secret], false),
            (
                "text, or [secret](README.md#secrets)",
                vec![Secret, Text],
                false,
            ),
            ("table", vec![Table], false),
            ("tables", vec![Tables], false),
        ] {
            let key = KeyReference::optional("k", values, "");
            assert_eq!(key.kinds(), ValueKinds { single, is_list }, "{values}");
        }
    }
}
