//! HTTP dates. Read RFC 9110 §5.6.7.

use crate::list_values::decimal;

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const LONG_DAYS: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
/// 9999-12-31T23:59:59Z.
const LAST_SECS: u64 = 253_402_300_799;
const DAY_SECS: u64 = 86_400;

/// Formats seconds since 1970 as `Sun, 06 Nov 1994 08:49:37 GMT`, up to the end of the year 9999.
pub fn format(unix_secs: u64) -> [u8; 29] {
    // The format has four digits for the year.
    let secs = unix_secs.min(LAST_SECS);
    let days = secs / DAY_SECS;
    let (year, month, day) = civil_from_days(days);
    // 1970-01-01 was a Thursday.
    let weekday = DAYS[index(days + 3, DAYS.len())];
    let mut out = *b"Sun, 06 Nov 1994 08:49:37 GMT";
    out[..3].copy_from_slice(weekday.as_bytes());
    write_two_digits(&mut out, 5, day);
    out[8..11].copy_from_slice(MONTHS[index(month - 1, MONTHS.len())].as_bytes());
    write_two_digits(&mut out, 12, year / 100);
    write_two_digits(&mut out, 14, year % 100);
    write_two_digits(&mut out, 17, secs / 3600 % 24);
    write_two_digits(&mut out, 20, secs / 60 % 60);
    write_two_digits(&mut out, 23, secs % 60);
    out
}

