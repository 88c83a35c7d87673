//! Metrics of facilities that the handlers of several routes share: temporary files, compression, pages, WebAssembly,
//! modules. Their counters have names in `lowroad status`, which this module maps to metrics.

use lowroad_metrics::{MetricKind, MetricSnapshot};

use crate::running_server::RunningServer;

/// A counter's name in `lowroad status`, and the metric's kind, name and help text.
type NamedCounter = (&'static str, MetricKind, &'static str, &'static str);

const COUNTERS: [NamedCounter; 34] = [
    (
        "mirror.sent",
        MetricKind::Counter,
        "lowroad_mirror_sent",
        "Copies of requests that were sent to the origin of a mirror.",
    ),
    (
        "mirror.failed",
        MetricKind::Counter,
        "lowroad_mirror_failed",
        "Copies of requests that got no response from the origin of a mirror.",
    ),
    (
        "mirror.skipped",
        MetricKind::Counter,
        "lowroad_mirror_skipped",
        "Requests not mirrored because too many copies were in progress.",
    ),
    (
        "mirror.too_large",
        MetricKind::Counter,
        "lowroad_mirror_too_large",
        "Requests not mirrored because their body exceeded the limit.",
    ),
    (
        "sticky.kept",
        MetricKind::Counter,
        "lowroad_sticky_kept",
        "Requests that the server named by their session cookie answered.",
    ),
    (
        "sticky.begun",
        MetricKind::Counter,
        "lowroad_sticky_begun",
        "Requests without a session cookie at origins with sticky sessions.",
    ),
    (
        "sticky.moved",
        MetricKind::Counter,
        "lowroad_sticky_moved",
        "Requests that another server answered, because the one named by their session cookie was unavailable.",
    ),
    (
        "sticky.stale",
        MetricKind::Counter,
        "lowroad_sticky_stale",
        "Requests with a session cookie that had expired or named a server that is gone.",
    ),
    (
        "sticky.forged",
        MetricKind::Counter,
        "lowroad_sticky_forged",
        "Requests with a session cookie without a valid signature.",
    ),
    (
        "sticky.crowded",
        MetricKind::Counter,
        "lowroad_sticky_crowded",
        "Requests with more than 8 cookies of a session cookie's name, of which the last 8 were verified.",
    ),
    (
        "lookups.delayed",
        MetricKind::Counter,
        "lowroad_lookups_delayed",
        "Look-ups of names by the system's resolver that waited because 16 others were in progress.",
    ),
    (
        "pages.over_memory",
        MetricKind::Counter,
        "lowroad_pages_over_memory",
        "Pages that exceeded their memory.",
    ),
    (
        "spool_bytes",
        MetricKind::Gauge,
        "lowroad_spool_bytes",
        "Bytes of bodies in temporary files.",
    ),
    (
        "spool_files",
        MetricKind::Gauge,
        "lowroad_spool_files",
        "Temporary files of bodies.",
    ),
    (
        "spool_requests",
        MetricKind::Counter,
        "lowroad_spool_requests",
        "Request bodies that went through a temporary file.",
    ),
    (
        "spool_responses",
        MetricKind::Counter,
        "lowroad_spool_responses",
        "Responses that were written to a temporary file for a slow client.",
    ),
    (
        "spool_refused",
        MetricKind::Counter,
        "lowroad_spool_refused",
        "Requests refused because temporary files had no room for their body.",
    ),
    (
        "spool_held_back",
        MetricKind::Counter,
        "lowroad_spool_held_back",
        "How often a handler waited for a slow client.",
    ),
    (
        "spool_failed",
        MetricKind::Counter,
        "lowroad_spool_failures",
        "Temporary files that could not be created, written or read.",
    ),
    (
        "compressed",
        MetricKind::Counter,
        "lowroad_compressed_responses",
        "Responses of handlers that were compressed.",
    ),
    (
        "compress_refused",
        MetricKind::Counter,
        "lowroad_uncompressed_responses",
        "Responses of handlers not compressed because too many were in progress.",
    ),
    (
        "wasm.requests",
        MetricKind::Counter,
        "lowroad_wasm_requests",
        "Requests for WebAssembly modules.",
    ),
    (
        "wasm.instances",
        MetricKind::Counter,
        "lowroad_wasm_instances_created",
        "WebAssembly instances that were created.",
    ),
    (
        "wasm.reused",
        MetricKind::Counter,
        "lowroad_wasm_instances_reused",
        "Requests that got a reset WebAssembly instance.",
    ),
    (
        "wasm.now_instances",
        MetricKind::Gauge,
        "lowroad_wasm_instances",
        "WebAssembly instances.",
    ),
    (
        "wasm.now_resting",
        MetricKind::Gauge,
        "lowroad_wasm_instances_idle",
        "Idle WebAssembly instances.",
    ),
    (
        "wasm.now_memory_bytes",
        MetricKind::Gauge,
        "lowroad_wasm_memory_bytes",
        "Memory of all WebAssembly instances.",
    ),
    (
        "wasm.traps",
        MetricKind::Counter,
        "lowroad_wasm_traps",
        "WebAssembly instances that trapped, except those that computed for too long.",
    ),
    (
        "wasm.deadlines",
        MetricKind::Counter,
        "lowroad_wasm_deadlines",
        "WebAssembly instances that computed for too long.",
    ),
    (
        "wasm.memory_refused",
        MetricKind::Counter,
        "lowroad_wasm_memory_refused",
        "Growths of WebAssembly memory or tables that were refused.",
    ),
    (
        "wasm.full",
        MetricKind::Counter,
        "lowroad_wasm_full",
        "Requests that found no free WebAssembly instance and got 503.",
    ),
    (
        "wasm.bad_pointers",
        MetricKind::Counter,
        "lowroad_wasm_bad_pointers",
        "Arguments of WebAssembly calls that pointed outside the instance's memory.",
    ),
    (
        "wasm.compiled",
        MetricKind::Counter,
        "lowroad_wasm_compiled",
        "WebAssembly files that were compiled.",
    ),
    (
        "wasm.rejected",
        MetricKind::Counter,
        "lowroad_wasm_rejected",
        "Changed WebAssembly files that were rejected.",
    ),
];

/// The counters of a module, with their help texts.
const MODULE_COUNTERS: [(&str, &str); 9] = [
    ("calls", "Requests for a module."),
    (
        "waited",
        "Calls of a module that were not answered at once.",
    ),
    ("failed", "Calls that a module ended with a failure."),
    ("late", "Calls of a module that the route's timeout ended."),
    (
        "gone",
        "Calls of a module abandoned by their client while the module waited.",
    ),
    (
        "refused",
        "Requests for a module that got 503 because too many calls were in progress.",
    ),
    ("reloads", "New versions of a module that were loaded."),
    ("rejected", "New versions of a module that were rejected."),
    ("crashes", "Deaths of a module's process."),
];

/// Adds the metrics. A counter that is not listed above becomes a gauge of the same name.
pub fn add(running: &RunningServer, out: &mut MetricSnapshot) {
    for (name, value) in running.handler_runtime.counts() {
        match COUNTERS.iter().find(|(known, ..)| *known == name) {
            Some((_, kind, metric, help)) => out.family(*kind, *metric, help).whole(&[], value),
            None => out.gauge(
                format!("lowroad_{}", name.replace('.', "_")),
                "A counter of lowroad status.",
                value,
            ),
        }
    }
    let modules = running.handlers.counts();
    // By counter first, since a family has the samples of all modules, and may appear only once in a scrape.
    for (counter, help) in MODULE_COUNTERS {
        let family = out.family(
            MetricKind::Counter,
            format!("lowroad_module_{counter}"),
            help,
        );
        for (module, counts) in &modules {
            for (_, value) in counts.iter().filter(|(name, _)| *name == counter) {
                family.whole(&[("module", *module)], *value);
            }
        }
    }
}
