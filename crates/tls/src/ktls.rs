//! Kernel TLS: the keys for a socket on which the kernel encrypts the sent records, as `struct tls12_crypto_info_*` of
//! linux/tls.h.
//!
//! The caller sets the socket options: [`TCP_ULP`] of [`SOL_TCP`] to [`ULP_NAME`], then [`TLS_TX`] of [`SOL_TLS`] to
//! [`CryptoInfo::as_bytes`]. From then on, bytes written to the socket are application data; records of other types are
//! sent with [`TLS_SET_RECORD_TYPE`]. The options can't be unset. Received records are still decrypted by
//! `TlsServer::receive`.

use rustls::ConnectionTrafficSecrets;
use zeroize::Zeroize;

/// Socket option level of TCP.
pub const SOL_TCP: i32 = 6;
/// Option: the upper layer protocol of a socket.
pub const TCP_ULP: i32 = 31;
/// The upper layer protocol's name.
pub const ULP_NAME: &[u8] = b"tls";
/// Socket option level of TLS.
pub const SOL_TLS: i32 = 282;
/// Option: the keys for sending.
pub const TLS_TX: i32 = 1;
/// Ancillary data of sendmsg(2): the type of the record.
pub const TLS_SET_RECORD_TYPE: i32 = 1;
/// The record type of alerts.
pub const ALERT: u8 = 21;

const TLS_1_3: u16 = 0x0304;
const AES_GCM_128: u16 = 51;
const AES_GCM_256: u16 = 52;
const CHACHA20_POLY1305: u16 = 54;

/// The bytes of a `struct tls12_crypto_info_*`; secret, zeroed when dropped.
pub struct CryptoInfo {
    bytes: [u8; CryptoInfo::LEN_MAX],
    len: usize,
}

impl CryptoInfo {
    /// The size for AES-256-GCM: version and cipher of two bytes each, nonce, key, salt and sequence number.
    const LEN_MAX: usize = 4 + 12 + 32 + 8;

    /// The value of the socket option.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The keys of a TLS 1.3 connection, with this sequence number for the next record; `None` if the kernel lacks
    /// the cipher.
    pub(crate) fn new(sequence: u64, secrets: &ConnectionTrafficSecrets) -> Option<CryptoInfo> {
        // The kernel takes the nonce of AES in two parts: the fixed first four bytes are the salt.
        Some(match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => {
                let (salt, iv) = iv.as_ref().split_at(4);
                CryptoInfo::from_parts(AES_GCM_128, iv, key.as_ref(), salt, sequence)
            }
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => {
                let (salt, iv) = iv.as_ref().split_at(4);
                CryptoInfo::from_parts(AES_GCM_256, iv, key.as_ref(), salt, sequence)
            }
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
                let (iv, key) = (iv.as_ref(), key.as_ref());
                CryptoInfo::from_parts(CHACHA20_POLY1305, iv, key, &[], sequence)
            }
            _ => return None,
        })
    }

    fn from_parts(cipher: u16, iv: &[u8], key: &[u8], salt: &[u8], sequence: u64) -> CryptoInfo {
        let mut info = CryptoInfo {
            bytes: [0; CryptoInfo::LEN_MAX],
            len: 0,
        };
        info.append(&TLS_1_3.to_ne_bytes());
        info.append(&cipher.to_ne_bytes());
        info.append(iv);
        info.append(key);
        info.append(salt);
        info.append(&sequence.to_be_bytes());
        info
    }

    fn append(&mut self, field: &[u8]) {
        self.bytes[self.len..self.len + field.len()].copy_from_slice(field);
        self.len += field.len();
    }
}

impl Drop for CryptoInfo {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}