/// Parses a date in any of the three formats of RFC 9110 §5.6.7 to seconds since 1970; `now_secs` decides the century
/// of a two-digit year. Names of days, months and the zone are accepted in any case, as in many caches. `None` if the
/// date is malformed or before 1970.
pub fn parse(date: &[u8], now_secs: u64) -> Option<u64> {
    // The three formats differ in the fourth byte.
    match date.get(3)? {
        b',' => imf_fixdate(date),
        b' ' => asctime(date),
        _ => rfc850(date, now_secs),
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`
fn imf_fixdate(date: &[u8]) -> Option<u64> {
    let date: &[u8; 29] = date.try_into().ok()?;
    let separators = date[3..5] == *b", " && date[7] == b' ' && date[11] == b' ';
    (separators && date[16] == b' ' && is_gmt(&date[25..])).then_some(())?;
    find_name(&DAYS, &date[..3])?;
    let month = find_name(&MONTHS, &date[8..11])? + 1;
    seconds(
        decimal(&date[12..16])?,
        month,
        decimal(&date[5..7])?,
        &date[17..25],
    )
}

/// `Sunday, 06-Nov-94 08:49:37 GMT`
fn rfc850(date: &[u8], now_secs: u64) -> Option<u64> {
    let comma = date.iter().position(|b| *b == b',')?;
    find_name(&LONG_DAYS, &date[..comma])?;
    let rest: &[u8; 24] = date[comma..].try_into().ok()?;
    let separators = rest[..2] == *b", " && rest[4] == b'-' && rest[8] == b'-' && rest[11] == b' ';
    (separators && is_gmt(&rest[20..])).then_some(())?;
    let month = find_name(&MONTHS, &rest[5..8])? + 1;
    let year = full_year(decimal(&rest[9..11])?, now_secs);
    seconds(year, month, decimal(&rest[2..4])?, &rest[12..20])
}

/// `Sun Nov  6 08:49:37 1994`
fn asctime(date: &[u8]) -> Option<u64> {
    let date: &[u8; 24] = date.try_into().ok()?;
    let separators = date[7] == b' ' && date[10] == b' ' && date[19] == b' ';
    separators.then_some(())?;
    find_name(&DAYS, &date[..3])?;
    let month = find_name(&MONTHS, &date[4..7])? + 1;
    // asctime pads the day with a space.
    let day = if date[8] == b' ' {
        &date[9..10]
    } else {
        &date[8..10]
    };
    seconds(decimal(&date[20..])?, month, decimal(day)?, &date[11..19])
}

/// The full year of a two-digit year. A year that is more than 50 years ahead means the year a century before (RFC 9110
/// §5.6.7).
fn full_year(two_digits: u64, now_secs: u64) -> u64 {
    let (now, _, _) = civil_from_days(now_secs.min(LAST_SECS) / DAY_SECS);
    // Start with the century of `now_secs`.
    let year = now - now % 100 + two_digits;
    if year > now + 50 { year - 100 } else { year }
}

fn seconds(year: u64, month: u64, day: u64, time: &[u8]) -> Option<u64> {
    let &[h1, h0, b':', m1, m0, b':', s1, s0] = time else {
        return None;
    };
    let (hour, minute) = (decimal(&[h1, h0])?, decimal(&[m1, m0])?);
    let second = decimal(&[s1, s0])?;
    // 60 is a leap second, which Unix time does not have.
    let is_valid = hour < 24 && minute < 60 && second <= 60;
    let is_valid =
        is_valid && (1970..=9999).contains(&year) && day >= 1 && day <= month_len(year, month);
    is_valid
        .then(|| days_from_civil(year, month, day) * DAY_SECS + hour * 3600 + minute * 60 + second)
}

fn month_len(year: u64, month: u64) -> u64 {
    let leap = year.is_multiple_of(if year.is_multiple_of(100) { 400 } else { 4 });
    match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + u64::from(leap),
        _ => 31,
    }
}

/// Days from 1970-01-01 to a later date. Years are counted from March, so that the leap day is the last day.
fn days_from_civil(year: u64, month: u64, day: u64) -> u64 {
    // January and February belong to the year that began in March.
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
}

/// The inverse of [`days_from_civil`]: year, month, day.
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    // An era has 400 years.
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

fn is_gmt(zone: &[u8]) -> bool {
    zone.eq_ignore_ascii_case(b" GMT")
}

fn find_name(names: &[&str], text: &[u8]) -> Option<u64> {
    names
        .iter()
        .zip(0..)
        .find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(text))
        .map(|(_, at)| at)
}

fn write_two_digits(out: &mut [u8; 29], at: usize, value: u64) {
    const DIGITS: [u8; 10] = *b"0123456789";
    out[at] = DIGITS[index(value / 10, DIGITS.len())];
    out[at + 1] = DIGITS[index(value, DIGITS.len())];
}

/// `value` modulo a small length.
fn index(value: u64, len: usize) -> usize {
    usize::try_from(value % len as u64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_795_207_512; // 2026

    #[test]
    fn all_three_date_formats_are_parsed() {
        // RFC 9110 §5.6.7: a recipient must accept all three.
        for date in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "sun, 06 NOV 1994 08:49:37 gmt",
            "SUNDAY, 06-nov-94 08:49:37 Gmt",
            "sUN nOV  6 08:49:37 1994",
        ] {
            assert_eq!(parse(date.as_bytes(), NOW), Some(784_111_777), "{date}");
        }
    }

    #[test]
    fn formatted_date_parses_to_the_same_time() {
        let mut secs = 0;
        while secs <= LAST_SECS {
            assert_eq!(parse(&format(secs), NOW), Some(secs));
            secs += 86_399 * 97;
        }
        assert_eq!(&format(0), b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(&format(951_782_400), b"Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(&format(u64::MAX), b"Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn two_digit_year_is_at_most_50_years_ahead() {
        // RFC 9110 §5.6.7.
        let year =
            |date: &str| parse(date.as_bytes(), NOW).map(|s| civil_from_days(s / DAY_SECS).0);
        assert_eq!(year("Friday, 01-Jan-76 00:00:00 GMT"), Some(2076));
        assert_eq!(year("Saturday, 01-Jan-77 00:00:00 GMT"), Some(1977));
    }

    #[test]
    fn malformed_dates_are_rejected() {
        for date in [
            "",
            "Sun",
            "Sun,",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 31 Apr 1994 08:49:37 GMT",
            // 1900 was not a leap year.
            "Sun, 29 Feb 1900 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:60:37 GMT",
            "Sun, 06 Nov 1969 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GM",
            "Sun Nov 06 08:49:37 199x",
            // An extension of early browsers, not in any RFC.
            "Wed, 21 Oct 2015 07:28:00 GMT; length=1",
        ] {
            assert_eq!(parse(date.as_bytes(), NOW), None, "{date}");
        }
    }
}
