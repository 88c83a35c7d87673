//! Our first sequence number says what the SYN said, and that we have said so (RFC 4987 §3.6): 24 bits
//! of a keyed hash, 3 of the class of the MSS, 4 of the window scale, 1 of SACK. It knows no clock.

use core::net::IpAddr;

use crate::frame::Tuple;
use crate::options::Abilities;

/// The smallest is what everybody takes; nothing of IPv6 is below the second.
const MSS_CLASSES: [u16; 8] = [536, 1220, 1300, 1360, 1400, 1440, 1452, 1460];
const SCALE_NONE: u8 = 15;
const HASH: u32 = 0xffff_ff00;

/// The first sequence number for a SYN with the number `client_isn`.
#[must_use]
pub fn make(key: [u64; 2], tuple: &Tuple, client_isn: u32, minute: u64, can: &Abilities) -> u32 {
    let class = MSS_CLASSES
        .iter()
        .rposition(|mss| can.mss >= *mss)
        .unwrap_or(0);
    let options = u8::from(can.sack) << 4 | can.scale.unwrap_or(SCALE_NONE);
    let low = options << 3 | u8::try_from(class).expect("of eight");
    hash(key, tuple, client_isn, minute, low) | u32::from(low)
}

/// What a cookie says, if it was made for this.
#[must_use]
pub fn check(
    key: [u64; 2],
    tuple: &Tuple,
    client_isn: u32,
    minute: u64,
    cookie: u32,
) -> Option<Abilities> {
    let [.., low] = cookie.to_be_bytes();
    let scale = low >> 3 & 15;
    (hash(key, tuple, client_isn, minute, low) == cookie & HASH).then(|| Abilities {
        mss: MSS_CLASSES[usize::from(low & 7)],
        scale: (scale != SCALE_NONE).then_some(scale),
        sack: low & 0x80 != 0,
    })
}

fn hash(key: [u64; 2], tuple: &Tuple, client_isn: u32, minute: u64, low: u8) -> u32 {
    let (client, local) = (halves(tuple.client), halves(tuple.local));
    let ports = u64::from(tuple.client_port) << 16 | u64::from(tuple.local_port);
    let words = [
        client[0],
        client[1],
        local[0],
        local[1],
        u64::from(client_isn) << 32 | ports,
        minute << 8 | u64::from(low),
    ];
    let [a, b, c, _, ..] = sip_hash(key, &words).to_be_bytes();
    u32::from_be_bytes([a, b, c, 0])
}

fn halves(address: IpAddr) -> [u64; 2] {
    let bits = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    };
    let half = |shift: u32| u64::try_from(bits >> shift & u128::from(u64::MAX)).expect("masked");
    [half(64), half(0)]
}

/// SipHash-2-4 (Aumasson and Bernstein 2012) of whole words.
fn sip_hash(key: [u64; 2], words: &[u64]) -> u64 {
    let mut v = [
        key[0] ^ 0x736f_6d65_7073_6575,
        key[1] ^ 0x646f_7261_6e64_6f6d,
        key[0] ^ 0x6c79_6765_6e65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    // The length in bytes is the last word's last byte.
    let end = u64::try_from(words.len() * 8).expect("short") << 56;
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
    const TUPLE: Tuple = Tuple {
        client: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
        local: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
        client_port: 1000,
        local_port: 80,
    };

    #[test]
    fn the_hash_is_that_of_the_paper() {
        // The reference implementation's vectors for 0 and 8 bytes.
        assert_eq!(sip_hash(KEY, &[]), 0x726f_db47_dd0e_0e31);
        assert_eq!(
            sip_hash(KEY, &[0x0706_0504_0302_0100]),
            0x93f5_f579_9a93_2462
        );
    }

    #[test]
    fn a_cookie_says_what_was_said_or_less() {
        for mss in [536, 537, 1219, 1220, 1400, 1459, 1460, 9000] {
            for (scale, sack) in [(None, false), (Some(0), true), (Some(14), false)] {
                let can = Abilities { mss, scale, sack };
                let cookie = make(KEY, &TUPLE, 7, 3, &can);
                let says = check(KEY, &TUPLE, 7, 3, cookie).expect("right");
                assert_eq!((says.scale, says.sack), (scale, sack));
                assert!(says.mss <= mss);
                assert!(check(KEY, &TUPLE, 8, 3, cookie).is_none());
                assert!(check(KEY, &TUPLE, 7, 4, cookie).is_none());
                assert!(check(KEY, &TUPLE, 7, 3, cookie ^ 1).is_none());
                assert!(check(KEY, &TUPLE, 7, 3, cookie ^ 0x8000_0000).is_none());
            }
        }
    }
}
