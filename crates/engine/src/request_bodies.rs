//! Request bodies that arrive while their requests are handled: passes their bytes to the handler, enforces the minimum
//! pace, and sends 100 (Continue). The protocol parses the bytes.

use std::task::Context;

use lowroad_http::fields::FieldLines;
use lowroad_http::protocol::StreamId;
use lowroad_http::refusal::RequestRefusal;
use lowroad_http::status::StatusCode;

use crate::body_stream::RequestBodyStream;
use crate::client_pace::ClientPace;
use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::driver::IoDriver;
use crate::service::{ConnectionRefusal, HttpService};
use crate::stream_table::ResumeReason;
use crate::tunnel::{TunnelActivity, TunnelReturn};

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Handles received bytes of a body.
    pub(crate) fn handle_body_data(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
        data: &[u8],
    ) {
        let now_ms = worker.driver.now_ms();
        let Some(incoming) = self.exchanges.incoming(stream) else {
            return;
        };
        incoming.data(data);
        if incoming.is_too_long() {
            let refusal = ConnectionRefusal::Request(RequestRefusal::BodyTooLarge);
            worker.counters.refused.bump();
            return self.break_incoming(worker, stream, refusal);
        }
        incoming.pace.record_progress(data.len() as u64, now_ms);
        if incoming.full {
            self.watch_incoming(worker, stream);
        }
    }

    /// Sends 100 (Continue) to a client that expects it, if the body has a reader or is to be dropped before the
    /// response. The body's pace is measured from now on.
    pub(crate) fn send_continue(&mut self, worker: &mut WorkerContext<D, V>, stream: StreamId) {
        let now_ms = worker.driver.now_ms();
        let Some(state) = self.exchanges.get(stream) else {
            return;
        };
        let (Some(incoming), Some(deferred)) = (&mut state.incoming, &state.deferred) else {
            return;
        };
        // For an unwanted body only the final response is sent (RFC 9110 §10.1.1).
        if !incoming.has_reader() && !matches!(deferred.resume_reason, ResumeReason::Body { .. }) {
            return;
        }
        if !self.protocol.expects_continue(stream) {
            return;
        }
        let out = &mut worker.out.bytes;
        self.protocol
            .interim(stream, StatusCode::CONTINUE, FieldLines::NONE, out);
        // The client has waited for this response until now.
        incoming.pace = ClientPace::new(now_ms);
        self.commit_output(worker, stream);
    }

    /// Waits for the rest of a request body.
    pub(crate) fn await_body(&mut self, worker: &mut WorkerContext<D, V>, stream: StreamId) {
        self.watch_incoming(worker, stream);
        if !self.is_closed() {
            self.schedule_check(worker);
        }
    }

    /// Registers a waker for room in a body's queue, and schedules the check of its pace.
    pub(crate) fn watch_incoming(&mut self, worker: &mut WorkerContext<D, V>, stream: StreamId) {
        let now_ms = worker.driver.now_ms();
        if self.is_closed() {
            return;
        }
        let token = self.token;
        let Some(incoming) = self.exchanges.incoming(stream) else {
            return;
        };
        if incoming.full {
            let waker = worker.wakers.waker_for(&worker.mailbox, token);
            incoming.poll_room(&mut Context::from_waker(waker), now_ms);
        }
        if self.sending.is_none() {
            self.check_incoming_pace(worker); // not expired yet: sets the time of the next check
            self.schedule_check(worker);
        }
    }

    /// Starts the tunnel after a response that changed the protocol of the connection or stream.
    pub(crate) fn begin_tunnel(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
        tunnel_return: TunnelReturn,
    ) {
        let now_ms = worker.driver.now_ms();
        worker.counters.tunnels.bump();
        let idle_timeout_ms = tunnel_return.idle_timeout_ms;
        let idle_timeout_ms = idle_timeout_ms.unwrap_or(worker.settings.idle_timeout_ms);
        let watch = TunnelActivity::new(idle_timeout_ms, now_ms);
        let state = self.exchanges.get_or_insert(stream);
        state.incoming = Some(RequestBodyStream::new(tunnel_return.sender, now_ms));
        state.tunnel = Some(watch);
    }
}
