//! What the kernel is told, against its own header, and against what the other side decrypts with.

use std::process::Command;

use lowroad_tls::{Fault, ktls};

use crate::pair::tempdir::Folder;
use crate::pair::{Exchange, acceptor, connector};

#[test]
fn only_whole_connections_are_given_up() {
    let mut settled = Exchange::established(&acceptor(), &connector());
    settled.server.settle().unwrap();
    assert_eq!(
        settled.server.into_kernel().err().unwrap().fault,
        Fault::NotReady
    );
    let early = Exchange::new(&acceptor(), &connector(), "localhost");
    assert_eq!(
        early.server.into_kernel().err().unwrap().fault,
        Fault::NotReady
    );
    let mut half = Exchange::established(&acceptor(), &connector());
    let half_received = half
        .server
        .receive(&mut [23, 3], &mut Vec::new(), &mut Vec::new());
    half_received.unwrap();
    assert_eq!(
        half.server.into_kernel().err().unwrap().fault,
        Fault::NotReady
    );
}

#[test]
fn the_sequence_numbers_are_those_of_the_next_records() {
    let mut exchange = Exchange::established(&acceptor(), &connector());
    for _ in 0..3 {
        exchange.say(b"x");
    }
    exchange
        .client
        .seal(&[b"y"], &mut exchange.to_server, 0)
        .unwrap();
    exchange.run().unwrap();
    let (offload, mut kernel) = exchange.server.into_kernel().unwrap();
    let sequence = |info: &ktls::CryptoInfo| {
        let bytes = info.as_bytes();
        u64::from_be_bytes(bytes[bytes.len() - 8..].try_into().unwrap())
    };
    assert_eq!(sequence(&offload.to_send), 3);
    assert_eq!(sequence(&offload.to_receive), 1);
    let updated = kernel.update_to_send().unwrap();
    assert_eq!(sequence(&updated), 0);
    assert_ne!(updated.as_bytes(), offload.to_send.as_bytes());
    assert_eq!(sequence(&kernel.update_to_receive().unwrap()), 0);
}

/// Records that are made by hand with what the kernel would be told are understood by the client.
#[test]
fn the_client_decrypts_what_is_sealed_with_the_kernels_secrets() {
    use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
    let mut exchange = Exchange::established(&acceptor(), &connector());
    let (offload, _) = exchange.server.into_kernel().unwrap();
    let info = offload.to_send.as_bytes();
    let (version, rest) = info.split_first_chunk::<2>().unwrap();
    let (cipher, rest) = rest.split_first_chunk::<2>().unwrap();
    assert_eq!(
        (u16::from_ne_bytes(*version), u16::from_ne_bytes(*cipher)),
        (0x0304, 51)
    );
    let (iv, rest) = rest.split_first_chunk::<8>().unwrap();
    let (key, rest) = rest.split_first_chunk::<16>().unwrap();
    let (salt, sequence) = rest.split_first_chunk::<4>().unwrap();

    let mut nonce = [&salt[..], iv].concat();
    for (byte, digit) in nonce[4..].iter_mut().zip(sequence) {
        *byte ^= digit;
    }
    let mut record = b"by the kernel\x17".to_vec();
    let header = [23, 3, 3, 0, record.len() as u8 + 16];
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, key).unwrap());
    let nonce = Nonce::try_assume_unique_for_key(&nonce).unwrap();
    key.seal_in_place_append_tag(nonce, Aad::from(header), &mut record)
        .unwrap();
    let mut wire = [&header[..], &record].concat();
    let mut plain = Vec::new();
    exchange
        .client
        .receive(&mut wire, &mut plain, &mut Vec::new())
        .unwrap();
    assert_eq!(plain, b"by the kernel");
}

/// Sizes, places and numbers as a C compiler has them from linux/tls.h.
#[test]
fn the_layout_is_that_of_the_kernels_header() {
    let folder = Folder::new("ktls");
    let (source, program) = (folder.path().join("a.c"), folder.path().join("a"));
    std::fs::write(&source, SOURCE).unwrap();
    let built = Command::new("cc")
        .arg("-o")
        .args([&program, &source])
        .status();
    assert!(built.expect("cc is there").success());
    let out = Command::new(&program).output().unwrap();
    let said = String::from_utf8(out.stdout).unwrap();
    assert_eq!(
        said.lines().collect::<Vec<_>>(),
        [
            // cipher, size, iv, key, salt, sequence
            "51 40 4 12 28 32",
            "52 56 4 12 44 48",
            "54 56 4 16 48 48",
            "771 772 1 2 1 2",
        ]
    );
    assert_eq!((ktls::TLS_TX, ktls::TLS_RX), (1, 2));
    assert_eq!(
        (ktls::TLS_SET_RECORD_TYPE, ktls::TLS_GET_RECORD_TYPE),
        (1, 2)
    );
    assert_eq!((ktls::SOL_TCP, ktls::TCP_ULP, ktls::SOL_TLS), (6, 31, 282));
}

const SOURCE: &str = r#"
#include <linux/tls.h>
#include <stddef.h>
#include <stdio.h>
#define SHOW(cipher, type) printf("%d %zu %zu %zu %zu %zu\n", cipher, sizeof(struct type), \
    offsetof(struct type, iv), offsetof(struct type, key), offsetof(struct type, salt), offsetof(struct type, rec_seq))
int main(void)
{
    SHOW(TLS_CIPHER_AES_GCM_128, tls12_crypto_info_aes_gcm_128);
    SHOW(TLS_CIPHER_AES_GCM_256, tls12_crypto_info_aes_gcm_256);
    SHOW(TLS_CIPHER_CHACHA20_POLY1305, tls12_crypto_info_chacha20_poly1305);
    printf("%d %d %d %d %d %d\n", TLS_1_2_VERSION, TLS_1_3_VERSION, TLS_TX, TLS_RX, TLS_SET_RECORD_TYPE, TLS_GET_RECORD_TYPE);
}
"#;

#[test]
fn a_kernel_that_has_it_refuses_only_the_socket() {
    const ENOENT: i32 = 2;
    const ENOTCONN: i32 = 107;
    assert!(ktls::is_offered(Some(ENOTCONN)));
    assert!(!ktls::is_offered(Some(ENOENT)));
}
