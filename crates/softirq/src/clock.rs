//! The clock that the programs use.

/// CLOCK_MONOTONIC, in nanoseconds.
#[must_use]
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // Neither is negative: the clock begins at boot.
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// Units of `last_seen`, 2^30 ns each, from then to now, as `units_since` in `bpf/connections.h`: an entry that is read
/// after the clock may already have the next unit, which counts as 0.
#[must_use]
pub(crate) fn units_since(now_ns: u64, last_seen: u16) -> u16 {
    // Truncated: units wrap as those of the programs do.
    let units = ((now_ns >> 30) as u16).wrapping_sub(last_seen);
    if units == u16::MAX { 0 } else { units }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ahead_is_new() {
        let now_ns = 7 << 30;
        assert_eq!(units_since(now_ns, 4), 3);
        assert_eq!(units_since(now_ns, 8), 0);
        assert_eq!(units_since(now_ns, 9), 0xfffe, "that is long ago");
        assert_eq!(units_since(0x1_0001 << 30, 0xffff), 2, "units wrap");
    }
}
