//! The records of a connection of TLS 1.3 once both sides have agreed: sealed and opened in the caller's buffers, without a
//! copy or memory for each. RFC 8446, section 5; what else may come then, section 4.6.3 (key updates) and section 6 (alerts).
//!
//! `rustls` makes the secrets, here and after a key update.

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce,
    UnboundKey,
};
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use rustls::{AlertDescription, ConnectionTrafficSecrets, Error, InvalidMessage, PeerMisbehaved};

use crate::failure::{Failure, Fault};
use crate::key_update::{KEY_UPDATE, KeyUpdateReader};
use crate::ktls::{ALERT, CryptoInfo};
use crate::pieces::Pieces;
use crate::records::{FULL_LEN, Records};
use crate::session::{Ended, HEADER_LEN, Progress, missing_len};

/// Types of records.
pub(crate) const HANDSHAKE: u8 = 22;
pub(crate) const APPLICATION_DATA: u8 = 23;
const FATAL: u8 = 2;
const WARNING: u8 = 1;
const TAG_LEN: usize = 16;
/// Bytes of an encrypted record behind its header, at most (RFC 8446, section 5.2).
pub(crate) const SEALED_LEN_MAX: usize = FULL_LEN + 256;
/// Records that one key seals: far below what AES-GCM allows (RFC 8446, section 5.5).
const SEALED_MAX: u64 = 1 << 23;
/// Key updates that a client may ask us for; each costs more than it costs the client.
const UPDATES_MAX: u8 = 32;

/// A connection.
pub(crate) struct Settled {
    connection: KernelConnection<ServerConnectionData>,
    sealing: Sealing,
    to_receive: Key,
    /// The start of a record that has not come whole. Without memory when it is empty.
    pending: Vec<u8>,
    records: Records,
    key_update: KeyUpdateReader,
    updates_left: u8,
    /// The client has said its last.
    closed: bool,
    failed: bool,
}

/// Who seals what is sent.
enum Sealing {
    /// We, with this key; the secrets that it is of, for the kernel.
    Ours(Key, ConnectionTrafficSecrets),
    Kernel {
        /// The client wants that another key is used.
        is_worn: bool,
        /// An alert was said.
        is_over: bool,
    },
}

/// What records of one direction are sealed with.
struct Key {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    sequence: u64,
}

impl Settled {
    /// Goes on with what both sides have agreed on.
    pub fn new(
        connection: KernelConnection<ServerConnectionData>,
        to_send: (u64, ConnectionTrafficSecrets),
        to_receive: (u64, ConnectionTrafficSecrets),
        pending: Vec<u8>,
        records: Records,
    ) -> Result<Settled, Failure> {
        Ok(Settled {
            connection,
            sealing: Sealing::ours(to_send)?,
            to_receive: Key::new(&to_receive)?,
            pending,
            records,
            key_update: KeyUpdateReader::default(),
            updates_left: UPDATES_MAX,
            closed: false,
            failed: false,
        })
    }

    /// See [`crate::Server::receive`].
    pub fn receive(
        &mut self,
        wire: &mut [u8],
        plain: &mut Vec<u8>,
        to_send: &mut Vec<u8>,
    ) -> Result<Progress, Failure> {
        if self.failed || self.closed {
            return Ok(Progress::default());
        }
        let taken = self.take(wire, plain, to_send);
        if self.closed || taken.is_err() {
            self.pending = Vec::new();
        }
        taken.map_err(|error| self.give_up(error, to_send))?;
        Ok(Progress {
            established: false,
            closed: self.closed,
        })
    }

    /// What waits is completed first; all else is opened where it lies.
    fn take(
        &mut self,
        wire: &mut [u8],
        plain: &mut Vec<u8>,
        to_send: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let mut rest = wire;
        while !self.pending.is_empty() && !rest.is_empty() {
            let (now, later) = rest.split_at_mut(missing_len(&self.pending).min(rest.len()));
            rest = later;
            let mut pending = std::mem::take(&mut self.pending);
            pending.extend_from_slice(now);
            if self.open_all(&mut pending, plain, to_send)? == 0 {
                self.pending = pending;
            }
        }
        let used = self.open_all(rest, plain, to_send)?;
        if used < rest.len() && !self.closed {
            self.pending = rest[used..].to_vec();
        }
        Ok(())
    }

