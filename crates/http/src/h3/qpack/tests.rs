//! Decodes the example of RFC 9204 appendix B, invalid sections and instructions, and the output of the encoder.

use alloc::string::String;
use alloc::vec::Vec;

use super::probe::SectionProbe;
use super::*;
use crate::field_coding::test_text::{bytes, fields_text};
use crate::fields::{FieldName, StandardHeader};
use crate::status::StatusCode;

fn decoded(probe: &mut SectionProbe, section: &str) -> Result<Option<String>, QpackError> {
    let fields = probe.decode(&bytes(section))?;
    Ok(fields.map(|fields| fields_text(&fields)))
}

fn known(text: &str) -> Result<Option<String>, QpackError> {
    Ok(Some(String::from(text)))
}

/// The instructions of RFC 9204 appendix B.
const INSERTS: &str = "3fbd01 c00f 7777772e6578616d706c652e636f6d c10c 2f73616d706c652f70617468";
const CUSTOM: &str = "4a 637573746f6d2d6b6579 0c 637573746f6d2d76616c7565";
const CUSTOM_2: &str = "810d 637573746f6d2d76616c756532";

#[test]
fn rfc9204_example() {
    let mut probe = SectionProbe::new(220);
    let section = "0000 510b 2f696e6465782e68746d6c";
    assert_eq!(decoded(&mut probe, section), known(":path=/index.html"));
    // B.2: the section arrives before its entries.
    let section = "0381 10 11";
    assert_eq!(decoded(&mut probe, section), Ok(None));
    assert_eq!(probe.instructions(&bytes(INSERTS)), Ok(bytes("02")));
    let fields = ":authority=www.example.com :path=/sample/path";
    assert_eq!(decoded(&mut probe, section), known(fields));
    assert_eq!(probe.instructions(&bytes(CUSTOM)), Ok(bytes("01")));
    // B.4: a duplicate.
    assert_eq!(probe.instructions(&bytes("02")), Ok(bytes("01")));
    let fields = ":authority=www.example.com :path=/ custom-key=custom-value";
    assert_eq!(decoded(&mut probe, "0500 80 c1 81"), known(fields));
    // B.5: the first entry is evicted.
    assert_eq!(probe.instructions(&bytes(CUSTOM_2)), Ok(bytes("01")));
    let evicted = decoded(&mut probe, "0381 10 11");
    assert_eq!(evicted, Err(QpackError::Index));
    assert_eq!(
        decoded(&mut probe, "0600 80"),
        known("custom-key=custom-value2")
    );
}

/// Requests as ls-qpack encodes them with a table of 256 bytes: per line `E` and a part of the encoder stream, `S` and a
/// section, or `F` and the fields of the section before it.
const LSQPACK: &str = include_str!("lsqpack.txt");

#[test]
fn sections_of_another_encoder_are_decoded() {
    let mut probe = SectionProbe::new(256);
    let mut fields = String::new();
    for line in LSQPACK.lines() {
        match line.split_at(2) {
            ("E ", part) => assert!(probe.instructions(&bytes(part)).is_ok(), "{line}"),
            ("S ", section) => {
                let decoded = decoded(&mut probe, section).expect("a valid section");
                fields = decoded.expect("its entries have arrived");
            }
            (_, wanted) => assert_eq!(fields, wanted),
        }
    }
}

#[test]
fn acknowledgements_count_each_insertion_once() {
    let mut decoder = QpackDecoder::new(220);
    let mut out = Vec::new();
    assert_eq!(decoder.receive_instructions(&bytes(INSERTS)), Ok(()));
    decoder.put_acknowledgement(4, 2, &mut out);
    decoder.put_increment(&mut out);
    assert_eq!(out, [0x84], "B.2");
    assert_eq!(decoder.receive_instructions(&bytes(CUSTOM)), Ok(()));
    decoder.put_increment(&mut out);
    decoder.put_acknowledgement(8, 0, &mut out);
    decoder.put_cancellation(8, &mut out);
    assert_eq!(out, [0x84, 0x01, 0x48], "B.3 and B.4");
    out.clear();
    QpackDecoder::new(0).put_cancellation(8, &mut out);
    assert_eq!(out, []);
}

