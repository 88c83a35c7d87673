//! Converts MariaDB's dates and times to the format of the other databases.

use std::borrow::Cow;

/// Converts a date, optionally with a time; fractions of a second get zero, three or six digits. `None` if the month or
/// day is 0, which is not a date.
pub fn date(text: &str) -> Option<Cow<'_, str>> {
    if text.get(5..7) == Some("00") || text.get(8..10) == Some("00") {
        return None;
    }
    let Some((whole, fraction)) = text.split_once('.') else {
        return Some(text.into());
    };
    // chrono, which formats PostgreSQL's values, prints 0, 3 or 6 digits.
    let significant = fraction.trim_end_matches('0').len();
    let digit_count = significant.next_multiple_of(3);
    Some(
        match (digit_count, digit_count.checked_sub(fraction.len())) {
            (0, _) => whole.into(),
            (_, Some(missing @ 1..)) => format!("{text}{:0missing$}", 0).into(),
            _ => text[..=whole.len() + digit_count].into(),
        },
    )
}

/// Converts a time: removes leading zeros of the hours and trailing zeros of the fraction.
pub fn time(text: &str) -> Cow<'_, str> {
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => text,
    };
    // MariaDB prints hours with at least two digits.
    match text.as_bytes() {
        [b'0', b'0'..=b'9', ..] => text[1..].into(),
        [b'-', b'0', b'0'..=b'9', ..] => format!("-{}", &text[2..]).into(),
        _ => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_of_date_times_have_0_3_or_6_digits() {
        for (from, to) in [
            ("2026-11-21", Some("2026-11-21")),
            ("2026-11-21 12:30:00", Some("2026-11-21 12:30:00")),
            ("2026-11-21 12:30:00.000000", Some("2026-11-21 12:30:00")),
            ("2026-11-21 12:30:00.1", Some("2026-11-21 12:30:00.100")),
            (
                "2026-11-21 12:30:00.120000",
                Some("2026-11-21 12:30:00.120"),
            ),
            (
                "2026-11-21 12:30:00.1234",
                Some("2026-11-21 12:30:00.123400"),
            ),
            (
                "2026-11-21 12:30:00.123456",
                Some("2026-11-21 12:30:00.123456"),
            ),
            ("0000-00-00", None),
            ("2026-00-21 00:00:00", None),
            ("2026-11-00", None),
            ("", Some("")),
        ] {
            assert_eq!(date(from).as_deref(), to, "{from}");
        }
    }

    #[test]
    fn superfluous_zeros_are_removed_from_times() {
        for (from, to) in [
            ("01:02:03", "1:02:03"),
            ("-01:02:03.500", "-1:02:03.5"),
            ("00:00:00.000", "0:00:00"),
            ("838:59:59", "838:59:59"),
            ("-30:00:01", "-30:00:01"),
        ] {
            assert_eq!(time(from), to);
        }
    }
}