    /// Opens the records that are whole. Gives how many bytes those were.
    fn open_all(
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
            if header[0] != APPLICATION_DATA {
                return Err(PeerMisbehaved::IllegalMiddleboxChangeCipherSpec.into());
            }
            if len > SEALED_LEN_MAX {
                return Err(Error::PeerSentOversizedRecord);
            }
            let Some(record) = rest.get_mut(..len) else {
                break;
            };
            let opened = self.to_receive.open(*header, record)?;
            used += HEADER_LEN + len;
            self.understand(opened, plain, to_send)?;
        }
        Ok(used)
    }

    /// A record that was opened: content, type, and zeros.
    fn understand(
        &mut self,
        opened: &[u8],
        plain: &mut Vec<u8>,
        to_send: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let end = opened.iter().rposition(|byte| *byte != 0);
        let end = end.ok_or(PeerMisbehaved::IllegalTlsInnerPlaintext)?;
        let content = &opened[..end];
        if content.len() > FULL_LEN {
            return Err(Error::PeerSentOversizedRecord);
        }
        let kind = opened[end];
        // RFC 8446, section 5.1.
        if self.key_update.has_started() && kind != HANDSHAKE {
            return Err(PeerMisbehaved::MessageInterleavedWithHandshakeMessage.into());
        }
        match (kind, content) {
            (APPLICATION_DATA, content) => plain.extend_from_slice(content),
            (ALERT, [_, alert]) => match AlertDescription::from(*alert) {
                AlertDescription::CloseNotify => self.closed = true,
                // It is followed by close_notify.
                AlertDescription::UserCanceled => {}
                alert => return Err(Error::AlertReceived(alert)),
            },
            (HANDSHAKE, content) => {
                if let Some(wanted) = self.key_update.read(content)? {
                    self.update_to_receive(wanted, to_send)?;
                }
            }
            _ => return Err(InvalidMessage::InvalidContentType.into()),
        }
        Ok(())
    }

    /// The client seals with its next key from now on, and may want that we do so, too.
    fn update_to_receive(&mut self, wanted: bool, to_send: &mut Vec<u8>) -> Result<(), Error> {
        let left = self.updates_left.checked_sub(1);
        self.updates_left = left.ok_or(PeerMisbehaved::TooManyKeyUpdateRequests)?;
        let secrets = self.connection.update_rx_secret()?;
        self.to_receive = Key::new(&secrets).map_err(|_| Error::General("a key".into()))?;
        match &mut self.sealing {
            Sealing::Ours(..) if wanted => self.update_to_send(to_send),
            Sealing::Kernel { is_worn, .. } => {
                *is_worn |= wanted;
                Ok(())
            }
            Sealing::Ours(..) => Ok(()),
        }
    }

    /// Says that we seal with our next key from now on.
    fn update_to_send(&mut self, to_send: &mut Vec<u8>) -> Result<(), Error> {
        if let Sealing::Ours(key, _) = &mut self.sealing {
            key.seal_short(HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 0], to_send)?;
        }
        let secrets = self.connection.update_tx_secret()?;
        self.sealing = Sealing::ours(secrets).map_err(|_| Error::General("a key".into()))?;
        Ok(())
    }

    /// Tells the client why it is over.
    fn give_up(&mut self, error: Error, to_send: &mut Vec<u8>) -> Failure {
        self.failed = true;
        if !matches!(error, Error::AlertReceived(_)) {
            let alert = [FATAL, u8::from(alert_of(&error))];
            // It is over all the same.
            let _ = self.sealing.alert(alert, to_send);
        }
        Failure::of(error)
    }

    /// See [`crate::Server::seal`].
    pub fn seal(
        &mut self,
        pieces: &[&[u8]],
        to_send: &mut Vec<u8>,
        now_ms: u64,
    ) -> Result<(), Failure> {
        if self.failed {
            return Err(Fault::NotReady.into());
        }
        let mut small = self.records.begin(now_ms);
        let mut waiting: usize = pieces.iter().map(|piece| piece.len()).sum();
        let mut pieces = Pieces::new(pieces);
        // Room for all of it at once, so that memory grows at most once.
        let overhead = HEADER_LEN + 1 + TAG_LEN;
        to_send.reserve(waiting + (waiting / FULL_LEN + 2) * overhead);
        while waiting > 0 {
            let len = Records::len(std::mem::take(&mut small), waiting);
            if self.sealing.is_used_up() {
                self.update_to_send(to_send).map_err(Failure::of)?;
            }
            let Sealing::Ours(key, _) = &mut self.sealing else {
                return Err(Fault::NotReady.into());
            };
            let write = |to: &mut Vec<u8>| pieces.append(len, to);
            key.seal(APPLICATION_DATA, len, write, to_send)
                .map_err(Failure::of)?;
            waiting -= len;
        }
        Ok(())
    }

    /// See [`crate::Server::close`].
    pub fn close(&mut self, to_send: &mut Vec<u8>) -> Result<(), Failure> {
        if self.failed {
            return Err(Fault::NotReady.into());
        }
        let alert = [WARNING, u8::from(AlertDescription::CloseNotify)];
        self.sealing.alert(alert, to_send).map_err(Failure::of)
    }

    /// See [`crate::Server::kernel_keys`].
    pub fn kernel_keys(&self) -> Option<CryptoInfo> {
        match &self.sealing {
            Sealing::Ours(key, secrets) if !self.failed => CryptoInfo::new(key.sequence, secrets),
            _ => None,
        }
    }

    /// See [`crate::Server::leave_to_kernel`].
    pub fn leave_to_kernel(&mut self) {
        self.sealing = Sealing::Kernel {
            is_worn: false,
            is_over: false,
        };
    }

    /// See [`crate::Server::is_worn`].
    pub fn is_worn(&self) -> bool {
        matches!(self.sealing, Sealing::Kernel { is_worn: true, .. })
    }

    /// See [`crate::Server::ended`].
    pub fn ended(&self) -> Ended {
        match self.closed {
            true => Ended::Cleanly,
            false => Ended::Truncated,
        }
    }
}

