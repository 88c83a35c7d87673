//! Tables of Range values and lengths, with the expected ranges.

use alloc::string::String;
use alloc::vec::Vec;

use super::*;

/// The ranges as pairs; `None` if the whole is sent, an empty list for 416.
fn ranges(value: &str, len: u64) -> Option<Vec<(u64, u64)>> {
    match evaluate(value.as_bytes(), len) {
        RangesSpecifier::Whole => None,
        RangesSpecifier::Unsatisfiable => Some(Vec::new()),
        RangesSpecifier::One(range) => Some([(range.start, range.end)].into()),
        RangesSpecifier::Many(set) => {
            assert!((2..=RANGES_MAX).contains(&set.iter().len()));
            Some(set.iter().map(|r| (r.start, r.end)).collect())
        }
    }
}

#[track_caller]
fn assert_ranges(value: &str, len: u64, expected: &[(u64, u64)]) {
    assert_eq!(
        ranges(value, len).as_deref(),
        Some(expected),
        "{value} of {len}"
    );
}

#[test]
fn single_range_is_resolved() {
    assert_ranges("bytes=0-0", 100, &[(0, 1)]);
    assert_ranges("bytes=0-99", 100, &[(0, 100)]);
    assert_ranges("bytes=0-100", 100, &[(0, 100)]);
    assert_ranges("bytes=99-", 100, &[(99, 100)]);
    assert_ranges("bytes=0-", 100, &[(0, 100)]);
    assert_ranges("bytes=-1", 100, &[(99, 100)]);
    assert_ranges("bytes=-100", 100, &[(0, 100)]);
    assert_ranges("bytes=-101", 100, &[(0, 100)]);
    assert_ranges("BYTES=10-19", 100, &[(10, 20)]);
    assert_ranges("bytes= 10-19 ,", 100, &[(10, 20)]);
    assert_ranges("bytes=1-18446744073709551615", 100, &[(1, 100)]);
    assert_ranges("bytes=1-99999999999999999999999", 100, &[(1, 100)]);
    assert_ranges("bytes=-99999999999999999999999", 100, &[(0, 100)]);
    assert_ranges("bytes=0-18446744073709551615", u64::MAX, &[(0, u64::MAX)]);
}

#[test]
fn range_beyond_the_end_is_unsatisfiable() {
    // RFC 9110 §14.1.2: a set of ranges is unsatisfiable if none overlaps the representation.
    assert_ranges("bytes=100-", 100, &[]);
    assert_ranges("bytes=100-200", 100, &[]);
    assert_ranges("bytes=-0", 100, &[]);
    assert_ranges("bytes=100-,200-300", 100, &[]);
    assert_ranges("bytes=99999999999999999999999-", 100, &[]);
}

#[test]
fn range_of_an_empty_representation_is_ignored() {
    for value in [
        "bytes=0-",
        "bytes=0-0",
        "bytes=-0",
        "bytes=-5",
        "bytes=7-",
        "bytes=0-,-5",
    ] {
        assert_eq!(ranges(value, 0), None, "{value}");
    }
}

#[test]
fn malformed_ranges_and_unknown_units_are_ignored() {
    // RFC 9110 §14.2: an invalid Range is ignored, not answered with an error.
    for value in [
        "",
        "bytes",
        "bytes=",
        "bytes=,",
        "bytes=-",
        "bytes=--1",
        "bytes=1",
        "bytes=a-b",
        "bytes=1-b",
        // RFC 9110 §14.1.1: an invalid range makes the whole field invalid.
        "bytes=5-4",
        "bytes=1-2-3",
        "bytes=+1-2",
        "bytes=1 -2",
        "bytes=1- 2",
        "bytes =1-2",
        " bytes=1-2",
        // An unknown range unit.
        "lines=1-2",
        "bytes:1-2",
        "bytes=0-1,x",
        "bytes=0-1;2-3",
        "bytes=0x1-2",
        "bytes=0-1, 9-3",
    ] {
        assert_eq!(ranges(value, 100), None, "{value:?}");
    }
}

#[test]
fn multiple_ranges_keep_the_client_order() {
    assert_ranges("bytes=0-9,20-29", 100, &[(0, 10), (20, 30)]);
    assert_ranges(
        "bytes=50-59, 0-9, -10",
        100,
        &[(50, 60), (0, 10), (90, 100)],
    );
    assert_ranges("bytes=0-0,100-,-1", 100, &[(0, 1), (99, 100)]);
    assert_ranges("bytes=200-,5-6", 100, &[(5, 7)]);
}

#[test]
fn overlapping_and_adjacent_ranges_are_coalesced() {
    // RFC 9110 §15.3.7.2: a server may coalesce ranges that overlap or touch.
    assert_ranges("bytes=0-9,10-19", 100, &[(0, 20)]);
    assert_ranges("bytes=10-19,0-9", 100, &[(0, 20)]);
    assert_ranges("bytes=0-9,5-14", 100, &[(0, 15)]);
    assert_ranges("bytes=0-9,11-19", 100, &[(0, 10), (11, 20)]);
    assert_ranges("bytes=10-19,40-49,20-39", 100, &[(10, 50)]);
    assert_ranges(
        "bytes=60-69,10-19,40-49,20-39,0-1",
        100,
        &[(60, 70), (10, 50), (0, 2)],
    );
    assert_ranges("bytes=5-5,5-5", 100, &[(5, 6)]);
}

#[test]
fn abusive_ranges_get_the_whole_representation() {
    // RFC 9110 §17.15.
    assert_eq!(ranges("bytes=0-,0-", 100), None);
    assert_eq!(ranges("bytes=0-99,0-0", 100), None);
    assert_ranges("bytes=0-98,50-50", 100, &[(0, 99)]);
    let many = |n: usize| {
        let specs: Vec<String> = (0..n)
            .map(|i| alloc::format!("{}-{}", i * 10, i * 10))
            .collect();
        ranges(&(String::from("bytes=") + &specs.join(",")), 1000).map(|r| r.len())
    };
    assert_eq!(many(16), Some(16));
    assert_eq!(many(17), None);
}

#[test]
fn coalesced_random_ranges_cover_the_requested_bytes() {
    // Compared with a bitmap of the requested bytes.
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed >> 1).expect("63 bits") % below
    };
    for _ in 0..3000 {
        let len = 40_usize;
        let mut asked = [false; 40];
        let mut value = String::from("bytes=");
        let mut sum = 0;
        for _ in 0..=random(6) {
            let start = random(len);
            let end = (start + 1 + random(8)).min(len);
            sum += end - start;
            asked[start..end].fill(true);
            value += &alloc::format!("{}-{},", start, end - 1);
        }
        let Some(found) = ranges(&value, len as u64) else {
            assert!(sum > len, "{value}");
            continue;
        };
        let mut given = [false; 40];
        for (i, (start, end)) in found.iter().enumerate() {
            (*start..*end).for_each(|b| given[usize::try_from(b).expect("small")] = true);
            let apart = |(s, e): &(u64, u64)| e < start || end < s;
            assert!(found[..i].iter().all(apart), "{value} {found:?}");
        }
        assert_eq!(asked, given, "{value}");
    }
}
