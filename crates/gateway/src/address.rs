//! Formats addresses for requests to programs and origins, without `std::fmt`, which costs several hundred instructions
//! per address.

use std::io::Write as _;
use std::net::IpAddr;

/// Appends an address.
pub fn write_address(out: &mut Vec<u8>, address: IpAddr) {
    let IpAddr::V4(address) = address else {
        // Writing to a vector cannot fail.
        let _ = write!(out, "{address}");
        return;
    };
    let (mut text, mut len) = ([b'.'; 16], 0);
    for octet in address.octets() {
        let digits = [octet / 100, octet / 10 % 10, octet % 10].map(|digit| b'0' + digit);
        let skipped = match octet {
            0..10 => 2,
            10..100 => 1,
            100.. => 0,
        };
        for digit in &digits[skipped..] {
            text[len] = *digit;
            len += 1;
        }
        // The buffer is prefilled with dots.
        len += 1;
    }
    out.extend_from_slice(&text[..len - 1]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_format_equals_std_fmt() {
        for address in [
            "0.0.0.0",
            "1.20.255.100",
            "127.0.0.1",
            "99.9.109.10",
            "::1",
            "fe80::a:1",
        ] {
            let mut out = Vec::new();
            write_address(&mut out, address.parse().expect("an address"));
            assert_eq!(out, address.as_bytes());
        }
    }
}
