use super::*;
use alloc::vec;

fn tcp(source: &str, destination: &str) -> ProxyAddresses {
    ProxyAddresses::Tcp {
        source: source.parse().expect("an address"),
        destination: destination.parse().expect("an address"),
    }
}

fn header(bytes: &[u8]) -> ProxyHeader {
    match parse(bytes) {
        ProxyHeaderParse::Header(header) => header,
        other => panic!("{other:?}: {bytes:?}"),
    }
}

fn header_error(bytes: &[u8]) -> ProxyHeaderError {
    match parse(bytes) {
        ProxyHeaderParse::Refused(refused) => refused,
        other => panic!("{other:?}: {bytes:?}"),
    }
}

const ENDS: [(&str, &str); 3] = [
    ("192.0.2.1:56324", "198.51.100.7:443"),
    ("[2001:db8::1]:1", "[2001:db8::2]:65535"),
    ("192.0.2.1:0", "[2001:db8::2]:80"),
];

#[test]
fn written_headers_parse_and_their_prefixes_are_incomplete() {
    // A header may arrive in any number of segments.
    let mut all = vec![ProxyAddresses::Unknown, ProxyAddresses::Local];
    all.extend(ENDS.map(|(source, destination)| tcp(source, destination)));
    for ends in all {
        for write in [write_v1, write_v2] {
            let mut bytes = Vec::new();
            write(&mut bytes, ends);
            let len = bytes.len();
            for part in 0..len {
                assert_eq!(
                    parse(&bytes[..part]),
                    ProxyHeaderParse::Incomplete,
                    "{part} of {len}"
                );
            }
            bytes.extend_from_slice(b"GET / HTTP/1.1\r\n");
            let read = header(&bytes);
            assert_eq!(read.len, len);
            // Version 1 cannot express `Local`.
            let same = read.addresses == same_family(ends);
            assert!(
                same || (ends, read.addresses) == (ProxyAddresses::Local, ProxyAddresses::Unknown)
            );
        }
    }
}

#[test]
fn v1_line_matches_the_specification() {
    let mut line = Vec::new();
    write_v1(&mut line, tcp("192.168.0.1:56324", "192.168.0.11:443"));
    assert_eq!(line, b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n");
    // The longest line in section 2.1 of the specification.
    let longest = b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n";
    assert_eq!(header(longest).addresses, ProxyAddresses::Unknown);
}

#[test]
fn malformed_v1_lines_are_refused() {
    // The header determines the client's address, so malformed lines must be refused.
    for line in [
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n",
        "PROXY  TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2.1  192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 \r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3\r\n",
        // Some parsers read a leading zero as octal.
        "PROXY TCP4 192.0.2.01 192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 65536\r\n",
        "PROXY TCP4 ::1 ::2 1 2\r\n",
        "PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
        // A zone identifier has a meaning only on the proxy's host.
        "PROXY TCP6 fe80::1%eth0 ::2 1 2\r\n",
        "PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY tcp4 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY UNKNOWNS\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\r\n",
        "PROXY \r\n",
    ] {
        assert_eq!(
            header_error(line.as_bytes()),
            ProxyHeaderError::Line,
            "{line:?}"
        );
    }
    for start in [
        "GET / HTTP/1.1\r\n",
        "proxy TCP4",
        "PROXY\r\n",
        "\r\n\r\nGET",
    ] {
        assert_eq!(
            header_error(start.as_bytes()),
            ProxyHeaderError::Start,
            "{start:?}"
        );
    }
    let long = [b"PROXY UNKNOWN ".as_slice(), &[b'x'; 200]].concat();
    assert_eq!(header_error(&long), ProxyHeaderError::TooLong);
    assert_eq!(parse(&long[..106]), ProxyHeaderParse::Incomplete);
}

/// A header of version 2.
fn block(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = SIGNATURE.to_vec();
    bytes.extend_from_slice(&[command, family]);
    bytes.extend_from_slice(&(rest.len() as u16).to_be_bytes());
    bytes.extend_from_slice(rest);
    bytes
}

#[test]
fn malformed_v2_headers_are_refused() {
    let addresses = [192, 0, 2, 1, 192, 0, 2, 2, 0, 1, 0, 2];
    let known = tcp("192.0.2.1:1", "192.0.2.2:2");
    assert_eq!(header(&block(0x21, 0x11, &addresses)).addresses, known);
    for command in [0x11, 0x22, 0x2f, 0x31, 0] {
        let bytes = block(command, 0x11, &addresses);
        assert_eq!(
            header_error(&bytes),
            ProxyHeaderError::Command,
            "{command:#x}"
        );
    }
    for family in [0x01, 0x10, 0x12, 0x13, 0x20, 0x22, 0x32, 0x41] {
        let bytes = block(0x21, family, &addresses);
        assert_eq!(
            header_error(&bytes),
            ProxyHeaderError::Family,
            "{family:#x}"
        );
    }
    assert_eq!(
        header_error(&block(0x21, 0x11, &addresses[..11])),
        ProxyHeaderError::Length
    );
    assert_eq!(
        header_error(&block(0x21, 0x21, &addresses)),
        ProxyHeaderError::Length
    );
    // LOCAL: the family is ignored.
    assert_eq!(
        header(&block(0x20, 0x77, &[1, 2])).addresses,
        ProxyAddresses::Local
    );
    assert_eq!(
        header(&block(0x21, 0x31, &[0; 216])).addresses,
        ProxyAddresses::Unknown
    );
    let long = block(0x21, 0x11, &[0; V2_LEN_MAX]);
    assert_eq!(header_error(&long[..16]), ProxyHeaderError::TooLong);
}

#[test]
fn v2_extension_lengths_and_checksum_are_verified() {
    let mut rest = vec![192, 0, 2, 1, 192, 0, 2, 2, 0, 1, 0, 2];
    rest.extend_from_slice(&[2, 0, 3, b'a', b'.', b'b']);
    assert!(matches!(
        parse(&block(0x21, 0x11, &rest)),
        ProxyHeaderParse::Header(_)
    ));
    assert_eq!(
        header_error(&block(0x21, 0x11, &rest[..rest.len() - 1])),
        ProxyHeaderError::Length
    );
    rest.extend_from_slice(&[TLV_CRC32C, 0, 4, 0, 0, 0, 0]);
    let mut bytes = block(0x21, 0x11, &rest);
    let at = bytes.len() - 4;
    let sum = crc32c_without(&bytes, at);
    bytes[at..].copy_from_slice(&sum.to_be_bytes());
    assert!(matches!(parse(&bytes), ProxyHeaderParse::Header(_)));
    bytes[20] ^= 1;
    assert_eq!(header_error(&bytes), ProxyHeaderError::Checksum);
}

/// The check value that is published for CRC32c.
#[test]
fn checksum_is_crc32c() {
    // The index 100 is outside of the input, so no byte is treated as zero.
    assert_eq!(crc32c_without(b"123456789", 100), 0xe306_9283);
}
