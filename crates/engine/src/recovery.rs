//! Recovery of a worker from a panic: its connections end, everything else continues.
//!
//! Driver, listeners, mailbox, tasks and settings survive: their state is valid at each point at which the code between
//! them may panic. So a drain, a reload and the fetches for other workers' clients proceed. If panics repeat, the
//! worker's listeners are suspended for a while, and the kernel gives new connections to the other workers. The last
//! worker that accepts connections is not suspended, nor any during an upgrade, as the successor shares the listeners.

use crate::accept::LAST_ACCEPT_MS;
use crate::context::WorkerContext;
use crate::driver::IoDriver;
use crate::panic_policy::contain;
use crate::service::HttpService;
use crate::worker::Worker;

/// A panic is a repetition if the worker has accepted connections for less than this time since the last one.
const REPEAT_MS: u64 = 60_000;
/// The first pause.
const PAUSE_MIN_MS: u64 = 1_000;
/// The longest pause. Each pause is twice as long as the previous one.
const PAUSE_MAX_MS: u64 = 60_000;
/// When a listener is tried again that could not be resumed.
const RETRY_MS: u64 = 1_000;

/// Exponential backoff after repeated panics.
#[derive(Default)]
pub(crate) struct PanicBackoff {
    /// The end of the last pause, monotonic ms.
    resumed_ms: Option<u64>,
    pause_ms: u64,
}

impl PanicBackoff {
    /// Records a panic. Returns the length of the pause, 0 unless the panic is a repetition.
    fn record_panic(&mut self, now_ms: u64) -> u64 {
        let is_repeated = |resumed_ms| now_ms < resumed_ms + REPEAT_MS;
        self.pause_ms = match self.resumed_ms.is_some_and(is_repeated) {
            true => (self.pause_ms * 2).clamp(PAUSE_MIN_MS, PAUSE_MAX_MS),
            false => 0,
        };
        self.resumed_ms = Some(now_ms + self.pause_ms);
        self.pause_ms
    }
}

/// The suspension of a worker's listeners.
pub(crate) struct ListenerSuspension {
    /// When the listeners become silent: until then, handshakes in progress are completed.
    silent_ms: u64,
    resume_ms: u64,
    /// The listeners don't listen.
    pub is_silent: bool,
}

impl ListenerSuspension {
    /// When the suspension is to be continued, monotonic ms.
    pub fn due_ms(&self) -> u64 {
        match self.is_silent {
            true => self.resume_ms,
            false => self.silent_ms,
        }
    }
}

/// The consequences of a panic.
#[derive(Debug, PartialEq, Eq)]
pub struct PanicConsequences {
    /// The number of connections that were closed.
    pub connections: usize,
    /// Whether the worker accepts connections.
    pub pause: PanicPause,
}

/// The pause of a worker after a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PanicPause {
    /// The panic is no repetition, or the worker drains.
    None,
    /// The worker accepts no connections for this time in milliseconds.
    Ms(u64),
    /// None, because another process shares the listeners.
    SharedListeners,
    /// None, because no other worker accepts connections.
    LastWorker,
}

impl<D: IoDriver, V: HttpService> Worker<D, V> {
    /// Continues after [`Worker::run`] or [`Worker::turn`] has panicked: ends all connections, resets the state that the
    /// panic may have left incomplete, and pauses if panics repeat.
    pub fn recover(&mut self) -> PanicConsequences {
        self.context.counters.worker_panics.bump();
        // First, as the end of a connection calls the service.
        contain(|| self.context.service.recover());
        let connections = std::mem::take(&mut self.connections);
        let count = connections.len();
        for (_, connection) in connections {
            // The state of a connection may be the reason for the panic.
            contain(|| connection.end(&mut self.context));
        }
        self.context.recover();
        self.reset_quic();
        // Tasks and messages that a list lost by unwinding are handled now.
        self.context.worker_handle.tasks.wake_all();
        let pause = self.pause_after_panic();
        if let PanicPause::Ms(pause_ms) = pause {
            self.suspend_listeners(pause_ms);
        }
        PanicConsequences {
            connections: count,
            pause,
        }
    }

