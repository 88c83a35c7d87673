//! The life of a client's connection: connect, send, receive, close. `worker` decides when.

use std::io::{self, ErrorKind as Io};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use super::RequestPace;
use super::client::{ClientConnection, OpenRequest};
use super::tally::ErrorKind;
use super::transport::{LoadTransport, ReceiveResult};
use super::two::H2LoadClient;
use super::worker::LoadWorker;
use crate::workload::WorkloadVersion;

/// Delay before the next attempt after a failed connection.
const BACKOFF_NS: u64 = 100_000_000;
/// Receive buffer of a slow client: a larger one would let the kernel acknowledge more than the simulated line can
/// carry.
const SLOW_BUFFER_LEN: usize = 8 * 1024;
/// Maximum number of reads of one connection in one turn, so that the other clients are served.
const READS_MAX: usize = 8;

impl LoadWorker<'_> {
    /// Handles a client's timer: connect, resume reading, or send a request.
    pub(crate) fn wake(&mut self, at: u32) {
        let client = &mut self.clients[at as usize];
        let line = self.load.line_bits_per_s.unwrap_or(u64::MAX);
        let resume_ns = client.line_resume_ns(line);
        let Some(link) = &mut client.link else {
            return match self.load.pace {
                // In an open loop of connections a connection is opened only when one is due.
                RequestPace::Connections(_) => self.set_free(at),
                RequestPace::Closed | RequestPace::Requests(_) => self.connect(at, None),
            };
        };
        if client.line_paused {
            if resume_ns > self.now_ns {
                return self.set_timer(at, resume_ns);
            }
            client.line_paused = false;
            link.progress_ns = self.now_ns;
            // Edge-triggered epoll reports the bytes that arrived during the pause only once: read to the end.
            self.receive(at, true);
        }
        self.go_on(at);
    }

    pub(crate) fn connect(&mut self, at: u32, due_ns: Option<u64>) {
        if self.is_dry() || !self.take_opening() {
            return;
        }
        let addresses = &self.load.target.addresses;
        let address = addresses[self.address % addresses.len()];
        self.address += 1;
        // The receive buffer must be set before connecting: the handshake negotiates the window scale by it.
        let slow = self.load.line_bits_per_s.map(|_| SLOW_BUFFER_LEN);
        self.now_ns = self.load.now_ns();
        let opening = self.clients[at as usize].session.open();
        let tls = self.tls.as_ref();
        match LoadTransport::connect(address, tls, opening.version, slow) {
            Ok(transport) => {
                let mut link = ClientConnection::new(transport, opening, self.now_ns);
                link.due_ns = due_ns;
                self.clients[at as usize].link = Some(link);
                if self.register(at).is_err() {
                    self.fail(at, ErrorKind::DescriptorsExhausted);
                }
            }
            Err(errno) => {
                let kind = match errno {
                    Errno::MFILE | Errno::NFILE => ErrorKind::DescriptorsExhausted,
                    errno => of_connect(&errno.into()),
                };
                self.not_connected(at, kind);
            }
        }
    }

    pub(crate) fn ready(&mut self, at: u32, flags: EventFlags) {
        let Some(link) = &mut self.clients[at as usize].link else {
            return;
        };
        self.now_ns = self.load.now_ns();
        if link.established_ns == 0 && !self.establish(at, flags) {
            return;
        }
        self.shake_hands(at);
        let Some(link) = &mut self.clients[at as usize].link else {
            return;
        };
        if !link.open {
            return;
        }
        if flags.contains(EventFlags::OUT) && link.has_unsent() {
            self.flush(at);
        }
        let ends = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        if flags.intersects(EventFlags::IN | ends) {
            self.receive(at, flags.intersects(ends));
        }
    }

    /// Handles the end of the TCP handshake. Returns whether the connection can be used.
    fn establish(&mut self, at: u32, flags: EventFlags) -> bool {
        let Some(link) = &mut self.clients[at as usize].link else {
            return false;
        };
        // A failed connect reports its error by SO_ERROR; HUP without an error is a connection that was closed at once.
        if flags.intersects(EventFlags::ERR | EventFlags::HUP)
            && let Some(error) = link.transport.connect_error()
        {
            self.fail(at, of_connect(&error));
            return false;
        }
        if !flags.intersects(EventFlags::OUT | EventFlags::IN) {
            return false;
        }
        link.established_ns = self.now_ns;
        link.progress_ns = self.now_ns;
        let connect_ns = self.now_ns - link.begun_ns;
        if self.is_counting() {
            self.tally.connections += 1;
            self.tally.connect.record_ns(connect_ns);
        }
        true
    }

    /// Continues the TLS handshake, if any, and then sends requests.
    fn shake_hands(&mut self, at: u32) {
        let client = &mut self.clients[at as usize];
        let wants = client.wants;
        let Some(link) = &mut client.link else {
            return;
        };
        if link.open {
            return;
        }
        if let Err(error) = link.transport.handshake() {
            let kind = match error.kind() {
                Io::ConnectionReset | Io::BrokenPipe => ErrorKind::Reset,
                _ => ErrorKind::Tls,
            };
            return self.fail(at, kind);
        }
        if !link.transport.is_ready() {
            return;
        }
        if link.opening.version == WorkloadVersion::Http2 {
            if !link.transport.takes_http2() {
                return self.fail(at, ErrorKind::Tls);
            }
            let two = H2LoadClient::new(&mut self.two, wants, self.now_ns, &mut link.out);
            link.two = Some(Box::new(two));
        }
        link.open = true;
        link.progress_ns = self.now_ns;
        self.go_on(at);
        self.flush_frames(at);
    }

    /// Sends the requests that are allowed now, or ends the connection.
    pub(crate) fn go_on(&mut self, at: u32) {
        let client = &self.clients[at as usize];
        let Some(link) = &client.link else {
            return;
        };
        // With HTTP/1, a server that announced the close performs it; otherwise the client closes.
        if link.is_done() && (!link.closing || link.two.is_some()) {
            return self.close(at);
        }
        // Neither while the user thinks, nor while the line still carries the response.
        let until_ns = client.line_ns.max(client.thinks_until_ns);
        if until_ns > self.now_ns {
            return self.set_timer(at, until_ns);
        }
        match self.load.pace {
            RequestPace::Closed | RequestPace::Connections(_) => self.fill(at),
            RequestPace::Requests(_) => {
                if link.takes(self.load.pipeline) {
                    self.set_free(at);
                }
            }
        }
    }

    /// Closed loop: sends requests until the pipeline is full. A client without remaining requests closes its
    /// connection, because other clients may wait for its slot at the server.
    fn fill(&mut self, at: u32) {
        let (mut asked, mut is_over) = (false, false);
        while let Some(link) = &mut self.clients[at as usize].link
            && link.takes(self.load.pipeline)
        {
            // Only the first request of a connection was due together with the connection; the others are due when they
            // are sent.
            let due_ns = link.due_ns.take();
            if !self.take_quota() {
                let link = self.clients[at as usize].link.as_ref();
                is_over = link.is_some_and(|link| link.pending.is_empty());
                break;
            }
            self.ask(at, due_ns.unwrap_or(self.now_ns));
            asked = true;
        }
        if asked {
            self.flush(at);
        }
        if is_over {
            self.close(at);
        }
    }

    /// Open loop: sends a request that is due.
    pub(crate) fn take_due(&mut self, at: u32, due_ns: u64) {
        let takes = |link: &ClientConnection| link.takes(self.load.pipeline);
        if !self.clients[at as usize].link.as_ref().is_some_and(takes) {
            // The connection ended meanwhile: the next free client takes the request, with its original due time.
            return self.overdue.push_front(due_ns);
        }
        if self.take_quota() {
            self.ask(at, due_ns);
            self.flush(at);
            self.go_on(at);
        }
    }

    fn ask(&mut self, at: u32, due_ns: u64) {
        let client = &mut self.clients[at as usize];
        let Some(link) = &mut client.link else {
            return;
        };
        // The timeout counts from the first outstanding request, not from the idle time before it.
        if link.pending.is_empty() {
            link.progress_ns = self.now_ns;
        }
        link.made += 1;
        let last = link.made == link.opening.requests;
        let expected = match &mut link.two {
            None => client.session.request(last, &mut link.out),
            Some(two) => {
                self.two.request.clear();
                let expected = client.session.request(last, &mut self.two.request);
                let (is_https, wants_crc32) = (link.transport.is_tls(), expected.crc32.is_some());
                if !two.ask(&mut self.two, is_https, wants_crc32, &mut link.out) {
                    return self.fail(at, ErrorKind::Malformed);
                }
                expected
            }
        };
        link.pending.push_back(OpenRequest {
            expected,
            due_ns,
            sent_ns: self.now_ns,
            first_ns: 0,
        });
    }

    /// Sends pending HTTP/2 control frames.
    pub(super) fn flush_frames(&mut self, at: u32) {
        let link = self.clients[at as usize].link.as_ref();
        if link.is_some_and(|link| link.two.is_some() && !link.out.is_empty()) {
            self.flush(at);
        }
    }

    pub(super) fn flush(&mut self, at: u32) {
        let Some(link) = &mut self.clients[at as usize].link else {
            return;
        };
        if link.send().is_err() {
            // The server may have sent a response before it closed: that can still be read.
            link.out.clear();
            link.sent_len = 0;
            self.again.push(at);
        }
    }

    /// Reads available input. A short read ends the loop, unless epoll announced the end of the stream (`to_end`).
    pub(crate) fn receive(&mut self, at: u32, to_end: bool) {
        let mut scratch = std::mem::take(&mut self.scratch);
        // A slow line receives one segment at a time.
        let slow = self.load.line_bits_per_s;
        let into_len = slow.map_or(scratch.len(), |_| 1460);
        for turn in 1.. {
            let client = &mut self.clients[at as usize];
            let Some(link) = &mut client.link else {
                break;
            };
            if client.line_paused || !link.open {
                break;
            }
            if turn > READS_MAX {
                self.again.push(at);
                break;
            }
            match link.transport.receive(&mut scratch[..into_len]) {
                ReceiveResult::Bytes(len) => {
                    // Later reads of a turn may take long enough to distort the times of the responses.
                    if turn > 1 {
                        self.now_ns = self.load.now_ns();
                    }
                    self.received(at, &scratch[..len]);
                    if len < into_len && !to_end && self.tls.is_none() && slow.is_none() {
                        break;
                    }
                }
                ReceiveResult::Empty => break,
                ReceiveResult::End => {
                    self.ended(at);
                    break;
                }
                ReceiveResult::Failed(error) => {
                    self.lost(at, of_connection(&error));
                    break;
                }
            }
        }
        self.scratch = scratch;
    }

    /// Handles a close of the server's side.
    fn ended(&mut self, at: u32) {
        let Some(link) = &mut self.clients[at as usize].link else {
            return;
        };
        if let Some(whole) = link.reader.end() {
            self.answered(at, 0, &whole);
        }
        self.lost(at, ErrorKind::Closed);
    }

    /// Handles a connection that the server ended.
    fn lost(&mut self, at: u32, kind: ErrorKind) {
        let Some(link) = &self.clients[at as usize].link else {
            return;
        };
        let was_idle = link.pending.is_empty();
        match kind {
            // Closed before any request: no request failed, but a back-off avoids a busy loop of connections.
            ErrorKind::Closed if was_idle && link.made == 0 => self.drop_link(at, BACKOFF_NS),
            // A server may close an idle persistent connection at any time (RFC 9112 section 9.5): no error.
            ErrorKind::Closed | ErrorKind::Reset if was_idle && link.made > 0 => self.close(at),
            // The server had announced the close: requests behind its last response were not processed (RFC 9112
            // section 9.6) and are sent again.
            _ if link.closing => self.take_back(at),
            _ => self.fail(at, kind),
        }
    }

    /// Returns unanswered requests to the quota and closes the connection.
    fn take_back(&mut self, at: u32) {
        self.take_back_from(at, 0);
        self.close(at);
    }

    /// Returns the outstanding requests from number `first` on to the quota.
    pub(super) fn take_back_from(&mut self, at: u32, first: usize) {
        let Some(link) = &mut self.clients[at as usize].link else {
            return;
        };
        let pending = link.pending.split_off(first.min(link.pending.len()));
        self.return_quota(pending.len() as u64);
        if matches!(self.load.pace, RequestPace::Requests(_)) {
            // In reverse order, so that the longest overdue ends up at the front.
            for one in pending.into_iter().rev() {
                self.overdue.push_front(one.due_ns);
            }
        }
    }

    pub(crate) fn timed_out(&mut self, at: u32) {
        let Some(link) = &self.clients[at as usize].link else {
            return;
        };
        if link.established_ns == 0 {
            self.fail(at, ErrorKind::ConnectTimeout);
        } else if link.pending.is_empty() && link.open {
            // The server announced a close and does not perform it, so the client closes.
            self.close(at);
        } else {
            self.fail(at, ErrorKind::Timeout);
        }
    }

    /// Fails the connection and all its outstanding requests.
    pub(super) fn fail(&mut self, at: u32, kind: ErrorKind) {
        let Some(link) = &self.clients[at as usize].link else {
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
        self.drop_link(at, if was_open { 0 } else { BACKOFF_NS });
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

    /// Counts a connection attempt that failed at once.
    fn not_connected(&mut self, at: u32, kind: ErrorKind) {
        if self.is_counting() {
            self.tally.error(kind);
        } else {
            self.tally.early_error(kind);
        }
        self.failed += 1;
        self.set_timer(at, self.now_ns + BACKOFF_NS);
    }

    fn close(&mut self, at: u32) {
        self.drop_link(at, 0);
    }

    fn drop_link(&mut self, at: u32, retry_ns: u64) {
        let Some(link) = self.clients[at as usize].link.take() else {
            return;
        };
        if self.is_counting() && link.answered > 0 {
            self.tally.connection.record_ns(self.now_ns - link.begun_ns);
            self.tally
                .established
                .record_ns(self.now_ns - link.established_ns);
        }
        drop(link);
        let client = &mut self.clients[at as usize];
        client.line_paused = false;
        // Reconnecting goes through a timer: a connection that ends at once would otherwise recurse. A slow line first
        // delivers the bytes that it still carries.
        let retry_ns = client.line_ns.max(self.now_ns + retry_ns);
        self.set_timer(at, retry_ns);
    }
}

fn of_connect(error: &io::Error) -> ErrorKind {
    match error.kind() {
        Io::ConnectionRefused => ErrorKind::ConnectRefused,
        Io::TimedOut => ErrorKind::ConnectTimeout,
        // EADDRNOTAVAIL: all ephemeral ports are in use, mostly by connections in TIME-WAIT.
        Io::AddrNotAvailable | Io::AddrInUse => ErrorKind::PortsExhausted,
        Io::ConnectionReset => ErrorKind::Reset,
        _ => ErrorKind::ConnectUnreachable,
    }
}

fn of_connection(error: &io::Error) -> ErrorKind {
    match error.kind() {
        // rustls reports protocol errors as InvalidData.
        Io::InvalidData => ErrorKind::Tls,
        Io::TimedOut => ErrorKind::Timeout,
        _ => ErrorKind::Reset,
    }
}
