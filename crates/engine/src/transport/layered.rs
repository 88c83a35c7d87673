//! A layer and its socket: what is sealed and has not left, and what became of the layer.
//!
//! What is sealed counts as sent for the connection, which must not end before it has left. It is at most what one call of
//! [`Layer::seal`] gives, and some words of the layer's own.
//!
//! Where the kernel seals instead, bytes go as they are, and the layer's last word is given to it as such. How much one key
//! may seal is counted here, since nobody else sees what is sent then.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::{Came, Moved};
use crate::buffer::Buffer;
use crate::driver::{Driver, Received, Sent, Token};
use crate::file::OpenFile;
use crate::layer::{Layer, LayerFault, LayerState, Secured};

pub(super) struct Layered {
    layer: Box<dyn Layer>,
    secured: Option<Arc<Secured>>,
    /// Sealed, and not taken by the socket.
    wire: Vec<u8>,
    /// So many bytes of `wire` have left.
    wire_sent: usize,
    /// The driver has what was sealed, and will give it back.
    is_lent: bool,
    /// The client has said its last byte, or all is broken.
    end: Option<End>,
    /// Both sides have agreed since it was asked last.
    is_new: bool,
    /// We have said our last.
    is_finished: bool,
    /// The kernel seals what is sent; `wire` is an alert for it then, or empty.
    offloaded: Option<Offloaded>,
}

/// What the kernel has sealed, by the one key that it has.
#[derive(Default)]
struct Offloaded {
    /// Not fewer than it has sealed: each has a page of a file, or is the last of a send.
    records: u64,
    /// The driver or a helper sends just now.
    is_sending: bool,
    /// The last is said.
    is_over: bool,
}

impl Offloaded {
    /// After so many records the connection is to end: a third of what AES-GCM allows (RFC 8446, section 5.5).
    const WORN: u64 = 1 << 23;
    /// So many are never sealed.
    const USED_UP: u64 = 1 << 24;
    const PAGE_LEN: u64 = 4096;

    fn may_send(&self) -> bool {
        !self.is_over && self.records < Self::USED_UP
    }

    fn push_alert<D: Driver>(&mut self, driver: &mut D, socket: &D::Socket, alert: &[u8]) -> Moved {
        if self.is_sending {
            return Moved::Underway;
        }
        match driver.send_alert(socket, alert) {
            Sent::Bytes(wire_len) | Sent::Filled(wire_len) => {
                self.is_over = true;
                Moved::Bytes { len: 0, wire_len }
            }
            Sent::Full => Moved::Full,
            Sent::Underway | Sent::Broken => Moved::Broken,
        }
    }

    fn moved(&mut self, len: u64) {
        self.is_sending = false;
        self.records += len / Self::PAGE_LEN + 1;
    }
}

#[derive(Clone, Copy)]
enum End {
    Said,
    Fault(LayerFault),
}

impl Layered {
    pub fn new(layer: Box<dyn Layer>) -> Layered {
        Layered {
            layer,
            secured: None,
            wire: Vec::new(),
            wire_sent: 0,
            is_lent: false,
            end: None,
            is_new: false,
            is_finished: false,
            offloaded: None,
        }
    }

    pub fn is_offloaded(&self) -> bool {
        self.offloaded.is_some()
    }

    pub fn offload<D: Driver>(&mut self, driver: &mut D, socket: &D::Socket, len: u64) -> bool {
        if self.is_offloaded() || self.has_sealed() || self.secured.is_none() {
            return false;
        }
        let mut tell = |keys: &[u8]| driver.seal(socket, keys).is_ok();
        let is_new = self.layer.offload(len, &mut tell);
        self.offloaded = is_new.then(Offloaded::default);
        is_new
    }

    /// What was under way is over; so many bytes have left.
    pub fn moved(&mut self, len: u64) {
        if let Some(offloaded) = &mut self.offloaded {
            offloaded.moved(len);
        }
    }

    /// Starts sending of a file, which the kernel seals. `BrokenPipe`: it must not seal any more.
    pub fn start_file<D: Driver>(
        &mut self,
        driver: &mut D,
        socket: &D::Socket,
        token: Token,
        file: &Arc<OpenFile>,
        range: Range<u64>,
    ) -> io::Result<()> {
        let offloaded = self.offloaded.as_mut().filter(|it| it.may_send());
        let offloaded = offloaded.ok_or(io::ErrorKind::BrokenPipe)?;
        driver.start_file(socket, token, file, range)?;
        offloaded.is_sending = true;
        Ok(())
    }

    pub fn is_worn(&self) -> bool {
        let offloaded = self.offloaded.as_ref();
        offloaded.is_some_and(|it| it.records >= Offloaded::WORN || self.layer.is_worn())
    }

    pub fn secured(&self) -> Option<&Arc<Secured>> {
        self.secured.as_ref()
    }

    pub fn fault(&self) -> Option<LayerFault> {
        match self.end {
            Some(End::Fault(fault)) => Some(fault),
            _ => None,
        }
    }

    pub fn take_new(&mut self) -> bool {
        std::mem::take(&mut self.is_new)
    }

    pub fn has_sealed(&self) -> bool {
        self.is_lent || !self.wire.is_empty()
    }