    fn pause_after_panic(&mut self) -> PanicPause {
        let now_ms = self.context.driver.now_ms();
        let pause_ms = self.panic_backoff.record_panic(now_ms);
        if pause_ms == 0 || self.context.drain_until_ms.is_some() {
            return PanicPause::None;
        }
        if self.has_shared_listeners {
            return PanicPause::SharedListeners;
        }
        let workers = self.context.peers.len();
        match self.suspension.is_some() || self.context.admission.suspend_worker(workers) {
            true => PanicPause::Ms(pause_ms),
            false => PanicPause::LastWorker,
        }
    }

    /// Forgets a suspension. Returns whether there was one.
    pub(crate) fn clear_suspension(&mut self) -> bool {
        let was_suspended = self.suspension.take().is_some();
        if was_suspended {
            self.context.admission.resume_worker();
        }
        was_suspended
    }

    fn suspend_listeners(&mut self, pause_ms: u64) {
        self.context.counters.worker_panic_pauses.bump();
        let now_ms = self.context.driver.now_ms();
        let is_silent = self.suspension.as_ref().is_some_and(|it| it.is_silent);
        for id in &self.listeners {
            self.context.driver.refuse_handshakes(*id);
        }
        self.suspension = Some(ListenerSuspension {
            silent_ms: now_ms + LAST_ACCEPT_MS,
            resume_ms: now_ms + pause_ms,
            is_silent,
        });
    }

    /// Begins the silent part of a suspension, or ends the suspension, if it is time.
    pub(crate) fn continue_suspension(&mut self, now_ms: u64) {
        let Some(suspension) = &self.suspension else {
            return;
        };
        if now_ms < suspension.due_ms() {
            return;
        }
        if suspension.is_silent {
            return self.end_suspension();
        }
        for id in self.listeners.clone() {
            self.accept_rest(id);
            self.context.driver.suspend_listener(id);
        }
        // Last, as an accepted connection may panic.
        if let Some(suspension) = &mut self.suspension {
            suspension.is_silent = true;
        }
    }

    /// Accepts connections again.
    pub(crate) fn end_suspension(&mut self) {
        if self.suspension.is_none() {
            return;
        }
        // The listeners are registered again now.
        self.paused_until_ms = None;
        let driver = &mut self.context.driver;
        let listeners = self.listeners.iter();
        let failed = listeners.filter(|id| driver.resume_listener(**id).is_err());
        if failed.count() == 0 {
            self.clear_suspension();
            return;
        }
        let now_ms = self.context.driver.now_ms();
        self.suspension = Some(ListenerSuspension {
            silent_ms: now_ms,
            resume_ms: now_ms + RETRY_MS,
            is_silent: true,
        });
    }
}

impl<D: IoDriver, V: HttpService> WorkerContext<D, V> {
    /// Resets the state that the connections shared. Responses that are not sent are reported.
    fn recover(&mut self) {
        let now_ms = self.driver.now_ms();
        let unframed = std::mem::take(&mut self.unframed);
        let unframed = unframed
            .list
            .into_iter()
            .filter_map(|response| response.record);
        let records = std::mem::take(&mut self.records);
        for record in records.into_iter().map(|it| it.record).chain(unframed) {
            contain(|| self.service.sent(record, 0, false, now_ms));
        }
        self.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_while_panics_repeat_and_start_again_after_a_quiet_minute() {
        let mut backoff = PanicBackoff::default();
        let mut now_ms = 5_000;
        for pause_ms in [
            0, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000,
        ] {
            assert_eq!(backoff.record_panic(now_ms), pause_ms);
            now_ms += pause_ms + REPEAT_MS - 1;
        }
        now_ms += 1;
        assert_eq!(backoff.record_panic(now_ms), 0);
        assert_eq!(backoff.record_panic(now_ms), PAUSE_MIN_MS);
    }
}
