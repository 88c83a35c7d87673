//! Values of a configuration in TOML.

/// A time as a value in TOML, with its largest whole unit: `"2m"`.
pub fn time(seconds: u64) -> String {
    let units = [(86_400, "d"), (3600, "h"), (60, "m")];
    let whole = units
        .iter()
        .find(|(len, _)| seconds >= *len && seconds.is_multiple_of(*len));
    quoted(&match whole {
        Some((len, unit)) => format!("{}{unit}", seconds / len),
        None => format!("{seconds}s"),
    })
}

/// A size as a value in TOML, with its largest whole unit: `"16K"`.
pub fn size(bytes: u64) -> String {
    let units = [(1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    match units
        .iter()
        .find(|(len, _)| bytes >= *len && bytes.is_multiple_of(*len))
    {
        Some((len, unit)) => quoted(&format!("{}{unit}", bytes / len)),
        None => bytes.to_string(),
    }
}

/// A text as a value in TOML: literal if that is more readable.
pub fn quoted(text: &str) -> String {
    let is_literal = text.contains(['"', '\\'])
        && !text.contains(['\'', '\n', '\r'])
        && !text.contains(char::is_control);
    if is_literal {
        return format!("'{text}'");
    }
    let mut value = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => value.push_str("\\\""),
            '\\' => value.push_str("\\\\"),
            '\n' => value.push_str("\\n"),
            '\t' => value.push_str("\\t"),
            it if it.is_control() => value.push_str(&format!("\\u{:04X}", u32::from(it))),
            it => value.push(it),
        }
    }
    value.push('"');
    value
}

/// A list as a value in TOML; a list of one element is the element.
pub fn list(texts: &[String]) -> String {
    let values: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
    match &values[..] {
        [value] => value.clone(),
        _ => format!("[{}]", values.join(", ")),
    }
}

/// A key in TOML, in quotes if it needs them.
pub fn key(text: &str) -> String {
    let is_bare = |it: char| it.is_ascii_alphanumeric() || it == '-' || it == '_';
    if !text.is_empty() && text.chars().all(is_bare) {
        text.to_string()
    } else {
        quoted(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_for_toml() {
        assert_eq!(quoted("a"), "\"a\"");
        assert_eq!(quoted(r"^/a\.b$"), r"'^/a\.b$'");
        assert_eq!(quoted("it's \"x\""), r#""it's \"x\"""#);
        assert_eq!(list(&["a".into()]), "\"a\"");
        assert_eq!(key("Content-Type"), "Content-Type");
        assert_eq!(key("a.b"), "\"a.b\"");
    }
}