#[test]
fn instructions_may_be_split_at_any_byte() {
    let all = [INSERTS, CUSTOM, "02", CUSTOM_2].map(bytes).concat();
    for len in 1..all.len() {
        let mut probe = SectionProbe::new(220);
        for part in all.chunks(len) {
            assert!(probe.instructions(part).is_ok());
        }
        let fields = "custom-key=custom-value2 :authority=www.example.com";
        assert_eq!(decoded(&mut probe, "0600 80 81"), known(fields), "{len}");
    }
}

#[test]
fn invalid_sections_are_refused() {
    for (section, fault) in [
        ("", QpackError::Integer),
        ("00", QpackError::Integer),
        ("0000 ff", QpackError::Integer),
        // Static entries are numbered from 0 to 98 (RFC 9204 §3.1).
        ("0000 ff24", QpackError::Index),
        ("0000 5f54 00", QpackError::Index),
        // A reference beyond the required insert count (RFC 9204 §2.2.1).
        ("0000 80", QpackError::Index),
        ("0000 10", QpackError::Index),
        ("0000 40 00", QpackError::Index),
        ("0000 00 00", QpackError::Index),
        ("0200 81", QpackError::Index),
        ("0201 80", QpackError::Index),
        // A count above twice the possible entries (RFC 9204 §4.5.1.1), and a base below 0 (§4.5.1.2).
        ("0e00 80", QpackError::InsertCount),
        ("0381 80", QpackError::Index),
        ("0384 80", QpackError::InsertCount),
        ("0080", QpackError::InsertCount),
        ("0000 51 05 61", QpackError::Truncated),
        ("0000 27 00 61", QpackError::Truncated),
        ("0000 51 82 ffff", QpackError::Huffman),
        ("0000 2a ffff 00", QpackError::Huffman),
    ] {
        let mut probe = SectionProbe::new(220);
        assert!(probe.instructions(&bytes(INSERTS)).is_ok());
        assert_eq!(decoded(&mut probe, section), Err(fault), "{section}");
    }
    let without_table = decoded(&mut SectionProbe::new(0), "0200 80");
    assert_eq!(without_table, Err(QpackError::InsertCount));
}

#[test]
fn invalid_instructions_are_refused() {
    for (capacity, instructions, fault) in [
        // RFC 9204 §4.3.1: a capacity of 221 of at most 220 bytes.
        (220, "3fbe01", QpackError::Capacity),
        (0, "21", QpackError::Capacity),
        // Before the capacity is set, no entry fits (RFC 9204 §3.2.3).
        (220, "c000", QpackError::EntryTooLarge),
        (220, "3f01 41 61 0161", QpackError::EntryTooLarge),
        (220, "3f01 41 61 7f7f", QpackError::EntryTooLarge),
        (220, "3fbd01 ff24 0161", QpackError::Index),
        (220, "3fbd01 80 0161", QpackError::Index),
        (220, "3fbd01 00", QpackError::Index),
        (220, "3fbd01 1fffffff7f", QpackError::Index),
        (220, "3fffffffffffffffffff7f", QpackError::Integer),
        (220, "3fbd01 c0 82ffff", QpackError::Huffman),
        (220, "3fbd01 62 ffff 00", QpackError::Huffman),
    ] {
        let mut probe = SectionProbe::new(capacity);
        let answer = probe.instructions(&bytes(instructions));
        assert_eq!(answer, Err(fault), "{instructions}");
    }
}

