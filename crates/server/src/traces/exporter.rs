//! The exporter's thread: takes spans from the queue, sends them in batches, and waits after a failure.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lowroad_log::ErrorLogger;
use lowroad_traces::export_policy::{ExportNotice, ExportOutcome, ExportState, ExportStep};
use lowroad_traces::otlp::ExportResource;
use lowroad_traces::{SpanReceiver, random};

use super::collector_client::CollectorClient;

/// Maximum number of spans in an export request.
const BATCH_COUNT_MAX: usize = 512;
/// Spans wait at most this long in the queue, unless an export fails.
const EXPORT_INTERVAL: Duration = Duration::from_millis(500);

/// Tells the exporter to end.
#[derive(Debug, Default)]
pub struct ExporterControl {
    is_ending: AtomicBool,
}

impl ExporterControl {
    /// Requests the end. The exporter's thread must be woken afterwards.
    pub fn request_end(&self) {
        self.is_ending.store(true, Ordering::Release);
    }

    fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }
}

/// Sends spans to a collector.
pub struct Exporter {
    receiver: SpanReceiver,
    client: CollectorClient,
    resource: ExportResource,
    state: ExportState,
    logger: ErrorLogger,
    control: Arc<ExporterControl>,
    flush_timeout: Duration,
    /// Until then pending spans are exported, once the end is requested.
    flush_end: Option<Instant>,
    /// The number of attempts, for the random part of delays.
    attempts: u64,
}

impl Exporter {
    /// An exporter of the spans of a queue.
    pub fn new(
        receiver: SpanReceiver,
        client: CollectorClient,
        resource: ExportResource,
        logger: ErrorLogger,
        control: Arc<ExporterControl>,
        flush_timeout: Duration,
    ) -> Exporter {
        Exporter {
            receiver,
            client,
            resource,
            state: ExportState::default(),
            logger,
            control,
            flush_timeout,
            flush_end: None,
            attempts: 0,
        }
    }

    /// Exports spans until the end is requested; then the pending ones, within a limited time.
    pub fn run(&mut self) {
        self.receiver.queue().set_exporter(thread::current());
        while !self.control.is_ending() {
            let spans = self.receiver.take(BATCH_COUNT_MAX);
            if spans.is_empty() {
                // The queue wakes this thread when it is half full.
                thread::park_timeout(EXPORT_INTERVAL);
            } else {
                let count = spans.len() as u64;
                let body = self.resource.encode(spans);
                self.export(&body, count);
            }
        }
        self.flush();
    }

    /// Exports a batch, again and again while the collector is unavailable.
    fn export(&mut self, body: &[u8], count: u64) {
        loop {
            match self.attempt(body, count) {
                ExportStep::Continue => return,
                // The last attempt failed.
                ExportStep::RetryAfter(_) if self.flush_end.is_some() => {
                    return self.count_refused(count);
                }
                ExportStep::RetryAfter(delay) => self.wait(delay),
            }
            if self.control.is_ending() {
                self.begin_flush();
            }
        }
    }

    /// Limits the time of all later attempts.
    fn begin_flush(&mut self) -> Instant {
        let end = Instant::now() + self.flush_timeout;
        *self.flush_end.get_or_insert(end)
    }

    /// Exports the pending spans, each batch once.
    fn flush(&mut self) {
        let end = self.begin_flush();
        loop {
            let spans = self.receiver.take(BATCH_COUNT_MAX);
            if spans.is_empty() {
                return;
            }
            let count = spans.len() as u64;
            let body = self.resource.encode(spans);
            let is_late = Instant::now() >= end;
            // After a failure the next batch would fail, too.
            if is_late || self.attempt(&body, count) != ExportStep::Continue {
                self.count_refused(count + self.receiver.queue().len() as u64);
                return;
            }
        }
    }

    fn attempt(&mut self, body: &[u8], count: u64) -> ExportStep {
        let outcome = self.client.post(body, self.flush_end);
        let counters = self.receiver.queue().counters();
        match &outcome {
            ExportOutcome::Accepted(partial) => {
                let refused = partial.refused.min(count);
                counters
                    .exported
                    .fetch_add(count - refused, Ordering::Relaxed);
                counters.refused.fetch_add(refused, Ordering::Relaxed);
            }
            ExportOutcome::Refused(_) => {
                counters.refused.fetch_add(count, Ordering::Relaxed);
                counters.failures.fetch_add(1, Ordering::Relaxed);
            }
            ExportOutcome::Unavailable { .. } => {
                counters.failures.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.attempts += 1;
        let seed = u64::from(std::process::id());
        let (step, notice) = self.state.handle(outcome, random::nth(seed, self.attempts));
        if let Some(notice) = notice {
            self.report(&notice);
        }
        step
    }

    /// Waits, unless the end is requested.
    fn wait(&self, delay: Duration) {
        let end = Instant::now() + delay;
        while !self.control.is_ending() {
            let remaining = end.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return;
            }
            // A full queue wakes this thread, too.
            thread::park_timeout(remaining);
        }
    }

    fn count_refused(&self, count: u64) {
        let counters = self.receiver.queue().counters();
        counters.refused.fetch_add(count, Ordering::Relaxed);
    }

    fn report(&self, notice: &ExportNotice) {
        let endpoint = self.client.endpoint();
        let counters = self.receiver.queue().counters();
        match notice {
            ExportNotice::Failing(reason) => self.logger.error(format_args!(
                "traces: {endpoint}: {reason}; spans wait up to queue_max, further ones are dropped and counted"
            )),
            ExportNotice::Refusing(reason) => self.logger.error(format_args!(
                "traces: {endpoint} refuses spans, which are dropped and counted: {reason}"
            )),
            ExportNotice::Recovered => self.logger.info(format_args!(
                "traces: {endpoint} accepts spans again; since the start, {} were dropped and {} refused",
                counters.dropped.load(Ordering::Relaxed),
                counters.refused.load(Ordering::Relaxed)
            )),
        }
    }
}
