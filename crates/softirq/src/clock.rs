//! The monotonic clock that the eBPF programs and the daemon share.

/// CLOCK_MONOTONIC, in nanoseconds.
#[must_use]
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // Neither number is negative: the clock starts at boot.
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// Units of 2^30 ns from `last_seen` until now, computed like `units_since` in `bpf/connections.h`. An entry written
/// after `now_ns` was read may already carry the next unit; this difference of -1 counts as 0.
#[must_use]
pub(crate) fn units_since(now_ns: u64, last_seen: u16) -> u16 {
    // Truncated to 16 bits: the programs' units wrap in the same way.
    let units = ((now_ns >> 30) as u16).wrapping_sub(last_seen);
    if units == u16::MAX { 0 } else { units }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_since_counts_the_next_unit_as_zero_and_wraps() {
        let now_ns = 7 << 30;
        assert_eq!(units_since(now_ns, 4), 3);
        assert_eq!(units_since(now_ns, 8), 0);
        assert_eq!(units_since(now_ns, 9), 0xfffe, "that is long ago");
        assert_eq!(units_since(0x1_0001 << 30, 0xffff), 2, "units wrap");
    }
}
