//! The record layer of an established TLS 1.3 connection: encrypts and decrypts in the caller's buffers, without copies
//! or allocations (RFC 8446, section 5). Also handles the other messages of this stage: key updates (section 4.6.3) and
//! alerts (section 6).
//!
//! `rustls` derives the secrets, after the handshake and for each key update.

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce,
    UnboundKey,
};
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use rustls::{
    AlertDescription, ConnectionTrafficSecrets, Error, ExtractedSecrets, InvalidMessage,
    PeerMisbehaved,
};

use crate::byte_queue::ByteQueue;
use crate::failure::{TlsFailure, TlsFault};
use crate::key_update::{KEY_UPDATE, KeyUpdateReader};
use crate::ktls::{ALERT, CryptoInfo};
use crate::records::{FULL_LEN, RecordSizer};
use crate::session::{HEADER_LEN, PeerClose, ReceiveProgress, missing_len};

/// Record types.
pub(crate) const HANDSHAKE: u8 = 22;
pub(crate) const APPLICATION_DATA: u8 = 23;
const FATAL: u8 = 2;
const WARNING: u8 = 1;
const TAG_LEN: usize = 16;
/// The longest encrypted record, without its header (RFC 8446, section 5.2).
pub(crate) const SEALED_LEN_MAX: usize = FULL_LEN + 256;
/// Records encrypted with one key: far below the limit of AES-GCM (RFC 8446, section 5.5).
const RECORDS_PER_KEY_MAX: u64 = 1 << 23;
/// Key updates accepted from a client; each costs the server more work than the client.
const UPDATES_MAX: u8 = 32;

/// An established connection.
pub(crate) struct EstablishedSession {
    connection: KernelConnection<ServerConnectionData>,
    encryption: EncryptionState,
    to_receive: TrafficKey,
    /// The start of an incomplete record. Unallocated while empty.
    pending: Vec<u8>,
    records: RecordSizer,
    key_update: KeyUpdateReader,
    updates_remaining: u8,
    /// The client sent close_notify.
    closed: bool,
    failed: bool,
}

/// The encryption of sent records: in this process, or in the kernel.
enum EncryptionState {
    /// This process encrypts with this key. The secrets are kept for [`CryptoInfo`], if the kernel takes over.
    UserSpace(TrafficKey, ConnectionTrafficSecrets),
    Kernel {
        /// The client requested a key update.
        is_key_update_requested: bool,
        /// An alert was sent.
        is_ended: bool,
    },
}

/// The key of one direction.
struct TrafficKey {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    sequence: u64,
}

impl EstablishedSession {
    /// Takes over a connection after the handshake, with the secrets of both directions.
    pub fn new(
        connection: KernelConnection<ServerConnectionData>,
        secrets: ExtractedSecrets,
        pending: Vec<u8>,
        records: RecordSizer,
    ) -> Result<EstablishedSession, TlsFailure> {
        let (send_sequence, send_secrets) = secrets.tx;
        let (receive_sequence, receive_secrets) = secrets.rx;
        Ok(EstablishedSession {
            connection,
            encryption: EncryptionState::user_space(send_sequence, send_secrets)?,
            to_receive: TrafficKey::new(receive_sequence, &receive_secrets)?,
            pending,
            records,
            key_update: KeyUpdateReader::default(),
            updates_remaining: UPDATES_MAX,
            closed: false,
            failed: false,
        })
    }

    /// See `TlsServer::receive`.
    pub fn receive(
        &mut self,
        wire: &mut [u8],
        plain: &mut Vec<u8>,
        to_send: &mut Vec<u8>,
    ) -> Result<ReceiveProgress, TlsFailure> {
        // Input after close_notify or a failure is ignored (RFC 8446, sections 6.1 and 6.2).
        if self.failed || self.closed {
            return Ok(ReceiveProgress::default());
        }
        let result = self.decrypt_records(wire, plain, to_send);
        if self.closed || result.is_err() {
            // Frees the buffer now: no further input is processed.
            self.pending = Vec::new();
        }
        result.map_err(|error| self.fail(error, to_send))?;
        Ok(ReceiveProgress {
            established: false,
            closed: self.closed,
        })
    }

