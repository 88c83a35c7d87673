//! The TLS part of a transport: the session, its state, and unsent encrypted bytes.
//!
//! For the connection, bytes count as sent once they are encrypted, but the connection must not end before the socket
//! has accepted them. The unsent records are those of at most one call of [`TlsSession::encrypt`], and a few that the
//! session sends itself.
//!
//! With kernel TLS, bytes are passed to the socket unchanged, and the session's last alert as a separate record. The
//! use of the kernel's key is counted here, since the session does not see these bytes.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::{Plaintext, TransferOutcome};
use crate::buffer::SendBuffer;
use crate::driver::{ConnectionToken, IoDriver, ReceiveOutcome, SendOutcome};
use crate::file::OpenFile;
use crate::tls_session::{LayerFault, TlsInfo, TlsSession, TlsState};

pub(super) struct TlsTransport {
    session: Box<dyn TlsSession>,
    info: Option<Arc<TlsInfo>>,
    /// Encrypted bytes that the socket has not accepted.
    wire: Vec<u8>,
    /// The number of bytes of `wire` that were sent.
    wire_sent: usize,
    /// The driver has the encrypted bytes, and will return them.
    is_wire_in_flight: bool,
    /// The client has sent close_notify, or the session has failed.
    end: Option<TlsEnd>,
    /// The handshake was completed since the last check.
    is_handshake_done: bool,
    /// close_notify was encrypted.
    is_finished: bool,
    /// Set with kernel TLS; then `wire` is the content of an alert, or empty.
    offloaded: Option<KernelTlsSend>,
}

/// Counts the use of the kernel's key, which can't be changed.
#[derive(Default)]
struct KernelTlsSend {
    /// An upper bound of the number of encrypted records: each contains a page of a file, or is the last of a send.
    records: u64,
    /// The driver or a helper thread is sending.
    is_sending: bool,
    /// The last alert was sent.
    is_ended: bool,
}

impl KernelTlsSend {
    /// The connection ends after the response in which this number of records is reached: a third of the limit for
    /// AES-GCM (RFC 8446, section 5.5).
    const WORN: u64 = 1 << 23;
    /// No record is sent after this many.
    const USED_UP: u64 = 1 << 24;
    const PAGE_LEN: u64 = 4096;

    fn can_send(&self) -> bool {
        !self.is_ended && self.records < Self::USED_UP
    }

    fn push_alert<D: IoDriver>(
        &mut self,
        driver: &mut D,
        socket: &D::Socket,
        alert: &[u8],
    ) -> TransferOutcome {
        // The alert must not overtake data: bytes after close_notify are ignored (RFC 8446 §6.1).
        if self.is_sending {
            return TransferOutcome::Underway;
        }
        match driver.send_alert(socket, alert) {
            SendOutcome::Bytes(wire_len) | SendOutcome::Filled(wire_len) => {
                self.is_ended = true;
                TransferOutcome::Bytes { len: 0, wire_len }
            }
            SendOutcome::Full => TransferOutcome::Full,
            SendOutcome::Underway | SendOutcome::Broken => TransferOutcome::Broken,
        }
    }

    fn record_sent(&mut self, len: u64) {
        self.is_sending = false;
        self.records += len / Self::PAGE_LEN + 1;
    }
}

#[derive(Clone, Copy)]
enum TlsEnd {
    CloseNotify,
    Fault(LayerFault),
}

impl TlsTransport {
    pub fn new(session: Box<dyn TlsSession>) -> TlsTransport {
        TlsTransport {
            session,
            info: None,
            wire: Vec::new(),
            wire_sent: 0,
            is_wire_in_flight: false,
            end: None,
            is_handshake_done: false,
            is_finished: false,
            offloaded: None,
        }
    }

    pub fn is_offloaded(&self) -> bool {
        self.offloaded.is_some()
    }

    pub fn offload<D: IoDriver>(&mut self, driver: &mut D, socket: &D::Socket, len: u64) -> bool {
        // Records that the session has encrypted must be sent before the kernel encrypts.
        if self.is_offloaded() || self.has_encrypted() || self.info.is_none() {
            return false;
        }
        let mut enable = |keys: &[u8]| driver.enable_kernel_tls(socket, keys).is_ok();
        let is_enabled = self.session.offload(len, &mut enable);
        self.offloaded = is_enabled.then(KernelTlsSend::default);
        is_enabled
    }

