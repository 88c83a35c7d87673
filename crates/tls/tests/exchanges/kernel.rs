//! Kernel TLS: compares the keys with the kernel's header and with the peer's decryption, and tests the remaining
//! functions of a connection after the switch to kernel TLS.

use std::io::Write;
use std::process::Command;

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use lowroad_tls::{TlsFault, TlsServer, ktls};
use rustls::ClientConnection;

use crate::pair::tempdir::Folder;
use crate::pair::{Exchange, acceptor, connector};
use crate::versions::{read, run, settled_with_each_suite};

/// Simulates the kernel, with the keys from a parsed `struct tls12_crypto_info_*`.
struct Kernel {
    key: LessSafeKey,
    nonce: [u8; 12],
    sequence: u64,
}

impl Kernel {
    fn from_crypto_info(info: &ktls::CryptoInfo) -> Kernel {
        let (version, rest) = info.as_bytes().split_first_chunk::<2>().unwrap();
        assert_eq!(u16::from_ne_bytes(*version), 0x0304);
        let (cipher, rest) = rest.split_first_chunk::<2>().unwrap();
        let (rest, sequence) = rest.split_last_chunk::<8>().unwrap();
        let (algorithm, iv_len) = match u16::from_ne_bytes(*cipher) {
            51 => (&aead::AES_128_GCM, 8),
            52 => (&aead::AES_256_GCM, 8),
            54 => (&aead::CHACHA20_POLY1305, 12),
            other => panic!("{other}"),
        };
        let (iv, rest) = rest.split_at(iv_len);
        let (key, salt) = rest.split_at(algorithm.key_len());
        Kernel {
            key: LessSafeKey::new(UnboundKey::new(algorithm, key).unwrap()),
            nonce: [salt, iv].concat().try_into().unwrap(),
            sequence: u64::from_be_bytes(*sequence),
        }
    }

    fn seal(&mut self, kind: u8, text: &[u8]) -> Vec<u8> {
        let mut nonce = self.nonce;
        for (byte, digit) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            // RFC 8446, section 5.3: the nonce is the IV combined with the sequence number.
            *byte ^= digit;
        }
        self.sequence += 1;
        let mut record = [text, &[kind]].concat();
        let header = [23, 3, 3, 0, record.len() as u8 + 16];
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key
            .seal_in_place_append_tag(nonce, Aad::from(header), &mut record)
            .unwrap();
        [&header[..], &record].concat()
    }
}

/// The server encrypts two records; the returned kernel encrypts all later ones.
fn switch_to_kernel(server: &mut TlsServer, client: &mut ClientConnection) -> Kernel {
    for text in [b"one", b"two"] {
        let mut wire = Vec::new();
        server.encrypt(&[text], &mut wire, 0).unwrap();
        assert_eq!(read(client, &wire), text);
    }
    let kernel = Kernel::from_crypto_info(&server.kernel_keys().unwrap());
    server.leave_to_kernel();
    kernel
}

#[test]
fn client_reads_records_sealed_by_kernel() {
    for (mut server, mut client) in settled_with_each_suite() {
        let mut kernel = switch_to_kernel(&mut server, &mut client);
        assert_eq!(read(&mut client, &kernel.seal(23, b"three")), b"three");
        // The client's records are still decrypted by the server.
        client.writer().write_all(b"more").unwrap();
        let mut plain = Vec::new();
        assert_eq!(run(&mut server, &mut client, &mut plain), None);
        assert_eq!(plain, b"more");
        let mut alert = Vec::new();
        server.close(&mut alert).unwrap();
        assert_eq!(
            read(&mut client, &kernel.seal(ktls::ALERT, &alert)),
            b" (end)"
        );
    }
}

#[test]
fn encrypt_after_switch_to_kernel_fails() {
    let (mut server, mut client) = settled_with_each_suite().next().unwrap();
    switch_to_kernel(&mut server, &mut client);
    assert!(server.kernel_keys().is_none());
    let mut wire = Vec::new();
    let sealed = server.encrypt(&[b"x"], &mut wire, 0);
    assert_eq!(sealed.unwrap_err().fault, TlsFault::NotReady);
    assert!(wire.is_empty());
}

#[test]
fn only_one_alert_is_sent_through_kernel() {
    let (mut server, mut client) = settled_with_each_suite().next().unwrap();
    switch_to_kernel(&mut server, &mut client);
    let mut alerts = Vec::new();
    server.close(&mut alerts).unwrap();
    let garbage = &mut [23, 3, 3, 0, 1, 1];
    assert!(
        server
            .receive(garbage, &mut Vec::new(), &mut alerts)
            .is_err()
    );
    // The warning level and close_notify; there is no second alert for the garbage.
    assert_eq!(alerts, [1, 0]);
}

#[test]
fn key_update_request_is_reported_with_kernel_tls() {
    let (mut server, mut client) = settled_with_each_suite().next().unwrap();
    switch_to_kernel(&mut server, &mut client);
    assert!(!server.is_key_update_requested());
    client.refresh_traffic_keys().unwrap();
    client.writer().write_all(b"with the next key").unwrap();
    let (mut plain, mut alerts) = (Vec::new(), Vec::new());
    let mut wire = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut wire).unwrap();
    }
    server.receive(&mut wire, &mut plain, &mut alerts).unwrap();
    assert_eq!(plain, b"with the next key");
    // The server can't answer with its own key update, since the kernel has the keys.
    assert!(server.is_key_update_requested() && alerts.is_empty());
}

#[test]
fn kernel_keys_require_settled_connection() {
    let mut exchange = Exchange::established(&acceptor(), &connector());
    assert!(exchange.server.kernel_keys().is_none());
    exchange.server.settle().unwrap();
    assert!(exchange.server.kernel_keys().is_some());
    // A record that can't be decrypted.
    exchange.to_server = vec![23, 3, 3, 0, 1, 1];
    assert!(exchange.run().is_err());
    assert!(exchange.server.kernel_keys().is_none(), "it has failed");
}

/// Sizes, offsets and numbers according to a C compiler with linux/tls.h.
#[test]
fn crypto_info_layout_matches_linux_tls_h() {
    let folder = Folder::new("ktls");
    let (source, program) = (folder.path().join("a.c"), folder.path().join("a"));
    std::fs::write(&source, SOURCE).unwrap();
    let built = Command::new("cc")
        .arg("-o")
        .args([&program, &source])
        .status();
    assert!(built.expect("cc is there").success());
    let out = Command::new(&program).output().unwrap();
    let program_output = String::from_utf8(out.stdout).unwrap();
    assert_eq!(
        program_output.lines().collect::<Vec<_>>(),
        [
            // cipher, size, iv, key, salt, sequence
            "51 40 4 12 28 32",
            "52 56 4 12 44 48",
            "54 56 4 16 48 48",
            "772 1 1",
        ]
    );
    assert_eq!((ktls::TLS_TX, ktls::TLS_SET_RECORD_TYPE), (1, 1));
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
    printf("%d %d %d\n", TLS_1_3_VERSION, TLS_TX, TLS_SET_RECORD_TYPE);
}
"#;