    /// Completes the pending record, then decrypts the rest of `wire` in place.
    fn decrypt_records(
        &mut self,
        wire: &mut [u8],
        plain: &mut Vec<u8>,
        to_send: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let mut rest = wire;
        while !self.pending.is_empty() && !rest.is_empty() {
            // `now` ends with the pending record, so that the bytes after the record need no copy.
            let (now, remaining) = rest.split_at_mut(missing_len(&self.pending).min(rest.len()));
            rest = remaining;
            let mut pending = std::mem::take(&mut self.pending);
            pending.extend_from_slice(now);
            if self.decrypt_complete_records(&mut pending, plain, to_send)? == 0 {
                self.pending = pending;
            }
        }
        let used = self.decrypt_complete_records(rest, plain, to_send)?;
        // Bytes after close_notify are ignored.
        if used < rest.len() && !self.closed {
            self.pending = rest[used..].to_vec();
        }
        Ok(())
    }

    /// Decrypts the complete records in `wire`. Returns their total length in bytes.
    fn decrypt_complete_records(
        &mut self,
        wire: &mut [u8],
        plain: &mut Vec<u8>,
        to_send: &mut Vec<u8>,
    ) -> Result<usize, Error> {
        let mut used = 0;
        while !self.closed
            && let Some((header, rest)) = wire[used..].split_first_chunk_mut::<HEADER_LEN>()
        {
            let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
            // After the handshake all records are encrypted and have this outer type (RFC 8446, section 5.2).
            if header[0] != APPLICATION_DATA {
                return Err(PeerMisbehaved::IllegalMiddleboxChangeCipherSpec.into());
            }
            // The length is checked before the record is complete, so that the buffer stays bounded.
            if len > SEALED_LEN_MAX {
                return Err(Error::PeerSentOversizedRecord);
            }
            // An incomplete record ends the loop.
            let Some(record) = rest.get_mut(..len) else {
                break;
            };
            // The header is the additional authenticated data (RFC 8446, section 5.2).
            let opened = self.to_receive.open(*header, record)?;
            used += HEADER_LEN + len;
            self.process_record(opened, plain, to_send)?;
        }
        Ok(used)
    }

    /// Processes a decrypted record: its content, content type and zero padding.
    fn process_record(
        &mut self,
        opened: &[u8],
        plain: &mut Vec<u8>,
        to_send: &mut Vec<u8>,
    ) -> Result<(), Error> {
        // RFC 8446, section 5.4: the content type is the last byte that isn't zero.
        let end = opened.iter().rposition(|byte| *byte != 0);
        let end = end.ok_or(PeerMisbehaved::IllegalTlsInnerPlaintext)?;
        let content = &opened[..end];
        // The limit applies to the content without padding (RFC 8446, section 5.4).
        if content.len() > FULL_LEN {
            return Err(Error::PeerSentOversizedRecord);
        }
        let kind = opened[end];
        // RFC 8446, section 5.1: no other record may come between the fragments of a handshake message.
        if self.key_update.has_started() && kind != HANDSHAKE {
            return Err(PeerMisbehaved::MessageInterleavedWithHandshakeMessage.into());
        }
        match (kind, content) {
            (APPLICATION_DATA, content) => plain.extend_from_slice(content),
            (ALERT, [_, alert]) => match AlertDescription::from(*alert) {
                AlertDescription::CloseNotify => self.closed = true,
                // user_canceled is followed by close_notify (RFC 8446, section 6.1).
                AlertDescription::UserCanceled => {}
                alert => return Err(Error::AlertReceived(alert)),
            },
            (HANDSHAKE, content) => {
                if let Some(is_update_requested) = self.key_update.read(content)? {
                    self.update_to_receive(is_update_requested, to_send)?;
                }
            }
            _ => return Err(InvalidMessage::InvalidContentType.into()),
        }
        Ok(())
    }

    /// Handles a client's key update: the client sends with its next key from now on, and may request the same of the
    /// server.
    fn update_to_receive(
        &mut self,
        is_update_requested: bool,
        to_send: &mut Vec<u8>,
    ) -> Result<(), Error> {
        // Each update costs the server a key derivation, and the client almost nothing.
        let remaining = self.updates_remaining.checked_sub(1);
        self.updates_remaining = remaining.ok_or(PeerMisbehaved::TooManyKeyUpdateRequests)?;
        let (sequence, secrets) = self.connection.update_rx_secret()?;
        self.to_receive =
            TrafficKey::new(sequence, &secrets).map_err(|_| Error::General("a key".into()))?;
        match &mut self.encryption {
            EncryptionState::UserSpace(..) if is_update_requested => self.update_to_send(to_send),
            // The kernel's key can't be changed here, so the connection closes after the responses in progress.
            EncryptionState::Kernel {
                is_key_update_requested: is_key_worn,
                ..
            } => {
                *is_key_worn |= is_update_requested;
                Ok(())
            }
            EncryptionState::UserSpace(..) => Ok(()),
        }
    }

