//! Handles the input of a client's connection: parses, checks and counts responses.

use std::sync::atomic::Ordering::Relaxed;

use super::client::{OpenRequest, check};
use super::response::CompleteResponse;
use super::tally::ErrorKind;
use super::two::StreamOutcome;
use super::worker::LoadWorker;
use crate::workload::ReceivedResponse;

impl LoadWorker<'_> {
    pub(super) fn handle_received(&mut self, client_index: u32, bytes: &[u8]) {
        let counting = self.is_counting();
        let client = &mut self.clients[client_index as usize];
        let Some(link) = &mut client.link else {
            return;
        };
        link.progress_ns = self.now_ns;
        let is_h2 = link.h2.is_some();
        if counting {
            self.tally.bytes += bytes.len() as u64;
            client.counted_bytes += bytes.len() as u64;
        }
        if let Some(bits_per_s) = self.load.line_bits_per_s {
            client.on_line(bytes.len() as u64, self.now_ns, bits_per_s);
            if client.line_paused {
                let resume_ns = client.line_resume_ns(bits_per_s);
                self.set_timer(client_index, resume_ns);
            }
        }
        match is_h2 {
            true => self.parse_frames(client_index, bytes),
            false => self.parse_responses(client_index, bytes),
        }
        self.continue_client(client_index);
        // Parsing may have queued SETTINGS, PING or WINDOW_UPDATE frames, which must not wait for the next request.
        self.flush_frames(client_index);
    }

    fn parse_responses(&mut self, client_index: u32, bytes: &[u8]) {
        let mut used = 0;
        while used < bytes.len() {
            let client = &mut self.clients[client_index as usize];
            let Some(link) = &mut client.link else {
                return;
            };
            // Bytes without an outstanding request can't be matched to one: the connection is unusable.
            let Some(checks) = link.checks(client.interest) else {
                return self.fail(client_index, ErrorKind::Unasked);
            };
            // HTTP/1 responses arrive in the order of the requests (RFC 9112 section 9.3.2).
            if let Some(pending) = link.pending.front_mut()
                && pending.first_ns == 0
            {
                pending.first_ns = self.now_ns;
            }
            match link.reader.parse(&bytes[used..], checks) {
                Ok((len, response)) => {
                    used += len;
                    if let Some(response) = response {
                        self.handle_response(client_index, 0, &response);
                    }
                }
                Err(fault) => return self.fail(client_index, fault.into()),
            }
        }
    }

    fn parse_frames(&mut self, client_index: u32, bytes: &[u8]) {
        let Some(link) = &mut self.clients[client_index as usize].link else {
            return;
        };
        let Some(h2) = &mut link.h2 else {
            return;
        };
        let mut buffered = std::mem::take(&mut h2.buffered);
        // Only the start of an incomplete frame from earlier input needs a copy; other input is parsed in place.
        let input: &[u8] = match buffered.is_empty() {
            true => bytes,
            false => {
                buffered.extend_from_slice(bytes);
                &buffered
            }
        };
        let mut used = 0;
        loop {
            let client = &mut self.clients[client_index as usize];
            let Some(link) = &mut client.link else {
                return;
            };
            let Some(h2) = &mut link.h2 else {
                return;
            };
            match h2.next(
                &input[used..],
                &mut self.h2_context,
                self.now_ns,
                &mut link.out,
            ) {
                Err(_) => return self.fail(client_index, ErrorKind::Malformed),
                // The rest is an incomplete frame.
                Ok((0, StreamOutcome::Nothing)) => {
                    h2.buffered = input[used..].to_vec();
                    return h2.send(&mut link.out);
                }
                Ok((len, event)) => {
                    used += len;
                    self.event(client_index, event);
                }
            }
        }
    }

    pub(super) fn event(&mut self, client_index: u32, event: StreamOutcome) {
        let now_ns = self.now_ns;
        let client = &mut self.clients[client_index as usize];
        let Some(link) = &mut client.link else {
            return;
        };
        match event {
            StreamOutcome::Nothing => {}
            StreamOutcome::First(request_index) => {
                if let Some(pending) = link.pending.get_mut(request_index) {
                    pending.first_ns = now_ns;
                }
            }
            StreamOutcome::Whole(request_index, response) => {
                if let Some(pending) = link.pending.get_mut(request_index)
                    && pending.first_ns == 0
                {
                    pending.first_ns = now_ns;
                }
                self.handle_response(client_index, request_index, &response);
            }
            StreamOutcome::Reset(request_index) => {
                // A request with a reset stream counts as answered; otherwise the connection would never be done.
                link.responses += 1;
                client.session.handle_failure();
                client.thinks_until_ns = now_ns + client.session.pause_ns();
                if let Some(pending) = link.pending.remove(request_index) {
                    self.request_failed(pending.expected.class, ErrorKind::StreamReset);
                }
            }
            StreamOutcome::GoneAway(first_index) => {
                // GOAWAY (RFC 9113 section 6.8): the server has not processed later streams, so their requests are sent
                // again.
                link.closing = true;
                self.reissue_requests_from(client_index, first_index);
            }
        }
    }

    /// Completes the outstanding request number `request_index` with its response.
    pub(super) fn handle_response(
        &mut self,
        client_index: u32,
        request_index: usize,
        response: &CompleteResponse,
    ) {
        let counting = self.is_counting();
        let client = &mut self.clients[client_index as usize];
        let Some(link) = &mut client.link else {
            return;
        };
        let Some(pending) = link.pending.remove(request_index) else {
            return;
        };
        link.responses += 1;
        link.closing |= response.closes;
        client.session.handle_response(&ReceivedResponse {
            status: response.status,
            set_cookie: response.set_cookie.as_deref(),
            text: response.text.as_deref(),
        });
        client.thinks_until_ns = self.now_ns + client.session.pause_ns();
        let is_incomplete = client.session.is_incomplete();
        // The flag is read before it is written, so that its cache line normally stays shared between the threads.
        if !self.shared.reached.load(Relaxed) {
            self.shared.reached.store(true, Relaxed);
        }
        let error_kind =
            check(&pending.expected, response).or(is_incomplete.then_some(ErrorKind::Lacking));
        // With a quota, only requests that were sent after counting began are part of it.
        let limited = self.shared.quota.is_some();
        let early = limited && pending.sent_ns < self.shared.count_ns;
        // A response after the end counts as unfinished, as if it had not arrived.
        if self.now_ns >= self.shared.end_ns {
            self.tally.unfinished(pending.expected.class);
        } else if counting && !early {
            self.count_response(&pending, response, error_kind);
        }
    }

    fn count_response(
        &mut self,
        pending: &OpenRequest,
        response: &CompleteResponse,
        error_kind: Option<ErrorKind>,
    ) {
        let (now_ns, tally) = (self.now_ns, &mut self.tally);
        tally.answers += 1;
        tally.status(response.status);
        let several = tally.classes.len() > 1;
        let class = &mut tally.classes[usize::from(pending.expected.class)];
        if let Some(kind) = error_kind {
            class.errors += 1;
            return tally.error(kind);
        }
        class.requests += 1;
        class.body_bytes += response.body_len;
        // The latency counts from the due time, so that the figures include requests that a stalled server delayed
        // (coordinated omission).
        let latency_ns = now_ns - pending.due_ns.min(now_ns);
        // A single class has the same times as the total, so it needs no histogram.
        if several {
            class.latency.record_ns(latency_ns);
        }
        tally.requests += 1;
        tally.body_bytes += response.body_len;
        tally.latency.record_ns(latency_ns);
        tally.service.record_ns(now_ns - pending.sent_ns);
        tally.response.record_ns(pending.first_ns - pending.sent_ns);
        tally.transfer.record_ns(now_ns - pending.first_ns);
        tally.reply(now_ns - self.shared.count_ns);
    }
}
