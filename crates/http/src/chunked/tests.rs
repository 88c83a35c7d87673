//! Tests the decoder through [`BodyReader`]. Each case is decoded in one piece, and in pieces of several lengths; the
//! results must be equal.

use alloc::string::String;
use alloc::vec::Vec;

use crate::body::BodyFraming;
use crate::body::BodyReader;
use crate::limits::RequestLimits;
use crate::refusal::RequestRefusal;

/// The decoded body and the bytes left over, or the refusal. `None`: the body is incomplete.
type Outcome = Result<Option<(Vec<u8>, Vec<u8>)>, RequestRefusal>;

fn decode_in(input: &[u8], piece: usize, limits: &RequestLimits) -> Outcome {
    let mut body = BodyReader::new(BodyFraming::Chunked, limits)?;
    let mut data = Vec::new();
    let mut at = 0;
    let mut end = 0;
    while end < input.len() {
        end = (end + piece).min(input.len());
        loop {
            let fed = body.feed(&input[at..end])?;
            data.extend_from_slice(fed.data);
            at += fed.consumed;
            if fed.done {
                assert!(body.is_done());
                return Ok(Some((data, input[at..].to_vec())));
            }
            if fed.consumed == 0 {
                break;
            }
        }
    }
    Ok(None)
}

fn decode_with(input: &[u8], limits: &RequestLimits) -> Outcome {
    let whole = decode_in(input, input.len().max(1), limits);
    // The decoder's state must survive a split at any byte.
    for piece in [1, 2, 3, 7] {
        assert_eq!(decode_in(input, piece, limits), whole, "pieces of {piece}");
    }
    whole
}

fn decode(input: &str) -> Outcome {
    decode_with(input.as_bytes(), &RequestLimits::default())
}

#[track_caller]
fn assert_body(input: &str, body: &str, rest: &str) {
    assert_eq!(
        decode(input),
        Ok(Some((body.into(), rest.into()))),
        "{input:?}"
    );
}

#[track_caller]
fn assert_refused(input: &str, refusal: RequestRefusal) {
    assert_eq!(decode(input), Err(refusal), "{input:?}");
}

#[test]
fn chunked_body_ends_after_the_last_chunk() {
    // Bytes after the last chunk belong to the next request.
    assert_body("0\r\n\r\n", "", "");
    assert_body("0\r\n\r\nGET / HTTP/1.1\r\n", "", "GET / HTTP/1.1\r\n");
    assert_body("5\r\nhello\r\n0\r\n\r\n", "hello", "");
    assert_body(
        "5\r\nhello\r\n6\r\n world\r\n000\r\n\r\nX",
        "hello world",
        "X",
    );
    assert_body(
        "a\r\n0123456789\r\n0A\r\nabcdefghij\r\n0\r\n\r\n",
        "0123456789abcdefghij",
        "",
    );
    assert_body("4\r\n\r\n\r\n\r\n0\r\n\r\n", "\r\n\r\n", "");
    assert_body("0000000000000001\r\nx\r\n0\r\n\r\n", "x", "");
}

#[test]
fn chunk_extensions_are_ignored() {
    // RFC 9112 §7.1.1: a recipient must ignore unknown extensions.
    assert_body("1;a\r\nx\r\n0;b=c;d\r\n\r\n", "x", "");
    assert_body("1 ; a = \"q\"\r\nx\r\n0\r\n\r\n", "x", "");
    assert_body("1;a=\"1\\\"; \\\\\"\r\nx\r\n0\r\n\r\n", "x", "");
    assert_body("1\t;\ta=b ;c\r\nx\r\n0;a=\"é\"\t; b\r\n\r\n", "x", "");
}

#[test]
fn trailers_are_validated() {
    // A lenient decoder could find a field, or the end of the section, elsewhere.
    assert_body("0\r\nA: b\r\nContent-Length:\r\n\r\nX", "", "X");
    assert_refused("0\r\nA b\r\n\r\n", RequestRefusal::TrailerInvalid);
    assert_refused("0\r\nA : b\r\n\r\n", RequestRefusal::TrailerInvalid);
    assert_refused("0\r\n: b\r\n\r\n", RequestRefusal::TrailerInvalid);
    assert_refused("0\r\n A: b\r\n\r\n", RequestRefusal::TrailerInvalid);
    assert_refused("0\r\nA: b\n\r\n", RequestRefusal::TrailerInvalid);
    assert_refused("0\r\nA: b\rc\r\n\r\n", RequestRefusal::TrailerInvalid);
    assert_refused("0\r\nA: \0\r\n\r\n", RequestRefusal::TrailerInvalid);
    assert_refused("0\r\nA\r\n\r\n", RequestRefusal::TrailerInvalid);
    assert_refused("0\r\n\n", RequestRefusal::TrailerInvalid);
    assert_refused("0\r\n\rX", RequestRefusal::TrailerInvalid);
}

