//! Fuzz target: the Range field. The input is the length of the representation in decimal digits, a line feed, and the
//! value of the field.
//!
//! Checks beside "no panic": selected ranges exist, are not empty and not more than the whole; a single range agrees
//! with a naive parser.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lowroad_http::range::{self, ByteRange, RANGES_MAX, RangesSpecifier};

fuzz_target!(|input: &[u8]| {
    let (len, value) = parts(input);
    let ranges = range::evaluate(value, len);
    match ranges {
        RangesSpecifier::Whole | RangesSpecifier::Unsatisfiable => {}
        RangesSpecifier::One(one) => check_range(&one, len),
        RangesSpecifier::Many(set) => {
            assert!((2..=RANGES_MAX).contains(&set.iter().count()));
            set.iter().for_each(|range| check_range(range, len));
            // Disjoint ranges, so they can't add up to more than the whole.
            let mut sorted: Vec<ByteRange> = set.iter().copied().collect();
            sorted.sort_by_key(|range| range.start);
            assert!(sorted.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }
    if let Some(expected) = naive(value, len) {
        assert_eq!(ranges, expected);
    }
});

/// The length, and the value. Without a length: the number of input bytes.
fn parts(input: &[u8]) -> (u64, &[u8]) {
    let split = input.iter().position(|byte| *byte == b'\n').and_then(|at| {
        let len = std::str::from_utf8(&input[..at]).ok()?.parse().ok()?;
        Some((len, &input[at + 1..]))
    });
    split.unwrap_or((input.len() as u64, input))
}

fn check_range(range: &ByteRange, len: u64) {
    assert!(range.start < range.end && range.end <= len);
}

/// The result for one range of plain digits (RFC 9110 §14.1.2); None for any other value.
fn naive(value: &[u8], len: u64) -> Option<RangesSpecifier> {
    let (first, last) = std::str::from_utf8(value)
        .ok()?
        .strip_prefix("bytes=")?
        .split_once('-')?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(first) || !digits(last) || (first.is_empty() && last.is_empty()) {
        return None;
    }
    if len == 0 {
        // Content-Range can't express "no bytes": the whole is sent.
        return Some(RangesSpecifier::Whole);
    }
    // Numbers beyond u64 are not checked by this parser.
    let number = |text: &str| text.parse::<u64>();
    let (start, end) = match (first.is_empty(), last.is_empty()) {
        (true, _) => (len.saturating_sub(number(last).ok()?), len),
        (false, true) => (number(first).ok()?, len),
        (false, false) => {
            let (first, last) = (number(first).ok()?, number(last).ok()?);
            if first > last {
                return Some(RangesSpecifier::Whole);
            }
            (first, last.saturating_add(1).min(len))
        }
    };
    Some(if start < end {
        RangesSpecifier::One(ByteRange { start, end })
    } else {
        RangesSpecifier::Unsatisfiable
    })
}
