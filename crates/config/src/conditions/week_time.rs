//! Reads times of the week: `"Mon-Fri 08:00-18:00"`, `"Sat,Sun"`, `"22:00-06:00"`.

use crate::WeekTime;
use crate::value::InvalidValue;

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const DAY_MINUTES: u16 = 24 * 60;

const REFUSED: InvalidValue = InvalidValue {
    expected: "a time of the week",
    allowed: "days (Mon-Fri, or Sat,Sun), a time (08:00-18:00), or both with a space between, in UTC",
};

/// Reads a time of the week.
///
/// # Errors
/// Refuses other forms, days without a name of three letters, and an interval of no minutes.
pub(super) fn parse(text: &str) -> Result<WeekTime, InvalidValue> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let (days, minutes) = match words[..] {
        [word] if word.contains(':') => (Some([true; 7]), interval(word)),
        [word] => (days(word), Some((0, DAY_MINUTES))),
        [first, second] => (days(first), interval(second)),
        _ => (None, None),
    };
    let (days, (start_min, end_min)) = days.zip(minutes).ok_or(REFUSED)?;
    Ok(WeekTime {
        days,
        start_min,
        end_min,
    })
}

fn days(text: &str) -> Option<[bool; 7]> {
    let mut days = [false; 7];
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (day(first)?, day(last)?);
        // `Fri-Mon` passes the end of the week.
        let count = (last + 7 - first) % 7 + 1;
        for offset in 0..count {
            days[(first + offset) % 7] = true;
        }
    }
    Some(days)
}

fn day(text: &str) -> Option<usize> {
    DAYS.iter().position(|day| day.eq_ignore_ascii_case(text))
}

fn interval(text: &str) -> Option<(u16, u16)> {
    let (start, end) = text.split_once('-')?;
    let (start, end) = (minute(start)?, minute(end)?);
    // 24:00 is the end of a day, not a start.
    (start != end && start < DAY_MINUTES && end > 0).then_some((start, end))
}

/// The minute of the day, 0 to 1440.
fn minute(text: &str) -> Option<u16> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |digits: &str| -> Option<u16> {
        let is_number = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse().ok()).flatten()
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let total = hours * 60 + minutes;
    (minutes < 60 && total <= DAY_MINUTES).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-30, a Monday, 00:00 UTC.
    const MONDAY_S: u64 = 1_795_996_800;

    fn contains(text: &str, day: u64, hour: u64, minute: u64) -> bool {
        let time = parse(text).expect(text);
        time.contains(MONDAY_S + ((day * 24 + hour) * 60 + minute) * 60)
    }

    #[test]
    fn week_times_contain_their_minutes_only() {
        for (text, day, hour, minute, expected) in [
            ("Mon-Fri 08:00-18:00", 0, 7, 59, false),
            ("Mon-Fri 08:00-18:00", 0, 8, 0, true),
            ("Mon-Fri 08:00-18:00", 4, 17, 59, true),
            ("Mon-Fri 08:00-18:00", 4, 18, 0, false),
            ("Mon-Fri 08:00-18:00", 5, 12, 0, false),
            ("sat,SUN", 5, 0, 0, true),
            ("sat,SUN", 6, 23, 59, true),
            ("sat,SUN", 0, 0, 0, false),
            ("Sat-Mon", 0, 12, 0, true),
            ("Sat-Mon", 1, 0, 0, false),
            ("22:00-06:00", 3, 23, 0, true),
            ("22:00-06:00", 3, 5, 59, true),
            ("22:00-06:00", 3, 6, 0, false),
            // The night that begins on Sunday ends on Monday.
            ("Sun 22:00-06:00", 0, 1, 0, true),
            ("Sun 22:00-06:00", 6, 1, 0, false),
            ("00:00-24:00", 2, 23, 59, true),
        ] {
            let found = contains(text, day, hour, minute);
            assert_eq!(found, expected, "{text}: day {day}, {hour}:{minute}");
        }
    }

    #[test]
    fn other_times_are_refused() {
        for text in [
            "",
            "Monday",
            "Mon 8:00-9:00",
            "08:00",
            "08:00-08:00",
            "24:00-25:00",
            "08:60-09:00",
            "Mon-Fri 08:00-18:00 UTC",
            "08:00-18:00 Mon",
            "Mon,",
            "24:00-06:00",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