    pub fn receive<D: Driver>(
        &mut self,
        driver: &mut D,
        socket: &D::Socket,
        token: Token,
        plain: &mut Vec<u8>,
    ) -> Received<Came<D::Lent>> {
        if let Some(End::Said) = self.end {
            return Received::End;
        }
        let (lent, more) = match driver.receive(socket, token) {
            Received::Bytes { lent, more } => (lent, more),
            Received::Empty => return Received::Empty,
            Received::End => return Received::End,
            Received::Broken => return Received::Broken,
        };
        self.open(driver, socket, token, lent.as_ref(), plain);
        driver.give_back(lent);
        Received::Bytes {
            lent: Came::Plain(std::mem::take(plain)),
            more: more || matches!(self.end, Some(End::Said)),
        }
    }

    /// Opens what came into `plain`.
    pub fn open<D: Driver>(
        &mut self,
        driver: &mut D,
        socket: &D::Socket,
        token: Token,
        came: &[u8],
        plain: &mut Vec<u8>,
    ) {
        plain.clear();
        if self.end.is_some() || came.is_empty() {
            // What a broken layer still sends is of no use.
            return;
        }
        match self.layer.open(came, plain, &mut self.wire) {
            Ok(LayerState::Handshake) => {}
            Ok(LayerState::Ready(secured)) => {
                self.is_new |= self.secured.is_none();
                self.secured = Some(secured);
            }
            Ok(LayerState::Ended) => self.end = Some(End::Said),
            Err(fault) => {
                if fault == LayerFault::ClearText {
                    // What came is the first thing that it said: who answers wants to see it.
                    plain.extend_from_slice(came);
                }
                self.end = Some(End::Fault(fault));
            }
        }
        // What the layer says by itself is short. What does not leave now, leaves when there is room.
        if !self.wire.is_empty() && !self.is_lent {
            let _ = self.push(driver, socket, token);
        }
    }

    pub fn send<D: Driver>(
        &mut self,
        driver: &mut D,
        socket: &D::Socket,
        token: Token,
        buffer: &mut Buffer,
        more: bool,
    ) -> Moved {
        if let Some(offloaded) = &mut self.offloaded {
            if !offloaded.may_send() || !self.wire.is_empty() {
                return Moved::Broken; // nothing follows an alert
            }
            let sent = driver.send(socket, token, buffer, more);
            match sent {
                Sent::Bytes(len) | Sent::Filled(len) => offloaded.moved(len as u64),
                Sent::Underway => offloaded.is_sending = true,
                Sent::Full | Sent::Broken => {}
            }
            return sent.into();
        }
        if self.has_sealed() {
            // The layer's own words come first.
            match self.push(driver, socket, token) {
                Moved::Bytes { .. } if !self.has_sealed() => {}
                Moved::Broken => return Moved::Broken,
                _ => return Moved::Full,
            }
        }
        let len = self
            .layer
            .seal(&buffer.pieces(), driver.now_ms(), &mut self.wire);
        match self.push(driver, socket, token) {
            Moved::Bytes { wire_len, .. } => Moved::Bytes { len, wire_len },
            Moved::Filled(wire_len) => Moved::Bytes { len, wire_len },
            Moved::Full | Moved::Underway => Moved::Bytes { len, wire_len: 0 },
            Moved::Broken => Moved::Broken,
        }
    }

    pub fn push<D: Driver>(&mut self, driver: &mut D, socket: &D::Socket, token: Token) -> Moved {
        if self.is_lent {
            return Moved::Underway;
        }
        if let Some(offloaded) = &mut self.offloaded {
            let moved = offloaded.push_alert(driver, socket, &self.wire);
            if offloaded.is_over {
                self.wire = Vec::new();
            }
            return moved;
        }
        if self.wire_sent > 0 {
            self.wire.drain(..self.wire_sent);
            self.wire_sent = 0;
        }
        let mut buffer = Buffer::Vec(std::mem::take(&mut self.wire));
        let sent = driver.send(socket, token, &mut buffer, false);
        if sent == Sent::Underway {
            self.is_lent = true;
            return Moved::Underway;
        }
        match sent {
            Sent::Bytes(wire_len) | Sent::Filled(wire_len) => {
                self.keep(buffer, wire_len);
                Moved::Bytes { len: 0, wire_len }
            }
            Sent::Full => {
                self.keep(buffer, 0);
                Moved::Full
            }
            Sent::Underway | Sent::Broken => Moved::Broken,
        }
    }

    /// A send that was under way is over.
    pub fn sent(&mut self, buffer: Buffer, wire_len: usize) {
        self.is_lent = false;
        let later = std::mem::take(&mut self.wire);
        self.keep(buffer, wire_len);
        self.wire.extend_from_slice(&later);
    }

    /// Keeps what is left of `buffer`; an idle connection has no memory for it.
    fn keep(&mut self, buffer: Buffer, sent: usize) {
        if let Buffer::Vec(bytes) = buffer
            && sent < bytes.len()
        {
            self.wire = bytes;
            self.wire_sent = sent;
        }
    }

    /// Seals the word that no more will follow: whoever waits for more knows that this is all.
    pub fn say_end(&mut self) {
        if !self.is_finished && self.secured.is_some() && self.fault().is_none() {
            self.is_finished = true;
            self.layer.close(&mut self.wire);
        }
    }
}
