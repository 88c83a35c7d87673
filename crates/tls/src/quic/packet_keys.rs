//! Keys and tags that follow from public values: they protect against errors, not against observers.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::quic::{Keys, Suite, Version};
use rustls::{CipherSuite, Side};

use crate::provider::provider;

/// The key and the nonce of Retry packets (RFC 9001 §5.8).
const RETRY_KEY: [u8; 16] = [
    0xbe, 0x0c, 0x69, 0x0b, 0x9f, 0x66, 0x57, 0x5a, 0x1d, 0x76, 0x6b, 0x54, 0xe3, 0x68, 0xc8, 0x4e,
];
const RETRY_NONCE: [u8; 12] = [
    0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb,
];

/// The suite of Initial packets (RFC 9001 §5.2).
fn initial_suite() -> Option<Suite> {
    provider().cipher_suites.iter().find_map(|suite| {
        let is_initial = suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256;
        suite.tls13().filter(|_| is_initial)?.quic_suite()
    })
}

/// The keys of Initial packets, from the destination's identifier in the client's first packet. `None`: the provider
/// lacks the suite.
#[must_use]
pub fn initial_keys(first_id: &[u8], is_server: bool) -> Option<Keys> {
    let side = match is_server {
        true => Side::Server,
        false => Side::Client,
    };
    Some(initial_suite()?.keys(first_id, side, Version::V1))
}

/// The integrity tag of a Retry packet, from the destination's identifier in the client's first packet, and the packet
/// without its tag.
#[must_use]
pub fn retry_tag(first_id: &[u8], packet: &[u8]) -> [u8; 16] {
    // RFC 9001 §5.8: the tag covers the identifier that the client has chosen, which the packet lacks.
    let pseudo_packet = [&[first_id.len() as u8], first_id, packet].concat();
    let nonce = Nonce::assume_unique_for_key(RETRY_NONCE);
    let mut tag = [0; 16];
    let sealed = UnboundKey::new(&AES_128_GCM, &RETRY_KEY).and_then(|key| {
        let key = LessSafeKey::new(key);
        key.seal_in_place_separate_tag(nonce, Aad::from(pseudo_packet), &mut [])
    });
    // Key and lengths are valid; a wrong tag would only make the client ignore the packet.
    if let Ok(sealed) = sealed {
        tag.copy_from_slice(sealed.as_ref());
    }
    tag
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST_ID: [u8; 8] = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];

    /// The packet of RFC 9001 A.4.
    #[test]
    fn retry_tag_is_that_of_the_standard() {
        let mut packet = vec![0xff, 0, 0, 0, 1, 0, 8];
        packet.extend_from_slice(&[0xf0, 0x67, 0xa5, 0x50, 0x2a, 0x42, 0x62, 0xb5]);
        packet.extend_from_slice(b"token");
        let tag = 0x04a2_65ba_2eff_4d82_9058_fb3f_0f24_96ba_u128;
        assert_eq!(retry_tag(&FIRST_ID, &packet), tag.to_be_bytes());
    }

    #[test]
    fn both_sides_have_the_same_initial_keys() {
        let server = initial_keys(&FIRST_ID, true).expect("AES");
        let client = initial_keys(&FIRST_ID, false).expect("AES");
        let mut packet = *b"a payload that is long enough";
        let tag = client
            .local
            .packet
            .encrypt_in_place(2, b"head", &mut packet);
        let mut sealed = packet.to_vec();
        sealed.extend_from_slice(tag.expect("sealed").as_ref());
        let opened = server
            .remote
            .packet
            .decrypt_in_place(2, b"head", &mut sealed);
        assert_eq!(opened.expect("opened"), b"a payload that is long enough");
    }
}
