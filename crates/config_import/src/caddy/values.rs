//! Times and sizes of Caddy.

use crate::toml_values::{quoted, time};

/// The longest time that keys of Lowroad accept.
const MILLISECONDS_MAX: u64 = 86_400_000;

/// A duration as a value in TOML: `1m30s`, `500ms`, `2h`; at most a day.
pub fn duration(text: &str) -> Option<String> {
    let mut milliseconds: u64 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|it: char| !it.is_ascii_digit())?;
        let count: u64 = rest[..digits].parse().ok()?;
        // `ms` comes before `m`, with which it begins.
        let (len, unit) = match &rest[digits..] {
            unit if unit.starts_with("ms") => (2, 1),
            unit if unit.starts_with('s') => (1, 1000),
            unit if unit.starts_with('m') => (1, 60_000),
            unit if unit.starts_with('h') => (1, 3_600_000),
            unit if unit.starts_with('d') => (1, 86_400_000),
            _ => return None,
        };
        milliseconds = milliseconds.checked_add(count.checked_mul(unit)?)?;
        rest = &rest[digits + len..];
    }
    match milliseconds.min(MILLISECONDS_MAX) {
        0 => None,
        it if it.is_multiple_of(1000) => Some(time(it / 1000)),
        it => Some(quoted(&format!("{it}ms"))),
    }
}

/// Bytes of a size: `10MB` and `10MiB`, `500k`.
pub fn bytes(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let digits = text
        .find(|it: char| !it.is_ascii_digit())
        .unwrap_or(text.len());
    // `MB` is decimal, `MiB` is binary.
    let unit = match text[digits..].trim() {
        "" | "b" => 1,
        "k" | "kb" => 1000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        _ => return None,
    };
    text[..digits].parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_keep_their_value() {
        for (text, expected) in [
            ("1m30s", Some("\"90s\"")),
            ("500ms", Some("\"500ms\"")),
            ("2h", Some("\"2h\"")),
            ("9000d", Some("\"1d\"")),
            ("x", None),
        ] {
            assert_eq!(duration(text).as_deref(), expected, "{text}");
        }
        assert_eq!(bytes("10MB"), Some(10_000_000));
        assert_eq!(bytes("1MiB"), Some(1 << 20));
        assert_eq!(bytes("ten"), None);
    }
}