impl Sealing {
    fn ours(secrets: (u64, ConnectionTrafficSecrets)) -> Result<Sealing, Failure> {
        let key = Key::new(&secrets)?;
        Ok(Sealing::Ours(key, secrets.1))
    }

    /// Whether the key has sealed as many records as it may.
    fn is_used_up(&self) -> bool {
        matches!(self, Sealing::Ours(key, _) if key.sequence >= SEALED_MAX)
    }

    /// Adds an alert to `to_send`: its record, or its content for the kernel, which may seal but one, the last that is said.
    fn alert(&mut self, alert: [u8; 2], to_send: &mut Vec<u8>) -> Result<(), Error> {
        match self {
            Sealing::Ours(key, _) => return key.seal_short(ALERT, &alert, to_send),
            Sealing::Kernel { is_over, .. } if *is_over => {}
            Sealing::Kernel { is_over, .. } => {
                *is_over = true;
                to_send.extend_from_slice(&alert);
            }
        }
        Ok(())
    }
}

impl Key {
    fn new((sequence, secrets): &(u64, ConnectionTrafficSecrets)) -> Result<Key, Failure> {
        use ConnectionTrafficSecrets::{Aes128Gcm, Aes256Gcm, Chacha20Poly1305};
        let (algorithm, key, iv): (&'static Algorithm, _, _) = match secrets {
            Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return Err(Fault::Internal.into()),
        };
        let key = UnboundKey::new(algorithm, key.as_ref());
        let iv = <[u8; NONCE_LEN]>::try_from(iv.as_ref());
        match (key, iv) {
            (Ok(key), Ok(iv)) => Ok(Key {
                key: LessSafeKey::new(key),
                iv,
                sequence: *sequence,
            }),
            _ => Err(Fault::Internal.into()),
        }
    }

    /// That of the next record (RFC 8446, section 5.3).
    fn nonce(&mut self) -> Nonce {
        let mut nonce = self.iv;
        let number = self.sequence.to_be_bytes();
        for (byte, number) in nonce[NONCE_LEN - number.len()..].iter_mut().zip(number) {
            *byte ^= number;
        }
        self.sequence += 1;
        Nonce::assume_unique_for_key(nonce)
    }

    /// Adds a record to `to_send` whose `len` bytes `write` adds.
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
        to_send.push(kind);
        let (nonce, aad) = (self.nonce(), Aad::from(header));
        let sealed = self
            .key
            .seal_in_place_separate_tag(nonce, aad, &mut to_send[start..]);
        match sealed {
            Ok(tag) => to_send.extend_from_slice(tag.as_ref()),
            Err(_) => {
                // In plain text it must not leave.
                to_send.truncate(start - HEADER_LEN);
                return Err(Error::EncryptError);
            }
        }
        Ok(())
    }

    fn seal_short(&mut self, kind: u8, text: &[u8], to_send: &mut Vec<u8>) -> Result<(), Error> {
        let write = |to: &mut Vec<u8>| to.extend_from_slice(text);
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

/// What the client is told of an error.
fn alert_of(error: &Error) -> AlertDescription {
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
