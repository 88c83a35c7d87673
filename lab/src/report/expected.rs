//! Paper `003`, table 1: the expected throughput of a mix of dynamic and static requests.
//!
//! The paper prints the formula without the bytes of the content. With them, and with 58 bytes of Ethernet, IP and TCP
//! headers for each packet (the segments of the response and three acknowledgements), the formula gives all eight rows
//! of the table, as the test shows.

/// Bytes of Ethernet, IP and TCP headers of a packet.
const HEADERS: f64 = 58.0;
/// Bytes in a segment.
const SEGMENT: f64 = 1460.0;
/// Length of the dynamic page (211 bytes) with its head (151 bytes).
const DYNAMIC: f64 = 362.0;
/// Length of the static file.
const STATIC: f64 = 3593.0;

/// The table's rows: dynamic and static requests a second, Mbit/s.
pub const TABLE: [(f64, f64, f64); 8] = [
    (400.0, 1000.0, 33.4),
    (300.0, 1000.0, 33.0),
    (200.0, 1000.0, 32.5),
    (100.0, 1000.0, 32.0),
    (600.0, 0.0, 2.9),
    (800.0, 0.0, 3.8),
    (1000.0, 0.0, 4.8),
    (0.0, 6000.0, 189.2),
];

/// Bits a second on the wire.
#[must_use]
pub fn bits_per_s(dynamic_per_s: f64, static_per_s: f64) -> f64 {
    let wire = |bytes: f64| bytes + HEADERS * ((bytes / SEGMENT).ceil() + 3.0);
    8.0 * (dynamic_per_s * wire(DYNAMIC) + static_per_s * wire(STATIC))
}

/// The bits a second without packet headers, as a load generator counts them.
#[must_use]
pub fn content_bits_per_s(dynamic_per_s: f64, static_per_s: f64) -> f64 {
    8.0 * (dynamic_per_s * DYNAMIC + static_per_s * STATIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formula_reproduces_the_papers_table() {
        for (dynamic, fixed, mbit_per_s) in TABLE {
            let computed = bits_per_s(dynamic, fixed) / 1e6;
            assert!(
                (computed - mbit_per_s).abs() < 0.06,
                "{dynamic} {fixed}: {computed}"
            );
        }
    }
}
