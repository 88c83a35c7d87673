//! What the kernel is told so that it seals what a connection sends: `struct tls12_crypto_info_*` of linux/tls.h, as bytes.
//! The socket options are set by whoever has the socket: [`TCP_ULP`] of [`SOL_TCP`] with [`ULP_NAME`], then [`TLS_TX`] of
//! [`SOL_TLS`] with [`CryptoInfo::as_bytes`].
//!
//! From then on the socket takes the application's bytes, and records of other types with [`TLS_SET_RECORD_TYPE`]. It can't
//! be undone. What is received stays with [`crate::Server::receive`].

use rustls::ConnectionTrafficSecrets;
use zeroize::Zeroize;

/// Level of options of TCP.
pub const SOL_TCP: i32 = 6;
/// Which protocol lies on top of it.
pub const TCP_ULP: i32 = 31;
/// Its name.
pub const ULP_NAME: &[u8] = b"tls";
/// Level of options of TLS.
pub const SOL_TLS: i32 = 282;
/// The secrets to send with.
pub const TLS_TX: i32 = 1;
/// Ancillary data of a send: the type of its record.
pub const TLS_SET_RECORD_TYPE: i32 = 1;
/// The type of alerts.
pub const ALERT: u8 = 21;

const TLS_1_3: u16 = 0x0304;
const AES_GCM_128: u16 = 51;
const AES_GCM_256: u16 = 52;
const CHACHA20_POLY1305: u16 = 54;

/// A `struct tls12_crypto_info_*`. Secret.
pub struct CryptoInfo {
    bytes: [u8; CryptoInfo::LEN_MAX],
    len: usize,
}

impl CryptoInfo {
    /// AES-256: four numbers of two bytes, nonce, key, salt and sequence.
    const LEN_MAX: usize = 4 + 12 + 32 + 8;

    /// What is handed to the kernel.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// For a connection of TLS 1.3 whose next record has this number. `None`: of a kind that the kernel does not know.
    pub(crate) fn new(sequence: u64, secrets: &ConnectionTrafficSecrets) -> Option<CryptoInfo> {
        // The kernel has the nonce of AES in two parts: what stays for the connection is the salt.
        Some(match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => {
                let (salt, iv) = iv.as_ref().split_at(4);
                CryptoInfo::of(AES_GCM_128, iv, key.as_ref(), salt, sequence)
            }
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => {
                let (salt, iv) = iv.as_ref().split_at(4);
                CryptoInfo::of(AES_GCM_256, iv, key.as_ref(), salt, sequence)
            }
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
                let (iv, key) = (iv.as_ref(), key.as_ref());
                CryptoInfo::of(CHACHA20_POLY1305, iv, key, &[], sequence)
            }
            _ => return None,
        })
    }

    fn of(cipher: u16, iv: &[u8], key: &[u8], salt: &[u8], sequence: u64) -> CryptoInfo {
        let mut info = CryptoInfo {
            bytes: [0; CryptoInfo::LEN_MAX],
            len: 0,
        };
        info.put(&TLS_1_3.to_ne_bytes());
        info.put(&cipher.to_ne_bytes());
        info.put(iv);
        info.put(key);
        info.put(salt);
        info.put(&sequence.to_be_bytes());
        info
    }

    fn put(&mut self, field: &[u8]) {
        self.bytes[self.len..self.len + field.len()].copy_from_slice(field);
        self.len += field.len();
    }
}

impl Drop for CryptoInfo {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}
