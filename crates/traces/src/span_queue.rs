//! The queue from the workers to the exporter's thread: bounded, and without waiting on the workers' side.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;

use crate::sampling::SharedSampleRate;
use crate::span::Span;

/// The workers' end.
#[derive(Debug)]
pub struct SpanQueue {
    sender: SyncSender<Box<Span>>,
    /// The number of spans in the queue.
    len: AtomicUsize,
    /// At this length the exporter is woken.
    wake_len: usize,
    exporter: OnceLock<Thread>,
    counters: TraceCounters,
    /// The share of new traces that are recorded.
    rate: SharedSampleRate,
}

/// Counters of spans since the start of the server.
#[derive(Debug, Default)]
pub struct TraceCounters {
    /// Spans that the collector accepted.
    pub exported: AtomicU64,
    /// Spans that were dropped because the queue was full.
    pub dropped: AtomicU64,
    /// Spans that the collector refused, or that could not be sent before the end of the server.
    pub refused: AtomicU64,
    /// Attempts to send spans that failed.
    pub failures: AtomicU64,
}

impl TraceCounters {
    /// The counters with their names in the server's status.
    pub fn list(&self) -> [(&'static str, u64); 4] {
        [
            ("spans_exported", self.exported.load(Relaxed)),
            ("spans_dropped", self.dropped.load(Relaxed)),
            ("spans_refused", self.refused.load(Relaxed)),
            ("span_export_failures", self.failures.load(Relaxed)),
        ]
    }
}

/// The exporter's end.
#[derive(Debug)]
pub struct SpanReceiver {
    receiver: Receiver<Box<Span>>,
    queue: Arc<SpanQueue>,
}

impl SpanQueue {
    /// A queue for `len_max` spans, at least 2.
    pub fn new(len_max: usize) -> (Arc<SpanQueue>, SpanReceiver) {
        let (sender, receiver) = sync_channel(len_max);
        let queue = Arc::new(SpanQueue {
            sender,
            len: AtomicUsize::new(0),
            wake_len: (len_max / 2).max(1),
            exporter: OnceLock::new(),
            counters: TraceCounters::default(),
            rate: SharedSampleRate::default(),
        });
        let span_receiver = SpanReceiver {
            receiver,
            queue: queue.clone(),
        };
        (queue, span_receiver)
    }

    /// The share of new traces that are recorded; at first all.
    pub fn rate(&self) -> &SharedSampleRate {
        &self.rate
    }

    /// Adds a span, or drops and counts it if the queue is full. Never waits: the exporter polls the queue, and is woken
    /// only when it is half full.
    pub fn push(&self, span: Box<Span>) {
        // Counted first, so that the number is never less than the exporter subtracts.
        let previous_len = self.len.fetch_add(1, Relaxed);
        if self.sender.try_send(span).is_err() {
            self.len.fetch_sub(1, Relaxed);
            self.counters.dropped.fetch_add(1, Relaxed);
        } else if previous_len + 1 == self.wake_len {
            self.wake_exporter();
        }
    }

    /// Wakes the exporter.
    pub fn wake_exporter(&self) {
        if let Some(exporter) = self.exporter.get() {
            exporter.unpark();
        }
    }

    /// Sets the thread that is woken when the queue is half full. Only the first call takes effect.
    pub fn set_exporter(&self, exporter: Thread) {
        let _ = self.exporter.set(exporter);
    }

    /// The number of spans in the queue.
    pub fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The counters.
    pub fn counters(&self) -> &TraceCounters {
        &self.counters
    }
}

impl SpanReceiver {
    /// Removes up to `count` spans.
    pub fn take(&self, count: usize) -> Vec<Box<Span>> {
        let spans: Vec<_> = self.receiver.try_iter().take(count).collect();
        self.queue.len.fetch_sub(spans.len(), Relaxed);
        spans
    }

    /// The queue.
    pub fn queue(&self) -> &Arc<SpanQueue> {
        &self.queue
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request_trace::tests::span;

    #[test]
    fn full_queue_drops_and_counts() {
        let (queue, receiver) = SpanQueue::new(3);
        (0..5).for_each(|_| queue.push(Box::new(span())));
        assert_eq!(queue.counters().dropped.load(Relaxed), 2);
        assert_eq!(queue.len(), 3);
        assert_eq!(receiver.take(2).len(), 2);
        assert_eq!(receiver.take(2).len(), 1);
        assert!(queue.is_empty());
        queue.push(Box::new(span()));
        assert_eq!(receiver.take(2).len(), 1);
    }

    #[test]
    fn exporter_is_woken_when_the_queue_is_half_full() {
        let (queue, receiver) = SpanQueue::new(4);
        let thread = std::thread::spawn(move || {
            std::thread::park();
            receiver.take(10).len()
        });
        queue.set_exporter(thread.thread().clone());
        queue.push(Box::new(span()));
        queue.push(Box::new(span()));
        // A thread that was not woken would park forever.
        assert!(thread.join().expect("no panic") >= 1);
    }
}
