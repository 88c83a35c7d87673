//! Reads limits of a response's bandwidth: `rate` and `after`.

use crate::BandwidthLimit;
use crate::reader::{ConfigSection, ConfigValue};
use crate::value::{self, InvalidValue};

/// The minimum rate, in bytes per second.
const RATE_MIN: u64 = 1024;
/// The maximum rate, in bytes per second.
const RATE_MAX: u64 = 1 << 40;

/// Reads `rate` and `after` of a site or a route.
pub(crate) fn bandwidth(section: &ConfigSection<'_>) -> Option<BandwidthLimit> {
    match section.item("rate") {
        Some(item) => limit(section, &item),
        None => {
            section.only_with("after", "rate");
            None
        }
    }
}

/// Reads a limit; its `after` is in the same section.
pub(crate) fn limit(section: &ConfigSection<'_>, rate: &ConfigValue<'_>) -> Option<BandwidthLimit> {
    // Read before the rate, so that mistakes in both are reported together.
    let after = section.item("after").and_then(|item| item.read(len));
    Some(BandwidthLimit {
        bytes_per_s: rate.read(bytes_per_s)?,
        after: after.unwrap_or(0),
    })
}

/// Whether a text is meant as a bandwidth, not as a number of requests, perhaps without its `/s`.
pub(crate) fn is_bandwidth(text: &str) -> bool {
    text.ends_with("B/s") || text.ends_with('B')
}

/// A bandwidth: `500KB/s`, `1MB/s`.
fn bytes_per_s(text: &str) -> Result<u64, InvalidValue> {
    let rate = text.strip_suffix("B/s").and_then(|it| value::size(it).ok());
    rate.filter(|rate| (RATE_MIN..=RATE_MAX).contains(rate))
        .ok_or(InvalidValue {
            expected: "a bandwidth",
            allowed: "1KB/s to 1024GB/s, such as 500KB/s or 1MB/s (powers of 1024)",
        })
}

fn len(text: &str) -> Result<u64, InvalidValue> {
    value::size(text.strip_suffix('B').unwrap_or(text))
}
