//! Fake TLS for the simulator: a handshake of one round trip, masked records, and an explicit end. It is not secure,
//! but transforms bytes as TLS does, so that all code paths for encrypted connections are tested.
//!
//! ```text
//! client: "HELLO\n"   server: "WELCOME\n"   then records: length (2 bytes, big-endian), masked bytes; 0: the end
//! ```
//! The simulated world can mask the bytes instead, like kernel TLS. With the length 65535 a client requests another
//! mask (a key update), which the world does not support.

use std::sync::Arc;

use lowroad_engine::tls_session::{LayerFault, TlsInfo, TlsSession, TlsState};

const HELLO: &[u8] = b"HELLO\n";
const WELCOME: &[u8] = b"WELCOME\n";
const MASK: u8 = 0x5a;
/// Maximum length of a record, and maximum number of records per call.
const RECORD_LEN_MAX: usize = 1000;
const RECORDS_MAX: usize = 20;
/// The length from which the world masks files.
const OFFLOAD_LEN: u64 = 20_000;
const ANOTHER_MASK: [u8; 2] = [0xff; 2];

/// The server's side of one connection.
#[derive(Default)]
pub struct FakeTls {
    ciphertext: Vec<u8>,
    info: Option<Arc<TlsInfo>>,
    is_offloaded: bool,
    is_key_worn: bool,
}

impl FakeTls {
    /// The key that is passed to the world for masking.
    pub(super) const KEYS: &[u8] = &[MASK];
    /// The alert (close_notify) that the world sends.
    pub(super) const END: &[u8] = b"end";

    pub(super) fn end() -> Vec<u8> {
        vec![0; 2]
    }

    /// A client's request for another mask.
    pub fn other_mask() -> Vec<u8> {
        ANOTHER_MASK.to_vec()
    }

    /// The first message of a client.
    pub fn hello() -> Vec<u8> {
        HELLO.to_vec()
    }

    /// Encodes bytes as records of a client.
    pub fn records(bytes: &[u8]) -> Vec<u8> {
        let mut wire = Vec::new();
        for record in bytes.chunks(RECORD_LEN_MAX) {
            write_record(record, &mut wire);
        }
        wire
    }

    /// Decodes the bytes that a client has read. Returns them, and whether their end was announced.
    ///
    /// # Panics
    /// The server violated the protocol.
    pub fn read(mut wire: &[u8]) -> (Vec<u8>, bool) {
        let mut bytes = Vec::new();
        let greeted = wire.len().min(WELCOME.len());
        assert_eq!(wire[..greeted], WELCOME[..greeted]);
        wire = &wire[greeted..];
        while let Some((record, rest)) = take_record(wire) {
            if record.is_empty() {
                assert!(rest.is_empty(), "bytes behind the end");
                return (bytes, true);
            }
            bytes.extend(record.iter().map(|byte| byte ^ MASK));
            wire = rest;
        }
        (bytes, false)
    }
}

fn write_record(record: &[u8], wire: &mut Vec<u8>) {
    let len = u16::try_from(record.len()).unwrap_or(u16::MAX);
    wire.extend_from_slice(&len.to_be_bytes());
    wire.extend(record.iter().map(|byte| byte ^ MASK));
}

fn take_record(wire: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = wire.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))
}

impl TlsSession for FakeTls {
    fn open(
        &mut self,
        received: &[u8],
        plain: &mut Vec<u8>,
        wire: &mut Vec<u8>,
    ) -> Result<TlsState, LayerFault> {
        self.ciphertext.extend_from_slice(received);
        if self.info.is_none() {
            let len = self.ciphertext.len().min(HELLO.len());
            // A GET in clear text begins with this byte.
            if self.ciphertext[0] == b'G' {
                return Err(LayerFault::ClearText);
            }
            if self.ciphertext[..len] != HELLO[..len] {
                wire.extend_from_slice(b"ALERT\n");
                return Err(LayerFault::Broken);
            }
            if len < HELLO.len() {
                return Ok(TlsState::Handshake);
            }
            wire.extend_from_slice(WELCOME);
            self.ciphertext.drain(..len);
        }
        let secured = self.info.get_or_insert_default().clone();
        loop {
            if self.ciphertext.starts_with(&ANOTHER_MASK) {
                self.ciphertext.drain(..ANOTHER_MASK.len());
                // Only the world's mask, like the kernel's key, can't be changed.
                self.is_key_worn |= self.is_offloaded;
                continue;
            }
            let Some((record, rest)) = take_record(&self.ciphertext) else {
                return Ok(TlsState::Ready(secured));
            };
            if record.is_empty() {
                return Ok(TlsState::Ended);
            }
            plain.extend(record.iter().map(|byte| byte ^ MASK));
            self.ciphertext = rest.to_vec();
        }
    }

    fn encrypt(&mut self, pieces: &[&[u8]], _now_ms: u64, wire: &mut Vec<u8>) -> usize {
        // Otherwise the bytes would be masked twice.
        assert!(!self.is_offloaded, "the world does that");
        let records = pieces.iter().flat_map(|piece| piece.chunks(RECORD_LEN_MAX));
        let mut len = 0;
        for record in records.filter(|it| !it.is_empty()).take(RECORDS_MAX) {
            write_record(record, wire);
            len += record.len();
        }
        len
    }

    fn close(&mut self, wire: &mut Vec<u8>) {
        match self.is_offloaded {
            true => wire.extend_from_slice(FakeTls::END),
            false => write_record(&[], wire),
        }
    }

    fn offload(&mut self, len: u64, enable: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.is_offloaded = len >= OFFLOAD_LEN && enable(FakeTls::KEYS);
        self.is_offloaded
    }

    fn is_key_worn(&self) -> bool {
        self.is_key_worn
    }
}
