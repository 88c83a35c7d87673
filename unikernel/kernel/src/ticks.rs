//! Converts ticks of a known frequency to microseconds by one multiplication. Also converts dates.

/// The rate of a counter: microseconds are ticks times `multiplier`, shifted right by 32.
#[derive(Clone, Copy)]
pub struct TickRate {
    multiplier: u64,
    khz: u64,
}

impl TickRate {
    /// The rate of a counter with `khz` ticks per millisecond, at least 1.
    #[must_use]
    pub fn new(khz: u64) -> TickRate {
        let khz = khz.max(1);
        TickRate {
            multiplier: (1000 << 32) / khz,
            khz,
        }
    }

    /// Ticks per millisecond.
    #[must_use]
    pub fn khz(self) -> u64 {
        self.khz
    }

    /// Converts ticks to microseconds, rounded down.
    #[must_use]
    pub fn us(self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.multiplier)) >> 32) as u64
    }

    /// Converts microseconds to ticks, at most `u64::MAX`.
    #[must_use]
    pub fn ticks(self, us: u64) -> u64 {
        (u128::from(us) * u128::from(self.khz) / 1000)
            .try_into()
            .unwrap_or(u64::MAX)
    }
}

/// The start value that makes a second processor's clock agree with the first one's, which began at `start`.
/// `local_ticks` was read on the second processor after `remote_ticks` was read on the first. If the counters are
/// synchronized, that is, if `local_ticks` is ahead of `remote_ticks` by less than `slack`, both clocks have the same
/// start. Otherwise the second clock continues from the first one's time.
#[must_use]
pub fn synchronized_start(local_ticks: u64, remote_ticks: u64, start: u64, slack: u64) -> u64 {
    if local_ticks.wrapping_sub(remote_ticks) < slack {
        start
    } else {
        local_ticks.wrapping_sub(remote_ticks.wrapping_sub(start))
    }
}

/// A date and time of day in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UtcDate {
    /// From 1970 on.
    pub year: u32,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
    /// 0 to 23.
    pub hour: u32,
    /// 0 to 59.
    pub minute: u32,
    /// 0 to 60.
    pub second: u32,
}

impl UtcDate {
    /// Seconds since 1970; `None` if the date is invalid.
    #[must_use]
    pub fn unix_s(self) -> Option<u64> {
        let in_range = self.year >= 1970
            && (1..=12).contains(&self.month)
            && (1..=31).contains(&self.day)
            && self.hour < 24
            && self.minute < 60
            && self.second < 61;
        if !in_range {
            return None;
        }
        // If years begin in March, the leap day is at their end.
        let (year, month) = if self.month > 2 {
            (self.year, self.month - 3)
        } else {
            (self.year - 1, self.month + 9)
        };
        let days =
            year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + self.day
                - 1
                - 719_468;
        Some(
            u64::from(days) * 86_400 + u64::from(self.hour * 3600 + self.minute * 60 + self.second),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_conversion_error_is_small() {
        for khz in [1_000, 2_399_987, 5_000_000] {
            let rate = TickRate::new(khz);
            let day_us = 86_400_000_000;
            assert!(
                day_us - rate.us(rate.ticks(day_us)) < day_us / 100_000,
                "{khz}"
            );
        }
        assert_eq!(TickRate::new(0).us(3), 3000);
    }

    #[test]
    fn clocks_of_two_processors_agree_after_synchronization() {
        // The counters are synchronized.
        assert_eq!(synchronized_start(1_050, 1_000, 400, 100), 400);
        // The second counter was reset, or is far ahead; 600 ticks have passed on the first clock.
        assert_eq!(1_000 - synchronized_start(1_000, 5_600, 5_000, 100), 600);
        assert_eq!(
            9_000_000 - synchronized_start(9_000_000, 1_000, 400, 100),
            600
        );
        // Fewer ticks have passed on the second processor than on the first, so the start is below 0.
        let start = synchronized_start(10, 5_600, 5_000, 100);
        assert_eq!(10_u64.wrapping_sub(start), 600);
    }

    #[test]
    fn dates_are_converted_to_unix_time() {
        let date = |year, month, day| UtcDate {
            year,
            month,
            day,
            hour: 23,
            minute: 59,
            second: 59,
        };
        assert_eq!(date(1970, 1, 1).unix_s(), Some(86_399));
        assert_eq!(date(2000, 2, 29).unix_s(), Some(951_868_799));
        assert_eq!(date(2026, 11, 23).unix_s(), Some(1_795_478_399));
        assert_eq!(date(2026, 13, 1).unix_s(), None);
        assert_eq!(date(0, 1, 1).unix_s(), None);
    }
}
