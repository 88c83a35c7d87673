//! SYN cookies (RFC 4987 §3.6): the initial sequence number is 32 bits of a keyed hash of the connection, which can't
//! be guessed. Three of the bits also encode the class of the SYN's options, so eight of the 2^32 numbers are valid
//! cookies for a connection and a minute.

use core::net::IpAddr;

use crate::frame::FourTuple;
use crate::options::{MSS_DEFAULT, TcpOptions};
use crate::width::{index, upper};

/// A cookie encodes a class of options, rounded down so that the client supports them.
const MSS_LARGE: u16 = 1360;
const MSS_MIN_V6: u16 = 1220;
/// The class is XORed into the bits from this bit on.
const CLASS_SHIFT: u32 = 29;

/// The initial sequence number for a SYN with the sequence number `client_isn`.
#[must_use]
pub fn make(
    key: [u64; 2],
    tuple: &FourTuple,
    client_isn: u32,
    minute: u64,
    tcp_options: &TcpOptions,
) -> u32 {
    hash(key, tuple, client_isn, minute) ^ class_of(tcp_options) << CLASS_SHIFT
}

/// The options encoded in a cookie; `None` if the cookie is not valid for this connection and minute.
#[must_use]
pub fn check(
    key: [u64; 2],
    tuple: &FourTuple,
    client_isn: u32,
    minute: u64,
    cookie: u32,
) -> Option<TcpOptions> {
    // XOR with the hash yields the class, if the cookie is valid.
    let class = hash(key, tuple, client_isn, minute) ^ cookie;
    // The lower 29 bits must equal those of the hash.
    let is_cookie = class << (32 - CLASS_SHIFT) == 0;
    is_cookie.then(|| read_class(class >> CLASS_SHIFT, tuple))
}

/// The class of options. Most clients offer a window scale of 6 to 8, and SACK.
fn class_of(tcp_options: &TcpOptions) -> u32 {
    let windows = match tcp_options.scale {
        None => 0,
        Some(7..) if tcp_options.sack => 3,
        Some(6) if tcp_options.sack => 2,
        Some(_) => 1,
    };
    windows << 1 | u32::from(tcp_options.mss >= MSS_LARGE)
}

fn read_class(class: u32, tuple: &FourTuple) -> TcpOptions {
    let mss = match (class & 1, tuple.local) {
        (0, IpAddr::V4(_)) => MSS_DEFAULT,
        (0, IpAddr::V6(_)) => MSS_MIN_V6,
        _ => MSS_LARGE,
    };
    let scale = [None, Some(0), Some(6), Some(7)][index(class >> 1 & 3)];
    let sack = class >> 1 >= 2;
    TcpOptions { mss, scale, sack }
}

fn hash(key: [u64; 2], tuple: &FourTuple, client_isn: u32, minute: u64) -> u32 {
    let (client, local) = (halves(tuple.client), halves(tuple.local));
    let ports = u64::from(tuple.client_port) << 16 | u64::from(tuple.local_port);
    // These are the same words in the same order as in the eBPF programs, which check these cookies.
    let words = [
        client[0],
        client[1],
        local[0],
        local[1],
        u64::from(client_isn) << 32 | ports,
        minute,
    ];
    // The key keeps attackers from forging cookies (RFC 4987 §3.6).
    upper(sip_hash(key, &words))
}

fn halves(address: IpAddr) -> [u64; 2] {
    let bits = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    };
    [(bits >> 64) as u64, bits as u64]
}

/// SipHash-2-4 (Aumasson and Bernstein 2012) of whole words.
fn sip_hash(key: [u64; 2], words: &[u64]) -> u64 {
    let mut v = [
        key[0] ^ 0x736f_6d65_7073_6575,
        key[1] ^ 0x646f_7261_6e64_6f6d,
        key[0] ^ 0x6c79_6765_6e65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    // The last byte of the last word is the length in bytes.
    let end = (words.len() as u64 * 8) << 56;
    for word in words.iter().chain([&end]) {
        v[3] ^= word;
        rounds(&mut v, 2);
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    rounds(&mut v, 4);
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

fn rounds(v: &mut [u64; 4], count: usize) {
    for _ in 0..count {
        v[0] = v[0].wrapping_add(v[1]);
        v[1] = v[1].rotate_left(13) ^ v[0];
        v[0] = v[0].rotate_left(32);
        v[2] = v[2].wrapping_add(v[3]);
        v[3] = v[3].rotate_left(16) ^ v[2];
        v[0] = v[0].wrapping_add(v[3]);
        v[3] = v[3].rotate_left(21) ^ v[0];
        v[2] = v[2].wrapping_add(v[1]);
        v[1] = v[1].rotate_left(17) ^ v[2];
        v[2] = v[2].rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    const KEY: [u64; 2] = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
    const TUPLE: FourTuple = FourTuple {
        client: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
        local: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
        client_port: 1000,
        local_port: 80,
    };

    #[test]
    fn sip_hash_matches_the_reference_vectors() {
        // Vectors of the reference implementation for 0 and 8 bytes.
        assert_eq!(sip_hash(KEY, &[]), 0x726f_db47_dd0e_0e31);
        assert_eq!(
            sip_hash(KEY, &[0x0706_0504_0302_0100]),
            0x93f5_f579_9a93_2462
        );
    }

    #[test]
    fn cookie_decodes_to_the_options_rounded_down() {
        for mss in [536, 537, 1219, 1220, 1359, 1360, 1460, 9000] {
            for scale in [None, Some(0), Some(5), Some(6), Some(7), Some(14)] {
                for sack in [false, true] {
                    let client_options = TcpOptions { mss, scale, sack };
                    let cookie = make(KEY, &TUPLE, 7, 3, &client_options);
                    let decoded = check(KEY, &TUPLE, 7, 3, cookie).expect("right");
                    // The cookie must preserve whether windows are scaled.
                    assert_eq!(decoded.scale.is_some(), scale.is_some());
                    assert!(decoded.scale <= scale && decoded.sack <= sack && decoded.mss <= mss);
                    assert!(check(KEY, &TUPLE, 8, 3, cookie).is_none());
                    assert!(check(KEY, &TUPLE, 7, 4, cookie).is_none());
                    assert!(check(KEY, &TUPLE, 7, 3, cookie ^ 1).is_none());
                }
            }
        }
    }

    #[test]
    fn eight_numbers_are_valid_cookies_per_minute() {
        // A guess succeeds with a probability of 8 in 2^32.
        let client_options = TcpOptions {
            mss: 1460,
            scale: Some(7),
            sack: true,
        };
        let cookie = make(KEY, &TUPLE, 7, 3, &client_options);
        // Numbers that differ only in the class bits are valid, all others are not.
        let is_valid = |number: u32| check(KEY, &TUPLE, 7, 3, number).is_some();
        assert!((0..8).all(|class| is_valid(cookie ^ class << 29)));
        assert!(!(0..29).any(|bit| is_valid(cookie ^ 1 << bit)));
        // The lower MSS class of IPv6 fits the minimum MTU.
        let small = TcpOptions {
            mss: 1200,
            ..client_options
        };
        let v6 = FourTuple {
            local: IpAddr::V6(core::net::Ipv6Addr::LOCALHOST),
            ..TUPLE
        };
        let cookie = make(KEY, &v6, 7, 3, &small);
        assert_eq!(
            check(KEY, &v6, 7, 3, cookie).map(|decoded| decoded.mss),
            Some(1220)
        );
    }
}
