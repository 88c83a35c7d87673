//! Metrics of the export of traces.

use lowroad_metrics::MetricSnapshot;
use lowroad_traces::span_queue::TraceCounters;

use crate::running_server::RunningServer;

/// The meaning of each counter, in the order of the queue's list.
const DESCRIPTIONS: [&str; 4] = [
    "Spans that the collector accepted.",
    "Spans dropped because the queue was full.",
    "Spans that the collector refused, or that could not be sent before the end of the server.",
    "Attempts to send spans that failed.",
];

/// Adds the metrics of traces; without traces, all are 0.
pub fn add(running: &RunningServer, out: &mut MetricSnapshot) {
    let queue = running.traces.as_ref();
    let off = TraceCounters::default();
    let counters = queue.map_or(&off, |queue| queue.counters());
    for ((name, value), help) in counters.list().into_iter().zip(DESCRIPTIONS) {
        out.counter(format!("lowroad_{name}"), help, value);
    }
    out.gauge(
        "lowroad_spans_queued",
        "Spans that wait to be sent.",
        queue.map_or(0, |queue| queue.len() as u64),
    );
}
