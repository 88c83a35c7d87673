//! Fuzz target: paths. The input is used twice: as the path of a request target, and as the name of a file that is
//! linked to.
//!
//! Checks beside "no panic": a decoded path can't leave the root, and encoding it is the inverse.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lowroad_http::request::RequestTarget;
use lowroad_http::{RequestLimits, RequestRefusal, h1, target};

fuzz_target!(|input: &[u8]| {
    if let Ok(decoded) = decode(input) {
        assert!(decoded.len() <= input.len());
        check_safe(&decoded);
        check_round_trip(&decoded);
    }
    if !input.is_empty() {
        // A buffer shorter than the path is refused.
        let short = target::decode(input, &mut vec![0; input.len() - 1]).map(<[u8]>::to_vec);
        assert!(short.is_err());
    }
    check_name(input);
    check_plain(input);
});

fn decode(path: &[u8]) -> Result<Vec<u8>, RequestRefusal> {
    // Not zeros, so that bytes that were not written show.
    let mut scratch = vec![0xAA; path.len()];
    target::decode(path, &mut scratch).map(<[u8]>::to_vec)
}

/// Whether a path may be passed to a file system below the root.
fn safe(path: &[u8]) -> bool {
    path.starts_with(b"/")
        && !path.iter().any(|byte| matches!(byte, 0 | b'\\'))
        && !path.windows(2).any(|pair| pair == b"//")
        && !path
            .split(|byte| *byte == b'/')
            .any(|segment| matches!(segment, b"." | b".."))
}

fn check_safe(decoded: &[u8]) {
    assert!(safe(decoded), "{:?}", decoded.escape_ascii().to_string());
}

fn check_round_trip(decoded: &[u8]) {
    let mut encoded = Vec::new();
    target::encode_path(decoded, &mut encoded);
    // The encoded path is used in Location and within the quotes of href.
    assert!(
        encoded
            .iter()
            .all(|byte| byte.is_ascii_graphic() && !b"\"'<>&?#\\".contains(byte))
    );
    assert_eq!(decode(&encoded).as_deref(), Ok(decoded));
}

/// Exactly the safe names can be requested.
fn check_name(name: &[u8]) {
    let path = [b"/", name].concat();
    let mut encoded = Vec::new();
    target::encode_path(&path, &mut encoded);
    match decode(&encoded) {
        Ok(decoded) if safe(&path) => assert_eq!(decoded, path),
        Ok(decoded) => check_safe(&decoded),
        Err(refusal) => assert!(!safe(&path), "{refusal:?}"),
    }
}

/// Decoding does not change paths that the request parser marks as plain.
fn check_plain(path: &[u8]) {
    let head = [b"GET ", path, b" HTTP/1.0\r\n\r\n"].concat();
    let Ok(Some(parsed)) = h1::parse(&head, &RequestLimits::default()) else {
        return;
    };
    if let RequestTarget::Origin {
        path, plain: true, ..
    } = parsed.request.target
    {
        assert_eq!(decode(path).as_deref(), Ok(path));
        check_safe(path);
    }
}
