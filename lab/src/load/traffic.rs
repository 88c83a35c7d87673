//! The life cycle of a client's connection: connect, send, receive, close. `worker` decides when.

use std::io::ErrorKind as Io;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use super::RequestPace;
use super::client::ClientConnection;
use super::failures::{BACKOFF_NS, connect_error_kind, connection_error_kind};
use super::tally::ErrorKind;
use super::three::H3LoadClient;
use super::transport::{LoadTransport, ReceiveResult, StreamTransport};
use super::two::H2LoadClient;
use super::worker::LoadWorker;
use crate::workload::WorkloadVersion;

/// Receive buffer of a slow client: a larger one would let the kernel acknowledge more than the simulated line can
/// carry.
const SLOW_BUFFER_LEN: usize = 8 * 1024;
/// Maximum number of reads of one connection in a turn, so that other clients are served in between.
const READS_MAX: usize = 8;

impl LoadWorker<'_> {
    /// Handles a client's timer: connect, resume reading, or send a request.
    pub(crate) fn wake(&mut self, client_index: u32) {
        let client = &mut self.clients[client_index as usize];
        let line = self.load.line_bits_per_s.unwrap_or(u64::MAX);
        let resume_ns = client.line_resume_ns(line);
        let Some(link) = &mut client.link else {
            return match self.load.pace {
                // In an open loop of connections a connection is opened only when one is due.
                RequestPace::Connections(_) => self.set_free(client_index),
                RequestPace::Closed | RequestPace::Requests(_) => self.connect(client_index, None),
            };
        };
        if link.transport.is_http3() {
            return self.receive_datagrams(client_index);
        }
        if client.line_paused {
            if resume_ns > self.now_ns {
                return self.set_timer(client_index, resume_ns);
            }
            client.line_paused = false;
            link.progress_ns = self.now_ns;
            // Edge-triggered epoll does not report again the bytes that arrived during the pause, so all of them are
            // read.
            self.receive(client_index, true);
        }
        self.continue_client(client_index);
    }

    pub(crate) fn connect(&mut self, client_index: u32, due_ns: Option<u64>) {
        // The quota comes first: an opening that was taken is never returned.
        if self.check_quota() || !self.take_opening() {
            return;
        }
        let addresses = &self.load.target.addresses;
        let address = addresses[self.address % addresses.len()];
        // The addresses are used in turn, so that all of them get equally many connections.
        self.address += 1;
        // The receive buffer must be set before connecting: its size determines the window scale in the handshake.
        let slow = self.load.line_bits_per_s.map(|_| SLOW_BUFFER_LEN);
        // The clock is read again: a turn may open many connections, and the handshake is timed from here.
        self.now_ns = self.load.now_ns();
        let opening = self.clients[client_index as usize].session.open();
        let tls = self.tls.as_ref();
        let interest = self.clients[client_index as usize].interest;
        let transport = match (opening.version, tls) {
            (WorkloadVersion::Http3, Some(start)) => {
                let h3 = H3LoadClient::connect(address, start, interest, self.now_ns);
                h3.map(|h3| LoadTransport::Http3(Box::new(h3)))
            }
            (version, tls) => {
                StreamTransport::connect(address, tls, version, slow).map(LoadTransport::Stream)
            }
        };
        match transport {
            Ok(transport) => {
                let mut link = ClientConnection::new(transport, opening, self.now_ns);
                link.due_ns = due_ns;
                self.clients[client_index as usize].link = Some(link);
                if self.register(client_index).is_err() {
                    return self.fail(client_index, ErrorKind::DescriptorsExhausted);
                }
                self.flush_datagrams(client_index);
            }
            Err(errno) => {
                let kind = match errno {
                    Errno::MFILE | Errno::NFILE => ErrorKind::DescriptorsExhausted,
                    errno => connect_error_kind(&errno.into()),
                };
                self.not_connected(client_index, kind);
            }
        }
    }

    pub(crate) fn ready(&mut self, client_index: u32, flags: EventFlags) {
        let Some(link) = &mut self.clients[client_index as usize].link else {
            return;
        };
        // A wait may return many events, which are handled one after the other, so each needs the current time.
        self.now_ns = self.load.now_ns();
        if link.transport.is_http3() {
            return self.receive_datagrams(client_index);
        }
        if link.established_ns == 0 && !self.establish(client_index, flags) {
            return;
        }
        self.shake_hands(client_index);
        let Some(link) = &mut self.clients[client_index as usize].link else {
            return;
        };
        if !link.open {
            return;
        }
        // EPOLLOUT is also set in events of a socket that was never full.
        if flags.contains(EventFlags::OUT) && link.has_unsent() {
            self.flush(client_index);
        }
        // These flags only announce an error or the end of the stream; the next read returns it.
        let end_flags = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        if flags.intersects(EventFlags::IN | end_flags) {
            self.receive(client_index, flags.intersects(end_flags));
        }
    }

    /// Handles the end of the TCP handshake. Returns whether the connection can be used.
    fn establish(&mut self, client_index: u32, flags: EventFlags) -> bool {
        let Some(link) = &mut self.clients[client_index as usize].link else {
            return false;
        };
        // A failed connect reports its error in SO_ERROR. HUP without an error means that the connection was closed
        // immediately.
        if flags.intersects(EventFlags::ERR | EventFlags::HUP)
            && let Some(stream) = link.transport.stream()
            && let Some(error) = stream.connect_error()
        {
            self.fail(client_index, connect_error_kind(&error));
            return false;
        }
        if !flags.intersects(EventFlags::OUT | EventFlags::IN) {
            return false;
        }
        link.established_ns = self.now_ns;
        link.progress_ns = self.now_ns;
        let connect_ns = self.now_ns - link.begin_ns;
        if self.is_counting() {
            self.tally.connections += 1;
            self.tally.connect.record_ns(connect_ns);
        }
        true
    }

    /// Continues the TLS handshake, if any, and then sends requests.
    fn shake_hands(&mut self, client_index: u32) {
        let client = &mut self.clients[client_index as usize];
        let interest = client.interest;
        let Some(link) = &mut client.link else {
            return;
        };
        if link.open {
            return;
        }
        let Some(stream) = link.transport.stream() else {
            return;
        };
        if let Err(error) = stream.handshake() {
            // A server that closes without an alert breaks the connection, which is no fault of TLS.
            let kind = match error.kind() {
                Io::ConnectionReset | Io::BrokenPipe => ErrorKind::Reset,
                _ => ErrorKind::Tls,
            };
            return self.fail(client_index, kind);
        }
        if !stream.is_ready() {
            return;
        }
        if link.opening.version == WorkloadVersion::Http2 {
            if !stream.is_http2() {
                return self.fail(client_index, ErrorKind::Tls);
            }
            let h2 = H2LoadClient::new(&mut self.h2_context, interest, self.now_ns, &mut link.out);
            link.h2 = Some(Box::new(h2));
        }
        link.open = true;
        link.progress_ns = self.now_ns;
        self.continue_client(client_index);
        self.flush_frames(client_index);
    }

    /// Sends the requests that are allowed now, or ends the connection.
    pub(crate) fn continue_client(&mut self, client_index: u32) {
        let client = &self.clients[client_index as usize];
        let Some(link) = &client.link else {
            return;
        };
        // With HTTP/1, a server that announced the close performs it; otherwise the client closes.
        if link.is_done() && (!link.closing || link.h2.is_some() || link.transport.is_http3()) {
            return self.close(client_index);
        }
        // No request is sent while the user thinks, or while the line still carries the response.
        let until_ns = client.line_ns.max(client.thinks_until_ns);
        if until_ns > self.now_ns {
            return self.set_timer(client_index, until_ns);
        }
        match self.load.pace {
            RequestPace::Closed | RequestPace::Connections(_) => self.fill(client_index),
            RequestPace::Requests(_) => {
                if link.can_take_request(self.load.pipeline) {
                    self.set_free(client_index);
                }
            }
        }
    }

    /// Closed loop: sends requests until the pipeline is full. A client without remaining requests closes its
    /// connection, because other clients may wait for its slot at the server.
    fn fill(&mut self, client_index: u32) {
        let (mut has_sent, mut is_idle) = (false, false);
        while let Some(link) = &mut self.clients[client_index as usize].link
            && link.can_take_request(self.load.pipeline)
        {
            // Only the first request of a connection was due together with the connection; the others are due when they
            // are sent.
            let due_ns = link.due_ns.take();
            if !self.take_quota() {
                let link = self.clients[client_index as usize].link.as_ref();
                is_idle = link.is_some_and(|link| link.pending.is_empty());
                break;
            }
            self.send_request(client_index, due_ns.unwrap_or(self.now_ns));
            has_sent = true;
        }
        // The whole pipeline is sent by one write, so that its requests share segments.
        if has_sent {
            self.flush(client_index);
        }
        if is_idle {
            self.close(client_index);
        }
    }

    /// Open loop: sends a request that is due.
    pub(crate) fn send_due(&mut self, client_index: u32, due_ns: u64) {
        let can_take = |link: &ClientConnection| link.can_take_request(self.load.pipeline);
        if !self.clients[client_index as usize]
            .link
            .as_ref()
            .is_some_and(can_take)
        {
            // The connection ended in the meantime: the next free client takes the request, with the original due time.
            return self.overdue.push_front(due_ns);
        }
        if self.take_quota() {
            self.send_request(client_index, due_ns);
            self.flush(client_index);
            self.continue_client(client_index);
        }
    }

    fn send_request(&mut self, client_index: u32, due_ns: u64) {
        let client = &mut self.clients[client_index as usize];
        let Some(link) = &mut client.link else {
            return;
        };
        // The timeout counts from the first outstanding request, not from the idle time before it.
        if link.pending.is_empty() {
            link.progress_ns = self.now_ns;
        }
        link.requests_sent += 1;
        let last = link.requests_sent == link.opening.requests;
        if let LoadTransport::Http3(h3) = &mut link.transport {
            let context = &mut self.h3_context;
            context.request.clear();
            let expected = client.session.request(last, &mut context.request);
            if !h3.send_request(context, expected.crc32.is_some()) {
                return self.fail(client_index, ErrorKind::Malformed);
            }
            return link.push_request(expected, due_ns, self.now_ns);
        }
        let expected = match &mut link.h2 {
            None => client.session.request(last, &mut link.out),
            Some(h2) => {
                self.h2_context.request.clear();
                let expected = client.session.request(last, &mut self.h2_context.request);
                let (is_https, has_crc32) = (self.tls.is_some(), expected.crc32.is_some());
                if !h2.send_request(&mut self.h2_context, is_https, has_crc32, &mut link.out) {
                    return self.fail(client_index, ErrorKind::Malformed);
                }
                expected
            }
        };
        link.push_request(expected, due_ns, self.now_ns);
    }

    /// Sends pending HTTP/2 control frames.
    pub(super) fn flush_frames(&mut self, client_index: u32) {
        let link = self.clients[client_index as usize].link.as_ref();
        if link.is_some_and(|link| link.h2.is_some() && !link.out.is_empty()) {
            self.flush(client_index);
        }
    }

    pub(super) fn flush(&mut self, client_index: u32) {
        let Some(link) = &mut self.clients[client_index as usize].link else {
            return;
        };
        if link.transport.is_http3() {
            return self.flush_datagrams(client_index);
        }
        if link.send(self.now_ns).is_err() {
            // The server may have sent a response before it closed, which can still be read.
            link.out.clear();
            link.sent_len = 0;
            self.unread_clients.push(client_index);
        }
    }

    /// Reads available input. A short read ends the loop, unless epoll announced the end of the stream (`to_end`).
    pub(crate) fn receive(&mut self, client_index: u32, to_end: bool) {
        let link = self.clients[client_index as usize].link.as_ref();
        if link.is_some_and(|link| link.transport.is_http3()) {
            return self.receive_datagrams(client_index);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        // A slow line receives one segment at a time.
        let slow = self.load.line_bits_per_s;
        let read_len_max = slow.map_or(scratch.len(), |_| 1460);
        for read_count in 1.. {
            let client = &mut self.clients[client_index as usize];
            let Some(link) = &mut client.link else {
                break;
            };
            if client.line_paused || !link.open {
                break;
            }
            if read_count > READS_MAX {
                self.unread_clients.push(client_index);
                break;
            }
            let Some(stream) = link.transport.stream() else {
                break;
            };
            match stream.receive(&mut scratch[..read_len_max]) {
                ReceiveResult::Bytes(len) => {
                    // Later reads of a turn may take long enough to distort the times of the responses.
                    if read_count > 1 {
                        self.now_ns = self.load.now_ns();
                    }
                    self.handle_received(client_index, &scratch[..len]);
                    // With TLS a short read does not mean that no input is left, since more records may be buffered.
                    if len < read_len_max && !to_end && self.tls.is_none() && slow.is_none() {
                        break;
                    }
                }
                ReceiveResult::Empty => break,
                ReceiveResult::End => {
                    self.ended(client_index);
                    break;
                }
                ReceiveResult::Failed(error) => {
                    self.handle_loss(client_index, connection_error_kind(&error));
                    break;
                }
            }
        }
        self.scratch = scratch;
    }

    /// Handles the end of the stream from the server.
    fn ended(&mut self, client_index: u32) {
        let Some(link) = &mut self.clients[client_index as usize].link else {
            return;
        };
        if let Some(response) = link.reader.end() {
            self.handle_response(client_index, 0, &response);
        }
        self.handle_loss(client_index, ErrorKind::Closed);
    }

    /// Handles the loss of a connection: the server closed or reset it.
    pub(super) fn handle_loss(&mut self, client_index: u32, kind: ErrorKind) {
        let Some(link) = &self.clients[client_index as usize].link else {
            return;
        };
        let was_idle = link.pending.is_empty();
        match kind {
            // Closed before any request: no request failed, but without a delay the client would reconnect in a busy
            // loop.
            ErrorKind::Closed if was_idle && link.requests_sent == 0 => {
                self.drop_connection(client_index, BACKOFF_NS)
            }
            // A server may close an idle persistent connection at any time (RFC 9112 section 9.5): no error.
            ErrorKind::Closed | ErrorKind::Reset if was_idle && link.requests_sent > 0 => {
                self.close(client_index)
            }
            // The server had announced the close: it has not processed requests behind its last response (RFC 9112
            // section 9.6), so they are sent again.
            _ if link.closing => self.reissue_requests(client_index),
            _ => self.fail(client_index, kind),
        }
    }

    /// Returns unanswered requests to the quota and closes the connection.
    fn reissue_requests(&mut self, client_index: u32) {
        self.reissue_requests_from(client_index, 0);
        self.close(client_index);
    }

    /// Returns the outstanding requests from number `first` on to the quota.
    pub(super) fn reissue_requests_from(&mut self, client_index: u32, first: usize) {
        let Some(link) = &mut self.clients[client_index as usize].link else {
            return;
        };
        let pending = link.pending.split_off(first.min(link.pending.len()));
        self.return_quota(pending.len() as u64);
        if matches!(self.load.pace, RequestPace::Requests(_)) {
            // The requests are returned in reverse order, so that the request that is longest overdue ends up at the
            // front.
            for request in pending.into_iter().rev() {
                self.overdue.push_front(request.due_ns);
            }
        }
    }

    pub(crate) fn timed_out(&mut self, client_index: u32) {
        let Some(link) = &self.clients[client_index as usize].link else {
            return;
        };
        if link.established_ns == 0 {
            self.fail(client_index, ErrorKind::ConnectTimeout);
        } else if link.pending.is_empty() && link.open {
            // The server announced a close but leaves the connection open, so the client closes it.
            self.close(client_index);
        } else {
            self.fail(client_index, ErrorKind::Timeout);
        }
    }
}
