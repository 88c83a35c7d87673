//! Parses the times of conditions.

const SECOND_MS: u64 = 1000;
const MINUTE_MS: u64 = 60 * SECOND_MS;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

/// Reads a time in UTC (`2026-11-29`, `2026-11-29T05:18`, `2026-11-29T05:18:46.123Z`, a space for the `T`), or a time
/// before now (`15m`, `2h`, `7d`). Returns ms since 1970.
pub fn parse_time(text: &str, now_ms: u64) -> Option<u64> {
    parse_ago(text)
        .map(|ago| now_ms.saturating_sub(ago))
        .or_else(|| parse_date(text))
}

fn parse_ago(text: &str) -> Option<u64> {
    let unit_ms = match text.as_bytes().last()? {
        b's' => SECOND_MS,
        b'm' => MINUTE_MS,
        b'h' => HOUR_MS,
        b'd' => DAY_MS,
        _ => return None,
    };
    digits(&text[..text.len() - 1])?.checked_mul(unit_ms)
}

fn parse_date(text: &str) -> Option<u64> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, time) = match text.split_once(['T', ' ']) {
        Some((date, time)) => (date, time),
        None => (text, "00:00"),
    };
    let [year, month, day] = parts(date, '-')?;
    let is_month = (1970..10_000).contains(&year) && (1..=12).contains(&month);
    // Compared with the next month's start, since 31 February would be a day in March.
    if !is_month || day == 0 || days_before(year, month) + day > days_before(year, month + 1) {
        return None;
    }
    // Three digits exactly: the fraction is taken as milliseconds, so `.5` would mean 5 ms.
    let (time, fraction) = match time.split_once('.') {
        Some((time, fraction)) => (time, digits(fraction).filter(|_| fraction.len() == 3)?),
        None => (time, 0),
    };
    let with_seconds = match time.len() {
        5 => format!("{time}:00"),
        _ => time.to_owned(),
    };
    let [hour, minute, second] = parts(&with_seconds, ':')?;
    // 60 is a leap second; the sum below makes it the first second of the next minute.
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let days = days_before(year, month) + day - 1;
    Some(days * DAY_MS + hour * HOUR_MS + minute * MINUTE_MS + second * SECOND_MS + fraction)
}

/// The days from 1970-01-01 to the first of a month, of which 13 is that after the last.
fn days_before(year: u64, month: u64) -> u64 {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let of_years: u64 = (1970..year)
        .map(|year| 365 + u64::from(is_leap(year)))
        .sum();
    let lens: [u64; 12] = [
        31,
        28 + u64::from(is_leap(year)),
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ];
    of_years + lens.iter().take(month as usize - 1).sum::<u64>()
}

fn parts(text: &str, separator: char) -> Option<[u64; 3]> {
    let mut parts = text.split(separator).map(digits);
    let read = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(read)
}

fn digits(text: &str) -> Option<u64> {
    // `parse` alone would accept a plus sign.
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_ages_are_parsed() {
        let now = 1_795_207_512_123;
        for (text, expected) in [
            ("2026-11-20T20:45:12.123Z", Some(now)),
            ("2026-11-20 20:45", Some(now - 12_123)),
            ("1970-01-01", Some(0)),
            ("2000-03-01", Some(951_868_800_000)),
            ("90s", Some(now - 90_000)),
            ("7d", Some(now - 7 * DAY_MS)),
            ("2028-02-29", Some(1_835_395_200_000)),
            ("2026-12-31", Some(1_798_675_200_000)),
            ("2026-02-29", None),
            ("2026-02-31", None),
            ("2026-04-31", None),
            ("2026-01-00", None),
            ("2026-13-01", None),
            ("2026-11-20T25:00", None),
            ("+5m", None),
            ("99999999999999999999d", None),
            ("", None),
        ] {
            assert_eq!(parse_time(text, now), expected, "{text}");
        }
    }
}
