//! The clocks for helper threads and the access log. For all else, workers use their driver's clock.
//!
//! The clocks are read through the C library, which also works without the kernel's vDSO (valgrind).

use std::sync::OnceLock;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

static REPLACEMENT: OnceLock<fn() -> Option<u64>> = OnceLock::new();

/// The monotonic time in ms, from the same clock as the workers'.
pub fn now_ms() -> u64 {
    let replaced = REPLACEMENT.get().and_then(|replacement| replacement());
    replaced.unwrap_or_else(coarse_ms)
}

/// For simulation: makes [`now_ms`] return the time of `replacement` whenever that is `Some`. Only the first call has
/// an effect.
pub fn replace(replacement: fn() -> Option<u64>) {
    let _ = REPLACEMENT.set(replacement);
}

fn coarse_ms() -> u64 {
    read(ClockId::CLOCK_MONOTONIC_COARSE).as_millis() as u64 // far below 2^64
}

/// The monotonic time in µs, not coarse.
pub fn monotonic_us() -> u64 {
    let time = read(ClockId::CLOCK_MONOTONIC);
    // Not `as_micros`: its 128 bits cost more, and this clock is read twice a logged request.
    time.as_secs() * 1_000_000 + u64::from(time.subsec_micros())
}

/// Seconds since 1970.
pub fn unix_s() -> u64 {
    unix_ms() / 1000
}

/// Milliseconds since 1970, not coarse.
pub fn unix_ms() -> u64 {
    read(ClockId::CLOCK_REALTIME).as_millis() as u64 // far below 2^64
}

/// The wall-clock time minus the monotonic time, ms. It is constant unless the clock is set, so that a time can be
/// converted to the other clock and back without a change.
pub fn wall_clock_offset_ms() -> i64 {
    const TRIES: u32 = 8;
    const ADJACENT_READS_NS: i64 = 100_000;
    let mut best = (i64::MAX, 0);
    for _ in 0..TRIES {
        // These clocks are not coarse: the coarse clock of [`now_ms`] lags by up to a tick.
        let (before_ns, calendar_ns, after_ns) = (monotonic_ns(), unix_ns(), monotonic_ns());
        // The thread may be preempted between two readings; the readings with the shortest interval are the most exact.
        best = best.min((after_ns - before_ns, calendar_ns - before_ns));
        if best.0 < ADJACENT_READS_NS {
            break;
        }
    }
    best.1.div_euclid(1_000_000)
}

fn monotonic_ns() -> i64 {
    read(ClockId::CLOCK_MONOTONIC).as_nanos() as i64 // until 2262
}

/// Nanoseconds since 1970, as in file timestamps. Not earlier than the timestamp of a change that was just made.
pub fn unix_ns() -> i64 {
    read(ClockId::CLOCK_REALTIME).as_nanos() as i64 // until 2262
}

fn read(clock: ClockId) -> Duration {
    // The call fails only for clocks that do not exist, and Linux has these.
    clock_gettime(clock).map_or(Duration::ZERO, Duration::from)
}