    /// Counts bytes of a send or transfer that has ended.
    pub fn record_sent(&mut self, len: u64) {
        if let Some(offloaded) = &mut self.offloaded {
            offloaded.record_sent(len);
        }
    }

    /// Starts the transfer of a file that the kernel encrypts. Fails with `BrokenPipe` if the key is used up.
    pub fn start_file<D: IoDriver>(
        &mut self,
        driver: &mut D,
        socket: &D::Socket,
        token: ConnectionToken,
        file: &Arc<OpenFile>,
        range: Range<u64>,
    ) -> io::Result<()> {
        let offloaded = self
            .offloaded
            .as_mut()
            .filter(|kernel_tls| kernel_tls.can_send());
        let offloaded = offloaded.ok_or(io::ErrorKind::BrokenPipe)?;
        driver.start_file(socket, token, file, range)?;
        offloaded.is_sending = true;
        Ok(())
    }

    pub fn is_key_worn(&self) -> bool {
        let offloaded = self.offloaded.as_ref();
        offloaded.is_some_and(|kernel_tls| {
            kernel_tls.records >= KernelTlsSend::WORN || self.session.is_key_worn()
        })
    }

    pub fn info(&self) -> Option<&Arc<TlsInfo>> {
        self.info.as_ref()
    }

    pub fn fault(&self) -> Option<LayerFault> {
        match self.end {
            Some(TlsEnd::Fault(fault)) => Some(fault),
            _ => None,
        }
    }

    pub fn take_handshake_done(&mut self) -> bool {
        std::mem::take(&mut self.is_handshake_done)
    }

    pub fn has_encrypted(&self) -> bool {
        self.is_wire_in_flight || !self.wire.is_empty()
    }

    pub fn receive<D: IoDriver>(
        &mut self,
        driver: &mut D,
        socket: &D::Socket,
        token: ConnectionToken,
        plain: &mut Vec<u8>,
    ) -> ReceiveOutcome<Plaintext<D::RecvBuffer>> {
        // Bytes after close_notify are ignored (RFC 8446, section 6.1).
        if let Some(TlsEnd::CloseNotify) = self.end {
            return ReceiveOutcome::End;
        }
        let (received, more) = match driver.receive(socket, token) {
            ReceiveOutcome::Bytes {
                buffer: received,
                more,
            } => (received, more),
            ReceiveOutcome::Empty => return ReceiveOutcome::Empty,
            ReceiveOutcome::End => return ReceiveOutcome::End,
            ReceiveOutcome::Broken => return ReceiveOutcome::Broken,
        };
        self.open(driver, socket, token, received.as_ref(), plain);
        driver.return_buffer(received);
        ReceiveOutcome::Bytes {
            buffer: Plaintext::Plain(std::mem::take(plain)),
            // The next receive reports the end of input.
            more: more || matches!(self.end, Some(TlsEnd::CloseNotify)),
        }
    }

    /// Decrypts received bytes into `plain`.
    pub fn open<D: IoDriver>(
        &mut self,
        driver: &mut D,
        socket: &D::Socket,
        token: ConnectionToken,
        ciphertext: &[u8],
        plain: &mut Vec<u8>,
    ) {
        plain.clear();
        if self.end.is_some() || ciphertext.is_empty() {
            // Bytes after the end of the session can't be decrypted.
            return;
        }
        match self.session.open(ciphertext, plain, &mut self.wire) {
            Ok(TlsState::Handshake) => {}
            Ok(TlsState::Ready(secured)) => {
                self.is_handshake_done |= self.info.is_none();
                self.info = Some(secured);
            }
            Ok(TlsState::Ended) => self.end = Some(TlsEnd::CloseNotify),
            Err(fault) => {
                if fault == LayerFault::ClearText {
                    // These are the client's first bytes, which are needed for the clear-text response.
                    plain.extend_from_slice(ciphertext);
                }
                self.end = Some(TlsEnd::Fault(fault));
            }
        }
        // The session's own records are sent now; bytes that the socket does not accept, when it has room.
        if !self.wire.is_empty() && !self.is_wire_in_flight {
            let _ = self.push(driver, socket, token);
        }
    }

