//! Field sections that refer to the dynamic table, and the streams of QPACK. RFC 9204 §2.1, §2.2 and §4.4.

use super::*;
use crate::field_coding::test_text::bytes;

/// A capacity of 220 bytes, and `:authority: www.example.com`, `:path: /sample/path`, of RFC 9204 appendix B.2.
const INSERTS: &str = "3fbd01 c00f 7777772e6578616d706c652e636f6d c10c 2f73616d706c652f70617468";
const REQUEST: &str = "0 Get /sample/path www.example.com [host: www.example.com|]";

/// A GET over https with the two entries.
fn dynamic_get() -> Vec<u8> {
    let settings = H3Settings::default();
    // The count is sent modulo twice the number of possible entries.
    assert_eq!(settings.table_len_max / 32, 128);
    frame_of(kind::HEADERS, &bytes("0381 d1 d7 10 11"))
}

#[test]
fn section_waits_for_its_entries() {
    let mut harness = ServerHarness::open(H3Settings::default());
    assert_eq!(harness.finish(0, &dynamic_get()), "");
    assert!(!harness.server.is_idle());
    // Another stream does not wait.
    assert!(harness.finish(4, &get("/", &[])).starts_with("1 Get"));
    let inserts = bytes(INSERTS);
    let (first, second) = inserts.split_at(inserts.len() - 1);
    assert_eq!(harness.receive(ENCODER, first), "");
    assert_eq!(harness.decoder, [1], "an increment");
    assert_eq!(harness.receive(ENCODER, second), REQUEST);
    assert_eq!(harness.decoder, [1, 1, 0x80], "the section is acknowledged");
}

#[test]
fn trim_keeps_blocked_streams() {
    let mut harness = ServerHarness::open(H3Settings::default());
    assert_eq!(harness.finish(0, &dynamic_get()), "");
    harness.server.trim();
    assert_eq!(harness.receive(ENCODER, &bytes(INSERTS)), REQUEST);
}

#[test]
fn rest_of_a_blocked_stream_stays_with_the_caller() {
    let mut harness = ServerHarness::open(H3Settings::default());
    let rest = [data(b"abc"), data(b"de")].concat();
    let input = [dynamic_get(), rest.clone()].concat();
    assert_eq!(harness.finish(0, &input), "");
    assert_eq!(harness.rests[&0].0, rest);
    let heard = harness.receive(ENCODER, &bytes(INSERTS));
    assert_eq!(
        heard,
        format!("{REQUEST} body None, 0 data abc, 0 data de, 0 end")
    );
}

#[test]
fn blocked_streams_are_bounded_and_can_be_aborted() {
    let settings = H3Settings {
        blocked_streams_max: 2,
        ..H3Settings::default()
    };
    let mut harness = ServerHarness::open(settings);
    for stream_id in [0, 4] {
        assert_eq!(harness.finish(stream_id, &dynamic_get()), "");
    }
    assert_eq!(harness.abort(4), "1 reset REQUEST_CANCELLED");
    assert_eq!(harness.decoder, [0x44]);
    assert_eq!(harness.finish(8, &dynamic_get()), "");
    // RFC 9204 §2.1.2.
    let third = harness.finish(12, &dynamic_get());
    assert_eq!(third, "error QPACK_DECOMPRESSION_FAILED");
}

#[test]
fn trailers_may_refer_to_the_dynamic_table() {
    let mut harness = ServerHarness::open(H3Settings::default());
    harness.receive(ENCODER, &bytes("3fbd01 41 78 01 31"));
    harness.decoder.clear();
    let trailers = frame_of(kind::HEADERS, &bytes("0200 80"));
    let input = [post(&[]), data(b"a"), trailers].concat();
    let heard = harness.finish(0, &input);
    assert_eq!(
        heard,
        "0 Post /p h [host: h|] body None, 0 data a, 0 endx=1"
    );
    assert_eq!(harness.decoder, [0x80]);
}

#[test]
fn insertions_without_requests_are_bounded() {
    // A duplicate has one byte, and copies an entry of any length.
    let mut harness = ServerHarness::open(H3Settings::default());
    harness.receive(ENCODER, &bytes("3fbd01 41 78 01 31"));
    let flood = alloc::vec![0; 20_000];
    assert_eq!(harness.receive(ENCODER, &flood), "error EXCESSIVE_LOAD");
    assert_eq!((harness.counters.ended, harness.counters.floods), (1, 1));
    // Requests excuse them.
    let mut harness = ServerHarness::open(H3Settings::default());
    harness.receive(ENCODER, &bytes("3fbd01 41 78 01 31"));
    for number in 0..1000 {
        assert_eq!(harness.receive(ENCODER, &[0; 20]), "");
        harness.finish(number * 4, &get("/", &[]));
        harness.respond(number as u32, 0);
    }
}

#[test]
fn incomplete_sections_are_bounded() {
    let settings = H3Settings {
        section_len_max: 1000,
        ..H3Settings::default()
    };
    let mut harness = ServerHarness::open(settings);
    let begun = [&[1][..], &integer(1000), &[0; 900]].concat();
    for number in 0..4 {
        assert_eq!(harness.receive(number * 4, &begun), "");
    }
    assert_eq!(harness.receive(16, &begun), "4 reset EXCESSIVE_LOAD");
    assert_eq!(harness.abort(0), "0 reset REQUEST_CANCELLED");
    assert_eq!(harness.receive(20, &begun), "");
    let longer = [&[1][..], &integer(1001)].concat();
    assert_eq!(harness.receive(24, &longer), "6 refused HeadTooLarge");
    // The section is skipped, and its references to the dynamic table are given up.
    assert_eq!(harness.decoder.last(), Some(&(0x40 | 24)), "a cancellation");
    assert_eq!(harness.finish(24, &[0; 1001]), "");
    assert!(!harness.respond(6, 0));
    let output = harness.take_output(6);
    assert_eq!(output, "head :status=200 content-length=0");
}
