//! Fuzz target: chunked bodies. The input is the bytes behind a request's head.
//!
//! Checks beside "no panic": read byte by byte, at once or in reads of other sizes, the body has the same content and
//! end, or is refused for the same reason; limits hold.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lowroad_http::body::BodyFraming;
use lowroad_http::{BodyReader, RequestLimits, RequestRefusal};

fuzz_target!(|input: &[u8]| {
    for limits in [RequestLimits::default(), SMALL] {
        let at_once = read(input, &limits, input.len().max(1));
        for read_len in [1, 2, 3, 7, 16] {
            assert_eq!(
                read(input, &limits, read_len),
                at_once,
                "reads of {read_len}"
            );
        }
        if let Ok(Body { data, used, done }) = at_once {
            assert!(data.len() as u64 <= limits.body_len_max);
            check_end(&input[..used], done, &limits);
            check_again(&data, &limits);
        }
    }
});

/// Limits that are in reach of a fuzzer's short inputs.
const SMALL: RequestLimits = RequestLimits {
    head_len_max: 160,
    target_len_max: 24,
    fields_max: 4,
    body_len_max: 24,
    chunk_extension_len_max: 8,
    trailers_len_max: 24,
};

#[derive(Debug, PartialEq)]
struct Body {
    data: Vec<u8>,
    /// Bytes of the input that belong to the body.
    used: usize,
    done: bool,
}

/// Reads a body from input that arrives in pieces of `read_len`.
fn read(input: &[u8], limits: &RequestLimits, read_len: usize) -> Result<Body, RequestRefusal> {
    let mut reader = BodyReader::new(BodyFraming::Chunked, limits)?;
    let mut body = Body {
        data: Vec::new(),
        used: 0,
        done: false,
    };
    let mut come = 0;
    while come < input.len() && !body.done {
        come = input.len().min(come + read_len);
        // Unconsumed bytes are offered again, together with the next ones.
        loop {
            let waiting = &input[body.used..come];
            let fed = reader.feed(waiting)?;
            assert!(fed.consumed <= waiting.len());
            check_inside(fed.data, &waiting[..fed.consumed]);
            body.data.extend_from_slice(fed.data);
            body.used += fed.consumed;
            body.done = fed.done;
            assert_eq!(reader.is_done(), fed.done);
            if fed.done || fed.consumed == 0 {
                break;
            }
        }
    }
    Ok(body)
}

fn check_inside(data: &[u8], used: &[u8]) {
    let (outer, inner) = (used.as_ptr_range(), data.as_ptr_range());
    assert!(data.is_empty() || (outer.start <= inner.start && inner.end <= outer.end));
}

/// A complete body ends with the empty line after its trailers, and is incomplete without its last byte.
fn check_end(used: &[u8], done: bool, limits: &RequestLimits) {
    if done {
        assert!(used.ends_with(b"\r\n\r\n"));
        let shorter = read(&used[..used.len() - 1], limits, used.len());
        assert!(shorter.is_ok_and(|body| !body.done));
    }
}

/// The same data as a single chunk gives the same body.
fn check_again(data: &[u8], limits: &RequestLimits) {
    if data.is_empty() {
        return;
    }
    let mut encoded = format!("{:x}\r\n", data.len()).into_bytes();
    encoded.extend_from_slice(data);
    encoded.extend_from_slice(b"\r\n0\r\n\r\n");
    let body = read(&encoded, limits, encoded.len()).expect("a body within limits");
    assert_eq!(
        body,
        Body {
            data: data.to_vec(),
            used: encoded.len(),
            done: true
        }
    );
}
