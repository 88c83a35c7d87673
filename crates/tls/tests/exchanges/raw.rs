//! A client that can send records of any type and content, with the keys from a handshake by `rustls`.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use lowroad_tls::{TlsFault, TlsServer};
use rustls::ConnectionTrafficSecrets;

use crate::pair::acceptor;
use crate::versions::{client, run};

pub const ALERT: u8 = 21;
pub const HANDSHAKE: u8 = 22;
pub const APPLICATION_DATA: u8 = 23;

pub struct RawClient {
    to_send: RecordKey,
    to_receive: RecordKey,
}

struct RecordKey {
    key: LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
}

/// Both ends of a TLS 1.3 connection after the handshake.
pub fn established() -> (TlsServer, RawClient) {
    let mut server = acceptor().accept().unwrap();
    let mut client = client(&[&rustls::version::TLS13]);
    assert_eq!(run(&mut server, &mut client, &mut Vec::new()), None);
    let secrets = client.dangerous_extract_secrets().unwrap();
    let client = RawClient {
        to_send: RecordKey::new(secrets.tx),
        to_receive: RecordKey::new(secrets.rx),
    };
    (server, client)
}

impl RawClient {
    pub fn seal(&mut self, kind: u8, content: &[u8]) -> Vec<u8> {
        let mut record = [content, &[kind]].concat();
        let len = u16::try_from(record.len() + AES_128_GCM.tag_len()).unwrap();
        let [high, low] = len.to_be_bytes();
        let header = [APPLICATION_DATA, 3, 3, high, low];
        let nonce = self.to_send.nonce();
        let key = &self.to_send.key;
        key.seal_in_place_append_tag(nonce, Aad::from(header), &mut record)
            .unwrap();
        [&header[..], &record].concat()
    }

    /// The type and content of each record in `wire`.
    pub fn open(&mut self, mut wire: &[u8]) -> Vec<(u8, Vec<u8>)> {
        let mut opened = Vec::new();
        while let Some((header, rest)) = wire.split_first_chunk::<5>() {
            let (record, rest) =
                rest.split_at(usize::from(header[3]) << 8 | usize::from(header[4]));
            let mut record = record.to_vec();
            let nonce = self.to_receive.nonce();
            let key = &self.to_receive.key;
            let plain = key.open_in_place(nonce, Aad::from(*header), &mut record);
            let (kind, content) = plain.unwrap().split_last().unwrap();
            opened.push((*kind, content.to_vec()));
            wire = rest;
        }
        opened
    }

    /// Sends these records. Returns the server's fault and its alert.
    pub fn fail(&mut self, server: &mut TlsServer, records: &[(u8, &[u8])]) -> (TlsFault, u8) {
        let mut out = Vec::new();
        for (index, (kind, content)) in records.iter().enumerate() {
            let mut wire = self.seal(*kind, content);
            let received = server.receive(&mut wire, &mut Vec::new(), &mut out);
            let is_last = index + 1 == records.len();
            // Only the last record completes the violation.
            assert_eq!(received.is_err(), is_last, "record {index} of {records:?}");
            if let Err(failure) = received {
                let [(ALERT, alert)] = &self.open(&out)[..] else {
                    panic!("no alert for {records:?}");
                };
                assert_eq!(alert[0], 2, "it is fatal");
                return (failure.fault, alert[1]);
            }
        }
        unreachable!("there is a last record");
    }
}

impl RecordKey {
    fn new((sequence, secrets): (u64, ConnectionTrafficSecrets)) -> RecordKey {
        let ConnectionTrafficSecrets::Aes128Gcm { key, iv } = secrets else {
            // Both sides prefer the provider's first suite, which is AES-128.
            panic!("another suite comes first");
        };
        let key = UnboundKey::new(&AES_128_GCM, key.as_ref()).unwrap();
        RecordKey {
            key: LessSafeKey::new(key),
            iv: iv.as_ref().try_into().unwrap(),
            sequence,
        }
    }

    fn nonce(&mut self) -> Nonce {
        let mut nonce = self.iv;
        for (byte, digit) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= digit;
        }
        self.sequence += 1;
        Nonce::assume_unique_for_key(nonce)
    }
}
