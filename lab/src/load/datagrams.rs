//! The life cycle of an HTTP/3 connection: receives and sends its datagrams, and handles its timers. `worker` decides when.

use lowroad_quic::{CloseReason, QuicEvent};

use super::response::ResponseFault;
use super::tally::ErrorKind;
use super::three::{H3LoadClient, NO_ERROR};
use super::worker::LoadWorker;

/// CONNECTION_REFUSED (RFC 9000 section 20.1).
const CONNECTION_REFUSED: u64 = 2;
/// The codes of TLS alerts (RFC 9001 section 4.8).
const CRYPTO_ERRORS: std::ops::RangeInclusive<u64> = 0x100..=0x1ff;

/// The error for the end of a connection.
fn end_error(reason: &CloseReason, is_open: bool) -> ErrorKind {
    match reason {
        CloseReason::Timeout if is_open => ErrorKind::Timeout,
        CloseReason::Timeout => ErrorKind::ConnectTimeout,
        CloseReason::PeerApplication(NO_ERROR) => ErrorKind::Closed,
        CloseReason::PeerTransport(CONNECTION_REFUSED) if !is_open => ErrorKind::ConnectRefused,
        CloseReason::PeerTransport(code) | CloseReason::Fault(code)
            if !is_open && CRYPTO_ERRORS.contains(code) =>
        {
            ErrorKind::Tls
        }
        _ => ErrorKind::Reset,
    }
}

impl LoadWorker<'_> {
    /// Receives the datagrams of an HTTP/3 connection, handles its timers, and sends.
    pub(super) fn receive_datagrams(&mut self, client_index: u32) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let received = self.clients[client_index as usize]
            .link
            .as_mut()
            .and_then(|link| link.transport.http3())
            .map(|h3| h3.quic.receive(&mut scratch, self.now_ns));
        self.scratch = scratch;
        match received {
            None => return,
            Some(Err(_)) => return self.lose_server(client_index),
            Some(Ok((len, has_more))) => {
                self.count_datagrams(client_index, len as u64);
                if has_more {
                    self.unread_clients.push(client_index);
                }
            }
        }
        while let Some(h3) = self.http3(client_index)
            && let Some(event) = h3.quic.events.pop_front()
        {
            self.quic_event(client_index, event);
        }
        if let Some(h3) = self.http3(client_index) {
            // The server may have raised its limit.
            h3.open_next();
        }
        self.continue_client(client_index);
        self.flush_datagrams(client_index);
    }

    fn http3(&mut self, client_index: u32) -> Option<&mut H3LoadClient> {
        let link = self.clients[client_index as usize].link.as_mut();
        link.and_then(|link| link.transport.http3())
    }

    /// Sends datagrams, and sets the timer of the connection.
    pub(super) fn flush_datagrams(&mut self, client_index: u32) {
        let now_ns = self.now_ns;
        let Some(h3) = self.http3(client_index) else {
            return;
        };
        if h3.quic.send(now_ns).is_err() {
            return self.lose_server(client_index);
        }
        let (due_ns, has_events) = (h3.quic.due_ns(), !h3.quic.events.is_empty());
        if let Some(due_ns) = due_ns {
            self.set_timer(client_index, due_ns);
        }
        if has_events {
            self.unread_clients.push(client_index);
        }
    }

    fn count_datagrams(&mut self, client_index: u32, len: u64) {
        let counting = self.is_counting();
        let client = &mut self.clients[client_index as usize];
        if let (true, Some(link)) = (len > 0, &mut client.link) {
            link.progress_ns = self.now_ns;
        }
        if counting {
            self.tally.bytes += len;
            client.counted_bytes += len;
        }
    }

    /// No program receives datagrams at the server's port (ICMP port unreachable).
    fn lose_server(&mut self, client_index: u32) {
        let link = self.clients[client_index as usize].link.as_ref();
        let kind = match link.is_some_and(|link| link.open) {
            true => ErrorKind::Reset,
            false => ErrorKind::ConnectRefused,
        };
        self.handle_loss(client_index, kind);
    }

    fn quic_event(&mut self, client_index: u32, event: QuicEvent) {
        let Some(link) = &mut self.clients[client_index as usize].link else {
            return;
        };
        match event {
            QuicEvent::Opened => self.open_http3(client_index),
            QuicEvent::Over(reason) => {
                let kind = end_error(&reason, link.open);
                self.handle_loss(client_index, kind);
            }
            event => {
                let outcomes = link.transport.http3().map(|h3| h3.handle(event));
                match outcomes {
                    None => {}
                    Some(Ok(outcomes)) => outcomes
                        .into_iter()
                        .for_each(|outcome| self.event(client_index, outcome)),
                    Some(Err(fault)) => self.fail(client_index, fault.into()),
                }
            }
        }
    }

    /// The handshake of QUIC is complete, which includes that of TLS.
    fn open_http3(&mut self, client_index: u32) {
        let (now_ns, is_counting) = (self.now_ns, self.is_counting());
        let Some(link) = &mut self.clients[client_index as usize].link else {
            return;
        };
        (link.established_ns, link.progress_ns, link.open) = (now_ns, now_ns, true);
        if let Some(h3) = link.transport.http3() {
            h3.begin();
        }
        if is_counting {
            self.tally.connections += 1;
            self.tally.connect.record_ns(now_ns - link.begin_ns);
        }
    }
}

impl From<ResponseFault> for ErrorKind {
    fn from(fault: ResponseFault) -> ErrorKind {
        match fault {
            ResponseFault::Malformed => ErrorKind::Malformed,
            ResponseFault::Endless => ErrorKind::Endless,
        }
    }
}
