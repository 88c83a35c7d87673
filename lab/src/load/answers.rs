//! Input of a client's connection: responses are parsed, checked and counted.

use std::sync::atomic::Ordering::Relaxed;

use super::client::{OpenRequest, check};
use super::response::{AnswerFault, CompleteResponse};
use super::tally::ErrorKind;
use super::two::H2InputOutcome;
use super::worker::LoadWorker;
use crate::workload::ReceivedResponse;

impl LoadWorker<'_> {
    pub(super) fn received(&mut self, at: u32, bytes: &[u8]) {
        let counting = self.is_counting();
        let client = &mut self.clients[at as usize];
        let Some(link) = &mut client.link else {
            return;
        };
        link.progress_ns = self.now_ns;
        let link_has_two = link.two.is_some();
        if counting {
            self.tally.bytes += bytes.len() as u64;
            client.counted_bytes += bytes.len() as u64;
        }
        if let Some(bits_per_s) = self.load.line_bits_per_s {
            client.on_line(bytes.len() as u64, self.now_ns, bits_per_s);
            if client.line_paused {
                let resume_ns = client.line_resume_ns(bits_per_s);
                self.set_timer(at, resume_ns);
            }
        }
        match link_has_two {
            true => self.take_frames(at, bytes),
            false => self.take_answers(at, bytes),
        }
        self.go_on(at);
        self.flush_frames(at);
    }

    fn take_answers(&mut self, at: u32, bytes: &[u8]) {
        let mut used = 0;
        while used < bytes.len() {
            let client = &mut self.clients[at as usize];
            let Some(link) = &mut client.link else {
                return;
            };
            // Bytes without an outstanding request can't be matched to one: the connection is unusable.
            let Some(wanted) = link.wanted(client.wants) else {
                return self.fail(at, ErrorKind::Unasked);
            };
            // HTTP/1 responses arrive in the order of the requests (RFC 9112 section 9.3.2).
            if let Some(pending) = link.pending.front_mut()
                && pending.first_ns == 0
            {
                pending.first_ns = self.now_ns;
            }
            match link.reader.take(&bytes[used..], wanted) {
                Ok((len, whole)) => {
                    used += len;
                    if let Some(whole) = whole {
                        self.answered(at, 0, &whole);
                    }
                }
                Err(AnswerFault::Malformed) => return self.fail(at, ErrorKind::Malformed),
                Err(AnswerFault::Endless) => return self.fail(at, ErrorKind::Endless),
            }
        }
    }

    fn take_frames(&mut self, at: u32, bytes: &[u8]) {
        let Some(link) = &mut self.clients[at as usize].link else {
            return;
        };
        let Some(two) = &mut link.two else {
            return;
        };
        let mut kept = std::mem::take(&mut two.kept);
        let input: &[u8] = match kept.is_empty() {
            true => bytes,
            false => {
                kept.extend_from_slice(bytes);
                &kept
            }
        };
        let mut used = 0;
        loop {
            let client = &mut self.clients[at as usize];
            let Some(link) = &mut client.link else {
                return;
            };
            let Some(two) = &mut link.two else {
                return;
            };
            match two.next(&input[used..], &mut self.two, self.now_ns, &mut link.out) {
                Err(_) => return self.fail(at, ErrorKind::Malformed),
                // The rest is an incomplete frame.
                Ok((0, H2InputOutcome::Nothing)) => {
                    two.kept = input[used..].to_vec();
                    return two.send(&mut link.out);
                }
                Ok((len, told)) => {
                    used += len;
                    self.told(at, told);
                }
            }
        }
    }

    fn told(&mut self, at: u32, told: H2InputOutcome) {
        let now_ns = self.now_ns;
        let client = &mut self.clients[at as usize];
        let Some(link) = &mut client.link else {
            return;
        };
        match told {
            H2InputOutcome::Nothing => {}
            H2InputOutcome::First(place) => {
                if let Some(pending) = link.pending.get_mut(place) {
                    pending.first_ns = now_ns;
                }
            }
            H2InputOutcome::Whole(place, whole) => {
                if let Some(pending) = link.pending.get_mut(place)
                    && pending.first_ns == 0
                {
                    pending.first_ns = now_ns;
                }
                self.answered(at, place, &whole);
            }
            H2InputOutcome::Reset(place) => {
                link.answered += 1;
                client.session.failed();
                client.thinks_until_ns = now_ns + client.session.pause_ns();
                if let Some(pending) = link.pending.remove(place) {
                    self.request_failed(pending.expected.class, ErrorKind::StreamReset);
                }
            }
            H2InputOutcome::GoneAway(place) => {
                // GOAWAY (RFC 9113 section 6.8): later streams were not processed and are sent again.
                link.closing = true;
                self.take_back_from(at, place);
            }
        }
    }

    /// Completes the outstanding request number `place` with its response.
    pub(super) fn answered(&mut self, at: u32, place: usize, whole: &CompleteResponse) {
        let counting = self.is_counting();
        let client = &mut self.clients[at as usize];
        let Some(link) = &mut client.link else {
            return;
        };
        let Some(pending) = link.pending.remove(place) else {
            return;
        };
        link.answered += 1;
        link.closing |= whole.closes;
        client.session.answered(&ReceivedResponse {
            status: whole.status,
            set_cookie: whole.set_cookie.as_deref(),
            text: whole.text.as_deref(),
        });
        client.thinks_until_ns = self.now_ns + client.session.pause_ns();
        let lacks = client.session.lacks();
        // A load before the store: the cache line stays shared between the threads.
        if !self.shared.reached.load(Relaxed) {
            self.shared.reached.store(true, Relaxed);
        }
        let wrong = check(&pending.expected, whole).or(lacks.then_some(ErrorKind::Lacking));
        // With a quota, requests sent before counting began are not part of it.
        let limited = self.shared.quota.is_some();
        let early = limited && pending.sent_ns < self.shared.count_ns;
        // A response after the end counts as unfinished, as if it had not arrived.
        if self.now_ns >= self.shared.end_ns {
            self.tally.unfinished(pending.expected.class);
        } else if counting && !early {
            self.count(&pending, whole, wrong);
        }
    }

    fn count(&mut self, pending: &OpenRequest, whole: &CompleteResponse, wrong: Option<ErrorKind>) {
        let (now_ns, tally) = (self.now_ns, &mut self.tally);
        tally.answers += 1;
        tally.status(whole.status);
        let several = tally.classes.len() > 1;
        let class = &mut tally.classes[usize::from(pending.expected.class)];
        if let Some(kind) = wrong {
            class.errors += 1;
            return tally.error(kind);
        }
        class.requests += 1;
        class.body_bytes += whole.body_len;
        // From the due time, so that a stalled server can't hide the requests that it delayed (coordinated omission).
        let latency_ns = now_ns - pending.due_ns.min(now_ns);
        if several {
            class.latency.record_ns(latency_ns);
        }
        tally.requests += 1;
        tally.body_bytes += whole.body_len;
        tally.latency.record_ns(latency_ns);
        tally.service.record_ns(now_ns - pending.sent_ns);
        tally.response.record_ns(pending.first_ns - pending.sent_ns);
        tally.transfer.record_ns(now_ns - pending.first_ns);
        tally.reply(now_ns - self.shared.count_ns);
    }
}