    pub fn send<D: IoDriver>(
        &mut self,
        driver: &mut D,
        socket: &D::Socket,
        token: ConnectionToken,
        buffer: &mut SendBuffer,
        more: bool,
    ) -> TransferOutcome {
        if let Some(offloaded) = &mut self.offloaded {
            if !offloaded.can_send() || !self.wire.is_empty() {
                return TransferOutcome::Broken; // nothing follows an alert
            }
            let sent = driver.send(socket, token, buffer, more);
            match sent {
                SendOutcome::Bytes(len) | SendOutcome::Filled(len) => {
                    offloaded.record_sent(len as u64)
                }
                SendOutcome::Underway => offloaded.is_sending = true,
                SendOutcome::Full | SendOutcome::Broken => {}
            }
            return sent.into();
        }
        if self.has_encrypted() {
            // The session's own records are sent first.
            match self.push(driver, socket, token) {
                TransferOutcome::Bytes { .. } if !self.has_encrypted() => {}
                TransferOutcome::Broken => return TransferOutcome::Broken,
                _ => return TransferOutcome::Full,
            }
        }
        // Once encrypted, the plaintext is not needed again, even if the socket is full.
        let len = self
            .session
            .encrypt(&buffer.pieces(), driver.now_ms(), &mut self.wire);
        match self.push(driver, socket, token) {
            TransferOutcome::Bytes { wire_len, .. } => TransferOutcome::Bytes { len, wire_len },
            TransferOutcome::Filled(wire_len) => TransferOutcome::Bytes { len, wire_len },
            TransferOutcome::Full | TransferOutcome::Underway => {
                TransferOutcome::Bytes { len, wire_len: 0 }
            }
            TransferOutcome::Broken => TransferOutcome::Broken,
        }
    }

    pub fn push<D: IoDriver>(
        &mut self,
        driver: &mut D,
        socket: &D::Socket,
        token: ConnectionToken,
    ) -> TransferOutcome {
        if self.is_wire_in_flight {
            return TransferOutcome::Underway;
        }
        if let Some(offloaded) = &mut self.offloaded {
            let outcome = offloaded.push_alert(driver, socket, &self.wire);
            if offloaded.is_ended {
                self.wire = Vec::new();
            }
            return outcome;
        }
        if self.wire_sent > 0 {
            // Sent bytes are removed here, not after each send.
            self.wire.drain(..self.wire_sent);
            self.wire_sent = 0;
        }
        let mut buffer = SendBuffer::Vec(std::mem::take(&mut self.wire));
        let sent = driver.send(socket, token, &mut buffer, false);
        if sent == SendOutcome::Underway {
            self.is_wire_in_flight = true;
            return TransferOutcome::Underway;
        }
        match sent {
            SendOutcome::Bytes(wire_len) | SendOutcome::Filled(wire_len) => {
                self.store_unsent(buffer, wire_len);
                TransferOutcome::Bytes { len: 0, wire_len }
            }
            SendOutcome::Full => {
                self.store_unsent(buffer, 0);
                TransferOutcome::Full
            }
            SendOutcome::Underway | SendOutcome::Broken => TransferOutcome::Broken,
        }
    }

    /// Handles the result of a send that the driver completed later.
    pub fn complete_send(&mut self, buffer: SendBuffer, wire_len: usize) {
        self.is_wire_in_flight = false;
        // Records that the session added while the driver had the buffer follow its unsent rest.
        let added = std::mem::take(&mut self.wire);
        self.store_unsent(buffer, wire_len);
        self.wire.extend_from_slice(&added);
    }

    /// Keeps the unsent rest of `buffer`. Without a rest the memory is freed, so an idle connection uses none.
    fn store_unsent(&mut self, buffer: SendBuffer, sent: usize) {
        if let SendBuffer::Vec(bytes) = buffer
            && sent < bytes.len()
        {
            self.wire = bytes;
            self.wire_sent = sent;
        }
    }

    /// Encrypts close_notify, which shows the client that no bytes were truncated.
    pub fn encrypt_close_notify(&mut self) {
        if !self.is_finished && self.info.is_some() && self.fault().is_none() {
            self.is_finished = true;
            self.session.close(&mut self.wire);
        }
    }
}
