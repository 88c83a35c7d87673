//! Times in certificates, as seconds since 1970.

use crate::der::{DerElement, GENERALIZED_TIME, UTC_TIME};

/// Parses the two time formats of RFC 5280 (section 4.1.2.5): both in UTC, with seconds.
pub(crate) fn parse(time: DerElement<'_>) -> Option<i64> {
    let (year, rest) = match time.tag {
        UTC_TIME => {
            let (year, rest) = number(time.content, 2)?;
            // RFC 5280, section 4.1.2.5.1: two-digit years from 50 on belong to the 20th century.
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => number(time.content, 4)?,
        _ => return None,
    };
    let (month, rest) = number(rest, 2)?;
    let (day, rest) = number(rest, 2)?;
    let (hour, rest) = number(rest, 2)?;
    let (minute, rest) = number(rest, 2)?;
    let (second, rest) = number(rest, 2)?;
    let is_time = (1..=12).contains(&month) && (1..=31).contains(&day) && rest == b"Z";
    (is_time && hour < 24 && minute < 60 && second <= 60)
        .then(|| days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

fn number(bytes: &[u8], len: usize) -> Option<(i64, &[u8])> {
    let (digits, rest) = bytes.split_at_checked(len)?;
    let number = digits.iter().try_fold(0, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| i64::from(digit - b'0'))?;
        Some(number * 10 + digit)
    })?;
    Some((number, rest))
}

/// Days from 1970 to a Gregorian date. Years are counted from March, so that the leap day is the last day.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Formats a time as `2026-11-23 22:38:45 UTC`.
pub fn display(unix_s: i64) -> String {
    let (day, second) = (unix_s.div_euclid(86_400), unix_s.rem_euclid(86_400));
    let day = day + 719_468;
    let era = day.div_euclid(146_097);
    let of_era = day.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let date = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{date:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(tag: u8, content: &[u8]) -> Option<i64> {
        parse(DerElement {
            tag,
            content,
            encoded: content,
        })
    }

    #[test]
    fn utc_time_and_generalized_time_are_parsed() {
        assert_eq!(parsed(UTC_TIME, b"700101000000Z"), Some(0));
        assert_eq!(parsed(UTC_TIME, b"261123223845Z"), Some(1_795_473_525));
        assert_eq!(
            parsed(GENERALIZED_TIME, b"20000229120000Z"),
            Some(951_825_600)
        );
        assert_eq!(parsed(UTC_TIME, b"491231235959Z"), Some(2_524_607_999));
    }

    #[test]
    fn malformed_time_is_rejected() {
        assert_eq!(parsed(UTC_TIME, b"7001010000Z"), None);
        assert_eq!(parsed(UTC_TIME, b"701301000000Z"), None);
        assert_eq!(parsed(UTC_TIME, b"700101000000+0100"), None);
        assert_eq!(parsed(4, b"700101000000Z"), None);
    }

    #[test]
    fn times_are_displayed_in_utc() {
        assert_eq!(display(951_825_600), "2000-02-29 12:00:00 UTC");
        assert_eq!(display(1_795_473_525), "2026-11-23 22:38:45 UTC");
        assert_eq!(display(-1), "1969-12-31 23:59:59 UTC");
    }
}
