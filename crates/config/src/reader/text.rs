//! Text helpers: positions in a file, readable sizes and durations, and suggestions for misspelled words.

/// The line and column of a byte offset, both from 1; the column counts characters.
pub(crate) fn position(text: &[u8], offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
    let start = before
        .iter()
        .rposition(|&byte| byte == b'\n')
        .map_or(0, |newline| newline + 1);
    // The conversion is lossy, because the position may be that of invalid UTF-8.
    let column = String::from_utf8_lossy(before.get(start..).unwrap_or_default())
        .chars()
        .count()
        + 1;
    (line, column)
}

/// Formats a size in the largest unit that divides it.
pub(crate) fn size_text(size: u64) -> String {
    let units = [(1u64 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    match units
        .iter()
        .find(|(unit, _)| size > 0 && size.is_multiple_of(*unit))
    {
        Some((unit, letter)) => format!("{}{letter}", size / unit),
        None => size.to_string(),
    }
}

/// Formats a duration in the largest unit that divides it.
pub(crate) fn duration_text(duration_ms: u64) -> String {
    const DAY_MS: u64 = 86_400_000;
    let units = [
        (365 * DAY_MS, "y"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1000, "s"),
    ];
    match units
        .iter()
        .find(|(unit, _)| duration_ms > 0 && duration_ms.is_multiple_of(*unit))
    {
        Some((unit, letter)) => format!("{}{letter}", duration_ms / unit),
        None => format!("{duration_ms}ms"),
    }
}

/// The offset, in the text of a TOML string with its quotes, of the byte at an offset in the string's value.
pub(super) fn raw_offset(raw: &str, offset: usize) -> usize {
    let quotes = ["\'\'\'", "\"\"\"", "\'", "\""];
    let quote = quotes.into_iter().find(|quote| raw.starts_with(quote));
    let quote = quote.unwrap_or_default();
    let mut at = quote.len();
    // The first line feed of a string of several lines is not a part of it.
    if quote.len() == 3 {
        let line_ends = ["\r\n", "\n"].into_iter();
        at += line_ends
            .filter(|end| raw[at..].starts_with(end))
            .map(str::len)
            .next()
            .unwrap_or(0);
    }
    let mut value_at = 0;
    while value_at < offset
        && let Some(first) = raw[at..].chars().next()
    {
        let (raw_len, value_len) = match quote.ends_with('"') && first == '\\' {
            true => escape_lens(&raw[at..]),
            false => (first.len_utf8(), first.len_utf8()),
        };
        at = (at + raw_len).min(raw.len());
        value_at += value_len;
    }
    at
}

/// The lengths of an escape sequence, and of its character in UTF-8.
fn escape_lens(raw: &str) -> (usize, usize) {
    let digits = match raw.as_bytes().get(1) {
        Some(b'x') => 2,
        Some(b'u') => 4,
        Some(b'U') => 8,
        // A backslash at the end of a line continues the string at the next character that is not a space.
        Some(b' ' | b'\t' | b'\r' | b'\n') => {
            let rest = raw[1..].trim_start_matches([' ', '\t', '\r', '\n']);
            return (raw.len() - rest.len(), 0);
        }
        _ => return (2, 1),
    };
    let code = raw
        .get(2..2 + digits)
        .and_then(|digits| u32::from_str_radix(digits, 16).ok());
    (
        2 + digits,
        code.and_then(char::from_u32).map_or(1, char::len_utf8),
    )
}

/// The candidate closest to a misspelled word, if it is close enough.
pub(crate) fn nearest<'c>(key: &str, candidates: &[&'c str]) -> Option<&'c str> {
    // Long words may contain more typing errors; in short words, two edits would suggest unrelated keys.
    let distance_max = (key.chars().count() / 3).clamp(1, 3);
    let by_distance = candidates
        .iter()
        .map(|candidate| (edit_distance(key, candidate), *candidate));
    by_distance
        .filter(|(distance, _)| *distance <= distance_max)
        // Of equally close candidates the alphabetically first is taken, so that the suggestion is deterministic.
        .min()
        .map(|(_, candidate)| candidate)
}

/// The distance of two words: characters to insert, remove, replace or swap with the next (optimal string alignment).
fn edit_distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    // The dynamic programming table: distances from each prefix of `from` to each prefix of `to`.
    let mut rows: Vec<Vec<usize>> = vec![(0..=to.len()).collect()];
    for (index, letter) in from.iter().enumerate() {
        let previous = &rows[index];
        let mut row = vec![index + 1];
        for (column, other) in to.iter().enumerate() {
            let replaced = previous[column] + usize::from(letter != other);
            let mut distance = replaced.min(previous[column + 1] + 1).min(row[column] + 1);
            let is_swapped =
                index > 0 && column > 0 && *letter == to[column - 1] && from[index - 1] == *other;
            if is_swapped {
                distance = distance.min(rows[index - 1][column - 1] + 1);
            }
            row.push(distance);
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distance_counts_insertions_removals_and_replacements() {
        for (from, to, distance) in [
            ("", "", 0),
            ("", "ab", 2),
            ("ab", "", 2),
            ("lisen", "listen", 1),
            ("lsiten", "listen", 1),
            ("a", "b", 1),
        ] {
            assert_eq!(edit_distance(from, to), distance, "{from} {to}");
        }
    }

    #[test]
    fn nearest_suggests_only_similar_words() {
        let keys = ["listen", "listing", "root", "index"];
        for (word, near) in [
            ("lisen", Some("listen")),
            ("Listen", Some("listen")),
            ("listin", Some("listen")),
            ("rot", Some("root")),
            ("orot", Some("root")),
            ("x", None),
            ("document_root", None),
        ] {
            assert_eq!(nearest(word, &keys), near, "{word}");
        }
    }

    #[test]
    fn offsets_in_strings_are_found_in_the_text() {
        for (raw, offset, expected) in [
            ("'abc' x", 1, 2),
            ("\"a\\\"b\"", 2, 4),
            ("\"\\u00fcb\"", 2, 7),
            ("\"\\x41b\"", 1, 5),
            ("\'\'\'\nabc\'\'\'", 1, 5),
            ("\"\"\"a\\\n  b\"\"\"", 1, 4),
            ("\"\"\"a\\\n  b$c\"\"\"", 2, 9),
            ("'ü$'", 2, 3),
            ("'a'", 99, 3),
        ] {
            assert_eq!(raw_offset(raw, offset), expected, "{raw} {offset}");
        }
    }

    #[test]
    fn position_columns_count_characters() {
        let text = "a\nü = 1\n";
        for (offset, place) in [
            (0, (1, 1)),
            (1, (1, 2)),
            (2, (2, 1)),
            (4, (2, 2)),
            (9, (3, 1)),
            (99, (3, 1)),
        ] {
            assert_eq!(position(text.as_bytes(), offset), place, "{offset}");
        }
    }

    #[test]
    fn sizes_and_durations_are_formatted_in_largest_unit() {
        let sizes = [
            (0, "0"),
            (1023, "1023"),
            (1024, "1K"),
            (1536 << 10, "1536K"),
            (3 << 30, "3G"),
        ];
        assert!(sizes.iter().all(|(size, text)| size_text(*size) == *text));
        let durations = [
            (0, "0ms"),
            (1500, "1500ms"),
            (15_000, "15s"),
            (60_000, "1m"),
            (86_400_000, "24h"),
        ];
        assert!(
            durations
                .iter()
                .all(|(duration, text)| duration_text(*duration) == *text)
        );
    }
}