    /// Sends a KeyUpdate and switches to the next key.
    fn update_to_send(&mut self, to_send: &mut Vec<u8>) -> Result<(), Error> {
        // The KeyUpdate itself is encrypted with the old key (RFC 8446, section 4.6.3).
        if let EncryptionState::UserSpace(key, _) = &mut self.encryption {
            key.seal_short(HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 0], to_send)?;
        }
        let (sequence, secrets) = self.connection.update_tx_secret()?;
        // The new key's sequence numbers start at 0.
        self.encryption = EncryptionState::user_space(sequence, secrets)
            .map_err(|_| Error::General("a key".into()))?;
        Ok(())
    }

    /// Appends the alert for an error and marks the connection as failed.
    fn fail(&mut self, error: Error, to_send: &mut Vec<u8>) -> TlsFailure {
        self.failed = true;
        // A received alert is not answered with an alert.
        if !matches!(error, Error::AlertReceived(_)) {
            let alert = [FATAL, u8::from(alert_for(&error))];
            // If the alert cannot be encrypted, the connection ends without it.
            let _ = self.encryption.alert(alert, to_send);
        }
        TlsFailure::from_error(error)
    }

    /// See `TlsServer::encrypt`.
    pub fn encrypt(
        &mut self,
        pieces: &[&[u8]],
        to_send: &mut Vec<u8>,
        now_ms: u64,
    ) -> Result<(), TlsFailure> {
        if self.failed {
            return Err(TlsFault::NotReady.into());
        }
        let mut small = self.records.record_send(now_ms);
        let mut remaining: usize = pieces.iter().map(|piece| piece.len()).sum();
        let mut pieces = ByteQueue::new(pieces);
        // One reservation for all records, so that `to_send` is reallocated at most once.
        let overhead = HEADER_LEN + 1 + TAG_LEN;
        to_send.reserve(remaining + (remaining / FULL_LEN + 2) * overhead);
        while remaining > 0 {
            let len = RecordSizer::len(std::mem::take(&mut small), remaining);
            // The key is replaced before it reaches its limit (RFC 8446, section 5.5).
            if self.encryption.is_used_up() {
                self.update_to_send(to_send)
                    .map_err(TlsFailure::from_error)?;
            }
            let EncryptionState::UserSpace(key, _) = &mut self.encryption else {
                return Err(TlsFault::NotReady.into());
            };
            let write = |out: &mut Vec<u8>| pieces.append(len, out);
            key.seal(APPLICATION_DATA, len, write, to_send)
                .map_err(TlsFailure::from_error)?;
            remaining -= len;
        }
        Ok(())
    }

    /// See `TlsServer::close`.
    pub fn close(&mut self, to_send: &mut Vec<u8>) -> Result<(), TlsFailure> {
        if self.failed {
            return Err(TlsFault::NotReady.into());
        }
        let alert = [WARNING, u8::from(AlertDescription::CloseNotify)];
        self.encryption
            .alert(alert, to_send)
            .map_err(TlsFailure::from_error)
    }

    /// See `TlsServer::kernel_keys`.
    pub fn kernel_keys(&self) -> Option<CryptoInfo> {
        match &self.encryption {
            EncryptionState::UserSpace(key, secrets) if !self.failed => {
                CryptoInfo::new(key.sequence, secrets)
            }
            _ => None,
        }
    }

    /// See `TlsServer::leave_to_kernel`.
    pub fn leave_to_kernel(&mut self) {
        // The keys are dropped here: this process must never encrypt with a sequence number, and thus a nonce, that the
        // kernel uses.
        self.encryption = EncryptionState::Kernel {
            is_key_update_requested: false,
            is_ended: false,
        };
    }

    /// See `TlsServer::is_key_update_requested`.
    pub fn is_key_update_requested(&self) -> bool {
        matches!(
            self.encryption,
            EncryptionState::Kernel {
                is_key_update_requested: true,
                ..
            }
        )
    }

    /// See `TlsServer::peer_close`.
    pub fn peer_close(&self) -> PeerClose {
        match self.closed {
            true => PeerClose::Cleanly,
            false => PeerClose::Truncated,
        }
    }
}

impl EncryptionState {
    fn user_space(
        sequence: u64,
        secrets: ConnectionTrafficSecrets,
    ) -> Result<EncryptionState, TlsFailure> {
        let key = TrafficKey::new(sequence, &secrets)?;
        Ok(EncryptionState::UserSpace(key, secrets))
    }