#[test]
fn invalid_chunk_sizes_are_refused() {
    // Common number parsers accept signs, prefixes and separators; overflows would wrap to small sizes.
    for size in [
        "",
        " 1",
        "-1",
        "+1",
        "0x1",
        "g",
        "1_0",
        "1,1",
        "1\n",
        "1\r1",
        "1\0",
        "é",
        ";a",
        "\r",
        // Seventeen digits.
        "00000000000000000",
        // 2^64 would wrap to 0, the last chunk.
        "10000000000000000",
        "ffffffffffffffff1",
    ] {
        let refused = decode(&(String::from(size) + "\r\nx\r\n0\r\n\r\n"));
        assert_eq!(refused, Err(RequestRefusal::ChunkSize), "{size:?}");
    }
    assert_refused("1\nx\r\n0\r\n\r\n", RequestRefusal::ChunkSize);
}

#[test]
fn invalid_chunk_extensions_are_refused() {
    assert_refused("1;a\nx\r\n0\r\n\r\n", RequestRefusal::ChunkExtension);
    assert_refused("1;a\rx\r\n0\r\n\r\n", RequestRefusal::ChunkSize);
    assert_refused("1;a=\"\r\nx\r\n0\r\n\r\n", RequestRefusal::ChunkExtension);
    assert_refused("1;a=\"\\\r\n", RequestRefusal::ChunkExtension);
    assert_refused("1;\x01\r\n", RequestRefusal::ChunkExtension);
    assert_refused("1;\0\r\n", RequestRefusal::ChunkExtension);
    // Another decoder may interpret syntax outside the grammar differently.
    for extension in [
        ";",
        "; ",
        ";;a",
        ";=b",
        ";a=",
        ";a= ",
        ";a;",
        ";bad[=x",
        ";a=b[",
        ";a=b=c",
        ";a=\"b\"c",
        ";a b",
        ";a ",
        ";a=b ",
        ";é",
        ";a=\"b\\\x01\"",
        " a",
        " ",
        "\t",
        " 1",
    ] {
        let refused = decode(&(String::from("1") + extension + "\r\nx\r\n0\r\n\r\n"));
        assert_eq!(
            refused,
            Err(RequestRefusal::ChunkExtension),
            "{extension:?}"
        );
    }
}

#[test]
fn chunk_data_must_end_with_crlf() {
    // A decoder that skips to the next line would see other chunks.
    assert_refused("1\r\nxy\r\n0\r\n\r\n", RequestRefusal::ChunkEnd);
    assert_refused("1\r\nx\n0\r\n\r\n", RequestRefusal::ChunkEnd);
    assert_refused("1\r\nx\ry0\r\n\r\n", RequestRefusal::ChunkEnd);
    assert_refused("3\r\nx\r\n0\r\n\r\n", RequestRefusal::ChunkEnd);
}

#[test]
fn truncated_body_is_incomplete() {
    // RFC 9112 §8: a body without its last chunk is incomplete.
    let whole = "5;a=\"b\"\r\nhello\r\n0\r\nA: b\r\n\r\n";
    for end in 0..whole.len() {
        assert_eq!(decode(&whole[..end]), Ok(None), "{end}");
    }
}

#[test]
fn body_limit_is_inclusive() {
    let limits = RequestLimits {
        body_len_max: 6,
        ..RequestLimits::default()
    };
    let six = decode_with(b"3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n", &limits);
    assert_eq!(six, Ok(Some((b"abcdef".into(), Vec::new()))));
    let seven = decode_with(b"3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n", &limits);
    assert_eq!(seven, Err(RequestRefusal::BodyTooLarge));
    let huge = decode_with(b"1\r\na\r\nffffffffffffffff\r\nb", &limits);
    assert_eq!(huge, Err(RequestRefusal::BodyTooLarge));
}

#[test]
fn extension_length_of_each_chunk_is_limited() {
    // Otherwise a client could send extensions forever without reaching the limit of the body.
    let limits = RequestLimits {
        chunk_extension_len_max: 3,
        ..RequestLimits::default()
    };
    let each = decode_with(b"1;ab\r\nx\r\n1 ;c\r\ny\r\n0;de\r\n\r\n", &limits);
    assert_eq!(each, Ok(Some((b"xy".into(), Vec::new()))));
    for long in ["1;abc\r\n", "1   ;\r\n", "1;a=b\r\n"] {
        let refused = decode_with(long.as_bytes(), &limits);
        assert_eq!(
            refused,
            Err(RequestRefusal::ChunkExtensionTooLong),
            "{long:?}"
        );
    }
}

#[test]
fn trailer_section_length_is_limited() {
    // Trailers are buffered until the section is complete.
    let limits = RequestLimits {
        trailers_len_max: 6,
        ..RequestLimits::default()
    };
    let fits = decode_with(b"0\r\nA: b\r\n\r\n", &limits);
    assert_eq!(fits, Ok(Some((Vec::new(), Vec::new()))));
    let long = decode_with(b"0\r\nA: bc\r\n\r\n", &limits);
    assert_eq!(long, Err(RequestRefusal::TrailersTooLarge));
}
