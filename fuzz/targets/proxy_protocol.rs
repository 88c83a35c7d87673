//! Fuzz target: PROXY protocol headers. The input is the first bytes of a connection.
//!
//! Checks beside "no panic": every proper prefix of a header is incomplete, bytes behind it change nothing, a refused
//! input stays refused with more bytes; and a parsed header is read back after it is written.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lowroad_http::proxy_protocol::{ProxyAddresses, ProxyHeaderParse, parse, write_v1, write_v2};

fuzz_target!(|input: &[u8]| {
    let more = [input, b"GET / HTTP/1.1\r\n\r\n"].concat();
    match parse(input) {
        ProxyHeaderParse::Incomplete => {}
        ProxyHeaderParse::Refused(_) => {
            assert!(matches!(parse(&more), ProxyHeaderParse::Refused(_)))
        }
        ProxyHeaderParse::Header(header) => {
            assert!(header.len <= input.len());
            assert_eq!(parse(&more), ProxyHeaderParse::Header(header));
            for len in 0..header.len {
                assert_eq!(parse(&input[..len]), ProxyHeaderParse::Incomplete);
            }
            check_written(header.addresses);
        }
    }
});

fn check_written(ends: ProxyAddresses) {
    let mut bytes = Vec::new();
    write_v2(&mut bytes, ends);
    assert!(matches!(parse(&bytes), ProxyHeaderParse::Header(again) if again.addresses == ends));
    bytes.clear();
    write_v1(&mut bytes, ends);
    let ProxyHeaderParse::Header(again) = parse(&bytes) else {
        panic!("{bytes:?}");
    };
    // Version 1 has no LOCAL command; it writes UNKNOWN.
    let said = match ends {
        ProxyAddresses::Local => ProxyAddresses::Unknown,
        ends => ends,
    };
    assert_eq!(again.addresses, said);
}
