//! Decodes field blocks: the examples of RFC 7541 appendix C, and invalid blocks.

use alloc::vec::Vec;

use super::probe::DecoderProbe;
use super::*;
use crate::field_coding::test_text::{bytes, fields_text};
use crate::fields::{FieldName, StandardHeader};
use crate::status::StatusCode;

#[test]
fn rfc7541_request_examples() {
    // Appendices C.3 and C.4.
    for blocks in [
        [
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ],
        [
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ],
    ] {
        let mut probe = DecoderProbe::new(4096);
        let heard = blocks.map(|block| fields_text(&probe.decode(&bytes(block)).expect("a block")));
        let wanted = [
            ":method=GET :scheme=http :path=/ :authority=www.example.com",
            ":method=GET :scheme=http :path=/ :authority=www.example.com cache-control=no-cache",
            ":method=GET :scheme=https :path=/index.html :authority=www.example.com custom-key=custom-value",
        ];
        assert_eq!(heard, wanted);
    }
}

#[test]
fn rfc7541_response_examples_with_eviction() {
    // Appendix C.6, with a table of 256 bytes.
    let mut probe = DecoderProbe::new(256);
    let blocks = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d \
         29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d \
         d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ];
    let heard = blocks.map(|block| fields_text(&probe.decode(&bytes(block)).expect("a block")));
    let date = "date=Mon, 21 Oct 2013 20:13:21 GMT location=https://www.example.com";
    assert_eq!(
        heard[0],
        alloc::format!(":status=302 cache-control=private {date}")
    );
    assert_eq!(
        heard[1],
        alloc::format!(":status=307 cache-control=private {date}")
    );
    assert!(
        heard[2].ends_with("set-cookie=foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1")
    );
    assert_eq!(
        probe.decode(&bytes("c1")),
        Err(HpackError::Index),
        "evicted"
    );
}

#[test]
fn invalid_blocks_are_refused() {
    for (block, fault) in [
        ("80", HpackError::Index),
        ("be", HpackError::Index),
        // Zero padding longer than an accepted integer.
        ("ff 80 80 80 80 80 00", HpackError::Integer),
        ("ff", HpackError::Integer),
        ("40", HpackError::Integer),
        ("40 05 61", HpackError::Truncated),
        ("00 01 61 82 ff ff", HpackError::Huffman),
        ("00 01 61 84 ff ff ff ff", HpackError::Huffman),
        ("7e 00", HpackError::Index),
        // A size update after a field.
        ("82 20", HpackError::SizeUpdate),
        // 4,097 bytes, one more than was announced.
        ("3f e2 1f", HpackError::SizeUpdate),
    ] {
        let heard = DecoderProbe::new(4096).decode(&bytes(block));
        assert_eq!(heard, Err(fault), "{block}");
    }
    let sizes = DecoderProbe::new(4096).decode(&bytes("20 3f e1 1f 82"));
    assert_eq!(
        sizes.map(|it| fields_text(&it)).as_deref(),
        Ok(":method=GET")
    );
}

#[test]
fn encoded_blocks_decode_to_the_same_fields() {
    let mut out = Vec::new();
    let date = b"Sun, 06 Nov 1994 08:49:37 GMT";
    for status in [StatusCode::OK, StatusCode::NOT_FOUND, StatusCode::CONFLICT] {
        out.clear();
        put_status(status, &mut out);
        assert_eq!(out.len(), status_len(status));
        put_date(date, &mut out);
        assert_eq!(&out[date_offset(status)..][..29], date);
        put_field(
            FieldName::Known(StandardHeader::Server),
            b"lowroad",
            &mut out,
        );
        put_field_short(FieldName::Other("X-Own"), b"www.example.com", &mut out);
        put_field_u64(StandardHeader::ContentLength, 1024, &mut out);
        let heard = DecoderProbe::new(0).decode(&out).map(|it| fields_text(&it));
        let wanted = alloc::format!(
            ":status={} date=Sun, 06 Nov 1994 08:49:37 GMT server=lowroad x-own=www.example.com content-length=1024",
            status.code()
        );
        assert_eq!(heard, Ok(wanted));
    }
}

#[test]
fn standard_names_are_encoded_in_lower_case() {
    // RFC 9113 §8.2: upper case makes a message malformed.
    for known in StandardHeader::ALL {
        let mut out = Vec::new();
        put_field(FieldName::Known(*known), b"v", &mut out);
        let heard = DecoderProbe::new(0).decode(&out).expect("a field");
        let wanted = known.as_str().to_ascii_lowercase();
        assert_eq!(heard, [(wanted.into_bytes(), b"v".to_vec())]);
    }
}
