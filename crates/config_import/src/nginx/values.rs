//! Values of nginx' directives in the notation of Lowroad.

/// Seconds of a time: `30`, `60s`, `1h30m`, `7d`; none for milliseconds and for other texts.
pub fn seconds(text: &str) -> Option<u64> {
    let mut total: u64 = 0;
    let mut number = String::new();
    for character in text.chars().filter(|it| *it != ' ') {
        if character.is_ascii_digit() {
            number.push(character);
            continue;
        }
        let unit = match character {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            'w' => 7 * 86_400,
            'M' => 30 * 86_400,
            'y' => 365 * 86_400,
            _ => return None,
        };
        let count: u64 = number.parse().ok()?;
        total = total.checked_add(count.checked_mul(unit)?)?;
        number.clear();
    }
    if !number.is_empty() {
        total = total.checked_add(number.parse().ok()?)?;
    } else if text.is_empty() {
        return None;
    }
    Some(total)
}

/// A duration as a value in TOML, with its largest whole unit: `"2m"`.
pub fn duration(text: &str) -> Option<String> {
    if let Some(milliseconds) = text.strip_suffix("ms") {
        let count: u64 = milliseconds.parse().ok()?;
        return Some(quoted(&format!("{count}ms")));
    }
    let seconds = seconds(text)?;
    let units = [(86_400, "d"), (3600, "h"), (60, "m")];
    let whole = units
        .iter()
        .find(|(len, _)| seconds >= *len && seconds.is_multiple_of(*len));
    Some(quoted(&match whole {
        Some((len, unit)) => format!("{}{unit}", seconds / len),
        None => format!("{seconds}s"),
    }))
}

/// Bytes of a size: `1024`, `16k`, `10m`, `1g`.
pub fn bytes(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let (number, unit) = match lower.chars().last()? {
        'k' => (&lower[..lower.len() - 1], 1 << 10),
        'm' => (&lower[..lower.len() - 1], 1 << 20),
        'g' => (&lower[..lower.len() - 1], 1 << 30),
        _ => (&*lower, 1),
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
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
    fn times_and_sizes_keep_their_value() {
        for (text, expected) in [
            ("60", "1m"),
            ("90s", "90s"),
            ("1h30m", "90m"),
            ("500ms", "500ms"),
            ("365d", "365d"),
            ("0", "0s"),
        ] {
            assert_eq!(duration(text), Some(format!("\"{expected}\"")), "{text}");
        }
        assert_eq!(duration("$x"), None);
        assert_eq!(bytes("20M").map(size), Some("\"20M\"".into()));
        assert_eq!(bytes("1000").map(size), Some("1000".into()));
    }

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
