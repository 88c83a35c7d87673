//! Times and sizes of nginx' directives.

use crate::toml_values::{quoted, time};

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
    Some(time(seconds(text)?))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toml_values::size;

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
}