    /// Whether the key has encrypted as many records as it may.
    fn is_used_up(&self) -> bool {
        matches!(self, EncryptionState::UserSpace(key, _) if key.sequence >= RECORDS_PER_KEY_MAX)
    }

    /// Appends an alert: as an encrypted record, or for the kernel as plaintext content. The kernel sends only one
    /// alert, as the last record.
    fn alert(&mut self, alert: [u8; 2], to_send: &mut Vec<u8>) -> Result<(), Error> {
        match self {
            EncryptionState::UserSpace(key, _) => return key.seal_short(ALERT, &alert, to_send),
            EncryptionState::Kernel { is_ended, .. } if *is_ended => {}
            EncryptionState::Kernel { is_ended, .. } => {
                *is_ended = true;
                to_send.extend_from_slice(&alert);
            }
        }
        Ok(())
    }
}

impl TrafficKey {
    fn new(sequence: u64, secrets: &ConnectionTrafficSecrets) -> Result<TrafficKey, TlsFailure> {
        use ConnectionTrafficSecrets::{Aes128Gcm, Aes256Gcm, Chacha20Poly1305};
        let (algorithm, key, iv): (&'static Algorithm, _, _) = match secrets {
            Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return Err(TlsFault::Internal.into()),
        };
        let key = UnboundKey::new(algorithm, key.as_ref());
        let iv = <[u8; NONCE_LEN]>::try_from(iv.as_ref());
        match (key, iv) {
            (Ok(key), Ok(iv)) => Ok(TrafficKey {
                key: LessSafeKey::new(key),
                iv,
                sequence,
            }),
            _ => Err(TlsFault::Internal.into()),
        }
    }

    /// The nonce of the next record (RFC 8446, section 5.3).
    fn nonce(&mut self) -> Nonce {
        let mut nonce = self.iv;
        let number = self.sequence.to_be_bytes();
        for (byte, number) in nonce[NONCE_LEN - number.len()..].iter_mut().zip(number) {
            *byte ^= number;
        }
        self.sequence += 1;
        Nonce::assume_unique_for_key(nonce)
    }

    /// Appends an encrypted record with `len` bytes of content, which `write` appends.
    fn seal(
        &mut self,
        kind: u8,
        len: usize,
        write: impl FnOnce(&mut Vec<u8>),
        to_send: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let sealed_len = u16::try_from(len + 1 + TAG_LEN).expect("no record is that long");
        let [high, low] = sealed_len.to_be_bytes();
        let header = [APPLICATION_DATA, 3, 3, high, low];
        to_send.extend_from_slice(&header);
        let start = to_send.len();
        write(to_send);
        // The content type follows the content and is encrypted with it (RFC 8446, section 5.2).
        to_send.push(kind);
        let (nonce, aad) = (self.nonce(), Aad::from(header));
        let sealed = self
            .key
            .seal_in_place_separate_tag(nonce, aad, &mut to_send[start..]);
        match sealed {
            Ok(tag) => to_send.extend_from_slice(tag.as_ref()),
            Err(_) => {
                // The plaintext must not be sent.
                to_send.truncate(start - HEADER_LEN);
                return Err(Error::EncryptError);
            }
        }
        Ok(())
    }

    fn seal_short(&mut self, kind: u8, text: &[u8], to_send: &mut Vec<u8>) -> Result<(), Error> {
        let write = |out: &mut Vec<u8>| out.extend_from_slice(text);
        self.seal(kind, text.len(), write, to_send)
    }

    fn open<'a>(
        &mut self,
        header: [u8; HEADER_LEN],
        record: &'a mut [u8],
    ) -> Result<&'a [u8], Error> {
        let (nonce, aad) = (self.nonce(), Aad::from(header));
        let opened = self.key.open_in_place(nonce, aad, record);
        opened.map(|plain| &*plain).map_err(|_| Error::DecryptError)
    }
}

/// The alert for an error.
fn alert_for(error: &Error) -> AlertDescription {
    match error {
        Error::DecryptError => AlertDescription::BadRecordMac,
        Error::PeerSentOversizedRecord => AlertDescription::RecordOverflow,
        Error::InvalidMessage(InvalidMessage::InvalidKeyUpdate) => {
            AlertDescription::IllegalParameter
        }
        Error::InvalidMessage(InvalidMessage::MissingData(_) | InvalidMessage::TrailingData(_)) => {
            AlertDescription::DecodeError
        }
        Error::InvalidMessage(_)
        | Error::InappropriateHandshakeMessage { .. }
        | Error::PeerMisbehaved(_) => AlertDescription::UnexpectedMessage,
        _ => AlertDescription::InternalError,
    }
}
