//! Counts failed requests and connections, and closes connections.

use std::io::{self, ErrorKind as Io};

use super::tally::ErrorKind;
use super::worker::LoadWorker;

/// Delay before the next attempt after a failed connection.
pub(super) const BACKOFF_NS: u64 = 100_000_000;

impl LoadWorker<'_> {
    /// Fails the connection and all its outstanding requests.
    pub(super) fn fail(&mut self, client_index: u32, kind: ErrorKind) {
        let Some(link) = &self.clients[client_index as usize].link else {
            return;
        };
        let was_open = link.open;
        if !self.is_counting() {
            self.tally.early_error(kind);
        } else {
            let pending = link.pending.iter();
            let classes: Vec<u8> = pending.map(|pending| pending.expected.class).collect();
            // Each outstanding request counts as one error.
            for class in &classes {
                self.tally.classes[usize::from(*class)].errors += 1;
                self.tally.error(kind);
            }
            // A failed handshake has no request, and counts as one error too.
            if classes.is_empty() {
                self.tally.error(kind);
            }
        }
        self.failed += u64::from(!was_open);
        // Without a pause after a failed handshake, a server that refuses connections would get them in a busy loop.
        self.drop_connection(client_index, if was_open { 0 } else { BACKOFF_NS });
    }

    /// Counts a failed request on a connection that continues.
    pub(super) fn request_failed(&mut self, class: u8, kind: ErrorKind) {
        match self.is_counting() {
            false => self.tally.early_error(kind),
            true => {
                self.tally.classes[usize::from(class)].errors += 1;
                self.tally.error(kind);
            }
        }
    }

    /// Counts a connection attempt that failed immediately.
    pub(super) fn not_connected(&mut self, client_index: u32, kind: ErrorKind) {
        if self.is_counting() {
            self.tally.error(kind);
        } else {
            self.tally.early_error(kind);
        }
        self.failed += 1;
        self.set_timer(client_index, self.now_ns + BACKOFF_NS);
    }

    pub(super) fn close(&mut self, client_index: u32) {
        self.drop_connection(client_index, 0);
    }

    pub(super) fn drop_connection(&mut self, client_index: u32, retry_ns: u64) {
        let Some(link) = self.clients[client_index as usize].link.take() else {
            return;
        };
        if self.is_counting() && link.responses > 0 {
            self.tally.connection.record_ns(self.now_ns - link.begin_ns);
            self.tally
                .established
                .record_ns(self.now_ns - link.established_ns);
        }
        let is_http3 = link.transport.is_http3();
        drop(link);
        let client = &mut self.clients[client_index as usize];
        client.line_paused = false;
        // The timers of QUIC end with the connection.
        if is_http3 {
            client.timer_ns = None;
        }
        // The client reconnects by a timer, since connections that fail immediately would recurse. A slow line first
        // delivers the bytes that it still carries.
        let retry_ns = client.line_ns.max(self.now_ns + retry_ns);
        self.set_timer(client_index, retry_ns);
    }
}

pub(super) fn connect_error_kind(error: &io::Error) -> ErrorKind {
    match error.kind() {
        Io::ConnectionRefused => ErrorKind::ConnectRefused,
        Io::TimedOut => ErrorKind::ConnectTimeout,
        // EADDRNOTAVAIL: all ephemeral ports are in use, mostly by connections in TIME-WAIT.
        Io::AddrNotAvailable | Io::AddrInUse => ErrorKind::PortsExhausted,
        Io::ConnectionReset => ErrorKind::Reset,
        _ => ErrorKind::ConnectUnreachable,
    }
}

pub(super) fn connection_error_kind(error: &io::Error) -> ErrorKind {
    match error.kind() {
        // rustls reports protocol errors as InvalidData.
        Io::InvalidData => ErrorKind::Tls,
        Io::TimedOut => ErrorKind::Timeout,
        _ => ErrorKind::Reset,
    }
}