#[test]
fn required_insert_counts_wrap() {
    // RFC 9204 §4.5.1.1: at most 4 entries, so the count is sent modulo 8.
    let mut probe = SectionProbe::new(128);
    assert!(probe.instructions(&bytes("3f61")).is_ok());
    for count in 1..100_u8 {
        let value = [b'a' + count % 26];
        let insert = [&[0x41, b'n', 1], &value[..]].concat();
        assert_eq!(probe.instructions(&insert), Ok(alloc::vec![1]));
        let section = [count % 8 + 1, 0, 0x80];
        let fields = probe.decode(&section).map(|it| it.unwrap_or_default());
        assert_eq!(fields, Ok(alloc::vec![(b"n".to_vec(), value.to_vec())]));
        // The next entry has not arrived.
        let ahead = [(count + 1) % 8 + 1, 0, 0x80];
        assert_eq!(probe.decode(&ahead), Ok(None));
    }
}

#[test]
fn decoder_stream_accepts_cancellations_only() {
    assert_eq!(check_decoder_stream(&bytes("48 7f01 7f")), Ok(3));
    for instruction in ["84", "00", "01", "3f01", "48 01"] {
        let fault = Err(QpackError::Acknowledgement);
        assert_eq!(check_decoder_stream(&bytes(instruction)), fault);
    }
    let large = check_decoder_stream(&bytes("7fffffffffffffffffff7f"));
    assert_eq!(large, Err(QpackError::Integer));
}

#[test]
fn encoded_sections_decode_to_the_same_fields() {
    let mut out = Vec::new();
    let date = b"Sun, 06 Nov 1994 08:49:37 GMT";
    for code in (100..600).filter_map(StatusCode::new) {
        out.clear();
        put_prefix(&mut out);
        put_status(code, &mut out);
        put_date(date, &mut out);
        assert_eq!(&out[date_offset(code)..][..29], date, "{code:?}");
        put_field(
            FieldName::Known(StandardHeader::Server),
            b"lowroad",
            &mut out,
        );
        put_field_short(FieldName::Other("X-Own"), b"www.example.com", &mut out);
        put_field_short(
            FieldName::Known(StandardHeader::ContentEncoding),
            b"gzip",
            &mut out,
        );
        put_field_u64(StandardHeader::ContentLength, 1024, &mut out);
        let wanted = alloc::format!(
            ":status={} date=Sun, 06 Nov 1994 08:49:37 GMT server=lowroad x-own=www.example.com \
             content-encoding=gzip content-length=1024",
            code.code()
        );
        let fields = SectionProbe::new(0).decode(&out);
        assert_eq!(
            fields.map(|it| it.map(|it| fields_text(&it))),
            Ok(Some(wanted))
        );
    }
}

#[test]
fn standard_names_are_encoded_in_lower_case() {
    // RFC 9114 §4.2: upper case makes a message malformed.
    for name in StandardHeader::ALL {
        let mut out = Vec::new();
        put_prefix(&mut out);
        put_field(FieldName::Known(*name), b"v", &mut out);
        let wanted = name.as_str().to_ascii_lowercase();
        let fields = SectionProbe::new(0).decode(&out);
        assert_eq!(
            fields,
            Ok(Some(alloc::vec![(wanted.into_bytes(), b"v".to_vec())]))
        );
    }
}

#[test]
fn frequent_values_of_stored_responses_take_one_or_two_bytes() {
    let known = FieldName::Known;
    for (name, value, section) in [
        (StandardHeader::ContentType, &b"text/css"[..], "f3"),
        (
            StandardHeader::ContentType,
            b"text/html; charset=utf-8",
            "f4",
        ),
        (StandardHeader::Vary, b"accept-encoding", "fb"),
        (StandardHeader::AcceptRanges, b"bytes", "e0"),
        (StandardHeader::XContentTypeOptions, b"nosniff", "fd"),
    ] {
        let mut out = Vec::new();
        put_field_short(known(name), value, &mut out);
        assert_eq!(out, bytes(section), "{name:?}");
    }
}
