//! What the kernel is told so that it goes on with a connection's records by itself: `struct tls12_crypto_info_*` of
//! linux/tls.h, as bytes. The socket options are set by whoever has the socket:
//!
//! 1. [`SOL_TCP`], [`TCP_ULP`], [`ULP_NAME`];
//! 2. [`SOL_TLS`], [`TLS_TX`], [`Offload::to_send`];
//! 3. [`SOL_TLS`], [`TLS_RX`], [`Offload::to_receive`].
//!
//! From then on the socket takes and gives the application's bytes. Records of other types come with
//! [`TLS_GET_RECORD_TYPE`]: alerts, and key updates, for which [`Kernel`] makes the new secrets.

use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use rustls::{ConnectionTrafficSecrets, ProtocolVersion};
use zeroize::Zeroize;

use crate::failure::{Failure, Fault};

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
/// The secrets to receive with.
pub const TLS_RX: i32 = 2;
/// Ancillary data of a send: the type of its record.
pub const TLS_SET_RECORD_TYPE: i32 = 1;
/// Ancillary data of a receive: the type of its record.
pub const TLS_GET_RECORD_TYPE: i32 = 2;

const TLS_1_2: u16 = 0x0303;
const TLS_1_3: u16 = 0x0304;
const AES_GCM_128: u16 = 51;
const AES_GCM_256: u16 = 52;
const CHACHA20_POLY1305: u16 = 54;

/// Whether a kernel can do it, by what it says to `setsockopt(SOL_TCP, TCP_ULP, "tls")` on a TCP socket that is not
/// connected: it looks for the module first, and loads it if it may, and then refuses the socket.
pub fn is_offered(errno: Option<i32>) -> bool {
    const ENOTCONN: i32 = 107;
    matches!(errno, None | Some(ENOTCONN))
}

/// The options for both directions. Secret.
pub struct Offload {
    /// For [`TLS_TX`].
    pub to_send: CryptoInfo,
    /// For [`TLS_RX`].
    pub to_receive: CryptoInfo,
}

/// A `struct tls12_crypto_info_*`.
#[derive(PartialEq, Eq)]
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

    /// `None`: of a kind that the kernel does not know.
    pub(crate) fn new(
        version: ProtocolVersion,
        sequence: u64,
        secrets: &ConnectionTrafficSecrets,
    ) -> Option<CryptoInfo> {
        let version = match version {
            ProtocolVersion::TLSv1_2 => TLS_1_2,
            ProtocolVersion::TLSv1_3 => TLS_1_3,
            _ => return None,
        };
        // The kernel has the nonce of AES in two parts: what stays for the connection is the salt.
        Some(match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => {
                let (salt, iv) = iv.as_ref().split_at(4);
                CryptoInfo::of(version, AES_GCM_128, iv, key.as_ref(), salt, sequence)
            }
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => {
                let (salt, iv) = iv.as_ref().split_at(4);
                CryptoInfo::of(version, AES_GCM_256, iv, key.as_ref(), salt, sequence)
            }
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
                let (iv, key) = (iv.as_ref(), key.as_ref());
                CryptoInfo::of(version, CHACHA20_POLY1305, iv, key, &[], sequence)
            }
            _ => return None,
        })
    }

    fn of(
        version: u16,
        cipher: u16,
        iv: &[u8],
        key: &[u8],
        salt: &[u8],
        sequence: u64,
    ) -> CryptoInfo {
        let mut info = CryptoInfo {
            bytes: [0; CryptoInfo::LEN_MAX],
            len: 0,
        };
        info.put(&version.to_ne_bytes());
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

/// What stays here of a connection that the kernel has: it makes the secrets that follow a key update.
pub struct Kernel(KernelConnection<ServerConnectionData>);

impl Kernel {
    pub(crate) fn new(connection: KernelConnection<ServerConnectionData>) -> Kernel {
        Kernel(connection)
    }

    /// The peer has announced new keys: what to set as [`TLS_RX`].
    ///
    /// # Errors
    /// [`Fault::Internal`]: TLS 1.2 has no key updates.
    pub fn update_to_receive(&mut self) -> Result<CryptoInfo, Failure> {
        let (sequence, secrets) = self.0.update_rx_secret().map_err(Failure::of)?;
        self.info(sequence, &secrets)
    }

    /// We have announced new keys: what to set as [`TLS_TX`].
    ///
    /// # Errors
    /// As above.
    pub fn update_to_send(&mut self) -> Result<CryptoInfo, Failure> {
        let (sequence, secrets) = self.0.update_tx_secret().map_err(Failure::of)?;
        self.info(sequence, &secrets)
    }

    fn info(
        &self,
        sequence: u64,
        secrets: &ConnectionTrafficSecrets,
    ) -> Result<CryptoInfo, Failure> {
        let info = CryptoInfo::new(self.0.protocol_version(), sequence, secrets);
        info.ok_or(Fault::Internal.into())
    }
}
