//! Handles the events that the HTTP/2 parser finds in received bytes: requests, their bodies, resets and errors.

use lowroad_http::h2::{self, H2ServerEvent};
use lowroad_http::protocol::StreamId;

use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::driver::IoDriver;
use crate::protocol::Protocol;
use crate::service::HttpService;

/// The result of one parsing step, without borrowing the input.
enum InputOutcome {
    Progress,
    NeedsInput,
    Ended,
}

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Handles `input`, and sends the resulting output. Returns the number of bytes used.
    pub(crate) fn consume_frames(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        input: &[u8],
    ) -> usize {
        let mut used = 0;
        let mut text = std::mem::take(&mut worker.h2.text);
        while !self.is_closed() {
            if self.lingering {
                used = input.len();
                break;
            }
            match self.step_frames(worker, &input[used..], &mut text, &mut used) {
                InputOutcome::Progress => {}
                InputOutcome::NeedsInput => break,
                InputOutcome::Ended => {
                    // Closing over unread bytes would cause a reset, which may destroy the GOAWAY.
                    self.leftover = true;
                    used = input.len();
                    break;
                }
            }
            // One receive may contain many small requests, and their responses must not pile up in memory.
            if worker.out.bytes.len() >= super::OUT_LEN_MAX {
                self.emit(worker);
            }
        }
        worker.h2.text = text;
        worker.publish_h2_counters();
        self.emit(worker);
        self.schedule_frames_check(worker);
        used
    }

    /// Handles the next event at the start of the input.
    fn step_frames(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        input: &[u8],
        text: &mut Vec<u8>,
        used: &mut usize,
    ) -> InputOutcome {
        let now_ms = worker.driver.now_ms();
        let Protocol::Http2(session) = &mut self.protocol else {
            return InputOutcome::NeedsInput;
        };
        let mut turn = h2::ConnectionTurn {
            now_ms,
            settings: &worker.settings.h2,
            out: &mut worker.out.bytes,
            counters: &mut worker.h2.counters,
        };
        let mut head_slot = None;
        let Ok(step) = session.http.next(input, text, &mut head_slot, &mut turn) else {
            return InputOutcome::Ended;
        };
        *used += step.used;
        match step.event {
            None if step.used == 0 => return InputOutcome::NeedsInput,
            None => {}
            Some(H2ServerEvent::Request(head)) => self.on_stream_request(worker, head),
            Some(H2ServerEvent::Data { stream, data }) => self.on_stream_data(worker, stream, data),
            Some(H2ServerEvent::End { stream, trailers }) => {
                self.on_stream_end(worker, stream, &trailers);
            }
            Some(H2ServerEvent::Refused {
                stream,
                refusal,
                request,
            }) => self.refuse_stream(worker, stream, refusal, &request.unwrap_or_default()),
            Some(H2ServerEvent::Reset { stream, .. }) => self.on_stream_reset(worker, stream),
        }
        InputOutcome::Progress
    }

    /// Handles received bytes of a request's body.
    fn on_stream_data(&mut self, worker: &mut WorkerContext<D, V>, stream: StreamId, data: &[u8]) {
        self.handle_body_data(worker, stream, data);
        if self.is_closed() {
            return;
        }
        let Protocol::Http2(session) = &mut self.protocol else {
            return;
        };
        match self.exchanges.incoming(stream) {
            // The body was dropped: its bytes are returned to the connection's window immediately.
            None => session
                .http
                .release_capacity(stream, data.len(), &mut worker.out.bytes),
            Some(incoming) => {
                incoming.unreturned += data.len();
                self.return_h2_window(worker, stream);
            }
        }
    }

    /// Returns read bytes to the client's flow-control window, if the body's queue has room.
    pub(crate) fn return_h2_window(&mut self, worker: &mut WorkerContext<D, V>, stream: StreamId) {
        if self.is_closed() {
            return;
        }
        let Protocol::Http2(session) = &mut self.protocol else {
            return;
        };
        if let Some(incoming) = self.exchanges.incoming(stream)
            && !incoming.full
        {
            let len = std::mem::take(&mut incoming.unreturned);
            session
                .http
                .release_capacity(stream, len, &mut worker.out.bytes);
        }
    }
}
