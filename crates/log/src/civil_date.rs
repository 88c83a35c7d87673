//! Formats times as text, in UTC. Read first: RFC 3339 §5.6.

/// Year, month (1 to 12) and day (1 to 31) of a day counted from 1970-01-01.
///
/// Years are counted from March, so that the leap day is the last day (the well-known algorithm on the proleptic
/// Gregorian calendar).
fn date(days: u64) -> (u64, u64, u64) {
    // The days from 0000-03-01 to 1970-01-01.
    let shifted = days + 719_468;
    // The calendar repeats every 400 years, which have 146,097 days.
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    // Without their leap days, all years have 365 days.
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // From March on, the lengths of five months (31, 30, 31, 30, 31: 153 days) repeat.
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// `2026-11-20T20:45:12.123Z` (RFC 3339).
pub fn rfc3339(unix_ms: u64) -> String {
    let seconds = rfc3339_seconds(unix_ms / 1000);
    format!("{seconds}.{:03}Z", unix_ms % 1000)
}

/// `2026-11-20T20:45:12`, without fraction and zone.
pub fn rfc3339_seconds(unix_s: u64) -> String {
    let (year, month, day) = date(unix_s / 86_400);
    let (hour, minute, second) = time(unix_s);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

/// `2026-11-20 20:45`.
pub fn minutes(unix_s: u64) -> String {
    let (year, month, day) = date(unix_s / 86_400);
    let (hour, minute, _) = time(unix_s);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}")
}

/// `20/Nov/2026:20:45:12 +0000`, the format of access logs.
pub fn common_log(unix_s: u64) -> String {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (year, month, day) = date(unix_s / 86_400);
    let (hour, minute, second) = time(unix_s);
    let month = usize::try_from(month - 1)
        .ok()
        .and_then(|index| MONTHS.get(index));
    let month = month.expect("a month is 1 to 12");
    format!("{day:02}/{month}/{year:04}:{hour:02}:{minute:02}:{second:02} +0000")
}

fn time(unix_s: u64) -> (u64, u64, u64) {
    (unix_s / 3600 % 24, unix_s / 60 % 60, unix_s % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times_are_formatted() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(951_782_399_999), "2000-02-28T23:59:59.999Z");
        // 2000 is a leap year, 2100 is not.
        assert_eq!(rfc3339(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(rfc3339(1_795_207_512_123), "2026-11-20T20:45:12.123Z");
        assert_eq!(
            minutes(4_107_542_400),
            "2100-03-01 00:00",
            "2100 has no leap day"
        );
        assert_eq!(common_log(784_111_777), "06/Nov/1994:08:49:37 +0000");
    }

    #[test]
    fn consecutive_days_are_consecutive_dates_over_four_centuries() {
        // The Gregorian calendar repeats after 400 years.
        let leap =
            |y: u64| y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..146_097 {
            assert_eq!(date(days), (year, month, day));
            let last = match month {
                2 if leap(year) => 29,
                2 => 28,
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            (year, month, day) = match (month, day) {
                (12, 31) => (year + 1, 1, 1),
                (month, day) if day == last => (year, month + 1, 1),
                (month, day) => (year, month, day + 1),
            };
        }
    }

    #[test]
    fn extreme_times_do_not_panic() {
        // A clock that is far off must not cause a panic or an overflow.
        assert!(rfc3339(u64::MAX).ends_with("Z"));
        assert!(common_log(u64::MAX / 1000).ends_with(" +0000"));
    }
}
