//! Timeouts of a worker and its connections.
//!
//! A deadline is a field of the connection; the timer wheel only schedules when the connection compares it with the
//! time.

use lowroad_http::protocol::StreamId;

use crate::client_pace::PaceVerdict;
use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::driver::IoDriver;
use crate::recovery::ListenerSuspension;
use crate::send_queue::TransferStep;
use crate::service::{ConnectionRefusal, HttpService};
use crate::worker::Worker;

impl<D: IoDriver, V: HttpService> Worker<D, V> {
    /// The timeout of the next wait.
    pub(crate) fn timeout_ms(&self) -> Option<u64> {
        let close_ms = self.closing.first().map(|(_, close_ms)| *close_ms);
        let next_ms = [
            self.context.wheel.next(),
            self.paused_until_ms,
            self.context.drain_until_ms,
            close_ms,
            self.suspension.as_ref().map(ListenerSuspension::due_ms),
        ];
        let next_ms = next_ms.into_iter().flatten().min()?;
        Some(next_ms.saturating_sub(self.context.driver.now_ms()))
    }

    pub(crate) fn check_deadlines(&mut self) {
        let now_ms = self.context.driver.now_ms();
        if self
            .paused_until_ms
            .is_some_and(|until_ms| now_ms >= until_ms)
        {
            self.paused_until_ms = None;
            if !self.suspension.as_ref().is_some_and(|it| it.is_silent) {
                self.listeners
                    .iter()
                    .for_each(|id| self.context.driver.listen(*id, true));
            }
        }
        self.continue_suspension(now_ms);
        self.close_listeners(now_ms);
        if self
            .context
            .drain_until_ms
            .is_some_and(|until_ms| now_ms >= until_ms)
        {
            // The drain has timed out: remaining connections are closed.
            self.end_drain();
        }
        let mut due = std::mem::take(&mut self.due);
        due.extend(std::iter::from_fn(|| self.context.wheel.pop(now_ms)));
        for slot in due.drain(..) {
            // Closing a connection leaves its entry in the wheel: the slot may be empty, or belong to a newer
            // connection.
            let Some(connection) = self.connections.get(slot as usize) else {
                continue;
            };
            let token = connection.token;
            self.visit(token, |connection, context| {
                connection.check(context, now_ms)
            });
        }
        self.due = due;
    }
}

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Handles the connection's check in the timer wheel.
    fn check(&mut self, worker: &mut WorkerContext<D, V>, now_ms: u64) {
        if self.deadline_ms <= now_ms {
            self.on_deadline(worker);
        }
        if !self.is_closed() {
            self.schedule_check(worker);
        }
    }

    /// Schedules a check at the connection's deadline.
    pub(crate) fn schedule_check(&mut self, worker: &mut WorkerContext<D, V>) {
        worker.wheel.schedule(self.token.slot, self.deadline_ms);
    }

    pub(crate) fn on_deadline(&mut self, worker: &mut WorkerContext<D, V>) {
        // The peer had its time to read the last response.
        if self.lingering {
            self.close();
        } else if self.transport.is_handshaking() {
            worker.counters.handshake_timeouts.bump();
            self.close();
        } else {
            self.on_protocol_deadline(worker);
        }
    }

    /// Checks the client's pace in sending request bodies.
    pub(crate) fn check_incoming_pace(&mut self, worker: &mut WorkerContext<D, V>) {
        if self.protocol.is_tunnel() {
            return; // tunnels have their own timeout
        }
        let now_ms = worker.driver.now_ms();
        let mut deadline_ms = u64::MAX;
        let mut stream = None;
        while !self.is_closed() {
            stream = self.exchanges.next_incoming(stream);
            let Some(stream) = stream else {
                if deadline_ms < u64::MAX {
                    self.deadline_ms = deadline_ms;
                }
                return;
            };
            if self
                .exchanges
                .get(stream)
                .is_some_and(|it| it.tunnel.is_some())
            {
                continue; // a tunnel, as above
            }
            let is_conversation = self.is_conversation(stream);
            let Some(incoming) = self.exchanges.incoming(stream) else {
                return;
            };
            // The handler, not the client, is slow; or the client may wait for the handler.
            if incoming.full || is_conversation {
                incoming.pace.exclude_wait(now_ms);
            }
            let timeout_ms = worker.settings.body_timeout_ms;
            match incoming.pace.judge(&worker.settings, timeout_ms, now_ms) {
                PaceVerdict::Fine { next_check_ms } => {
                    deadline_ms = deadline_ms.min(next_check_ms);
                    continue;
                }
                PaceVerdict::Stalled => worker.counters.body_timeouts.bump(),
                PaceVerdict::TooSlow => worker.counters.rate_too_low.bump(),
            }
            self.break_incoming(worker, stream, ConnectionRefusal::Timeout);
        }
    }

    /// Whether a response is in progress while the request body continues, as for streams of gRPC. Then either side may
    /// wait for the other, and the handler's timeout applies to the silence of both.
    fn is_conversation(&mut self, stream: StreamId) -> bool {
        self.protocol.is_multiplexed()
            && self.protocol.is_answered(stream)
            && self
                .exchanges
                .get(stream)
                .is_some_and(|it| it.body.is_some())
    }

    pub(crate) fn check_sending_pace(&mut self, worker: &mut WorkerContext<D, V>) {
        let now_ms = worker.driver.now_ms();
        // A stalled request body must not end a connection while the client still reads responses.
        self.skip_stalled_bodies(worker);
        let Some(sending) = &mut self.sending else {
            return;
        };
        if sending.transfer.is_server_wait() {
            // The client waits for the server, so this time counts neither as a stall nor in its rate. An acknowledgement
            // that arrived during the wait does not end it, so it is recorded afterwards.
            sending.pace.exclude_wait(now_ms);
        }
        let queued = self.transport.unacknowledged(&worker.driver);
        sending.pace.record_acknowledged(queued, now_ms);
        match sending
            .pace
            .judge(&worker.settings, worker.settings.send_timeout_ms, now_ms)
        {
            PaceVerdict::Fine { next_check_ms } => {
                self.deadline_ms = match self.protocol.is_multiplexed() {
                    // A new send must not postpone the check of other streams.
                    true => self.deadline_ms.min(next_check_ms),
                    false => next_check_ms,
                };
                match sending.transfer {
                    TransferStep::AwaitingAck { .. } => self.check_acknowledged(worker),
                    TransferStep::Postponed => self.retry_transfer(worker),
                    TransferStep::Paced => {
                        self.transmit(worker);
                        self.resume(worker);
                    }
                    TransferStep::Delivering { .. } => {
                        self.on_all_sent(worker);
                        if self.sending.is_none() {
                            self.resume(worker);
                        }
                    }
                    _ => {}
                }
            }
            PaceVerdict::Stalled => {
                worker.counters.send_timeouts.bump();
                self.close();
            }
            PaceVerdict::TooSlow => {
                worker.counters.rate_too_low.bump();
                self.close();
            }
        }
    }
}
