//! Metrics of the softirq level, from the latest report of its daemon.

use lowroad_metrics::{MetricKind, MetricSnapshot};

use crate::running_server::RunningServer;

/// Counters by the prefix of their name in the report: prefix, metric, help text, and the label that gets the rest of
/// the name.
const COUNTERS: [(&str, &str, &str); 7] = [
    (
        "answer_",
        "lowroad_softirq_answers",
        "Requests and segments answered in the soft interrupt, by kind.",
    ),
    (
        "up_",
        "lowroad_softirq_punts",
        "Requests passed to the worker level, by reason.",
    ),
    (
        "tcp_",
        "lowroad_softirq_tcp_segments",
        "Segments of the level's connections, by kind.",
    ),
    (
        "drop_",
        "lowroad_softirq_dropped_segments",
        "Dropped segments, by reason.",
    ),
    (
        "pass_",
        "lowroad_softirq_passed_packets",
        "Packets left to the kernel, by reason.",
    ),
    (
        "event_",
        "lowroad_softirq_events",
        "Events of the programs to their process, by kind.",
    ),
    (
        "denied_",
        "lowroad_softirq_responses_not_stored",
        "Responses that the level fetched and did not publish, by reason.",
    ),
];

const GAUGES: [(&str, &str); 6] = [
    ("published_responses", "Responses published in the level."),
    (
        "published_responses_max",
        "The most responses that can be published.",
    ),
    ("open_connections", "Connections of the level."),
    ("connections_max", "The most connections of the level."),
    (
        "parked_sockets",
        "Kernel sockets that wait for their connection to migrate back.",
    ),
    (
        "bypassed",
        "Whether all connections are left to the kernel for a while.",
    ),
];

/// Adds the metrics of the level, if it is configured.
pub fn add(running: &RunningServer, out: &mut MetricSnapshot) {
    let Some(health) = &running.softirq else {
        return;
    };
    let numbers = health.report().numbers;
    for (prefix, metric, help) in COUNTERS {
        let family = out.family(MetricKind::Counter, metric, help);
        for (name, value) in &numbers {
            if let Some(reason) = name.strip_prefix(prefix) {
                family.whole(&[("reason", reason)], *value);
            }
        }
    }
    let family = out.family(
        MetricKind::Counter,
        "lowroad_softirq_hits",
        "Requests answered in the soft interrupt with published responses, by site.",
    );
    for (site, hits) in health.site_hits() {
        family.whole(&[("site", &*site)], hits);
    }
    let find = |name: &str| numbers.iter().find(|(known, _)| known == name);
    for (gauge, help) in GAUGES {
        if let Some((_, value)) = find(&format!("gauge_{gauge}")) {
            out.gauge(format!("lowroad_softirq_{gauge}"), help, *value);
        }
    }
    if let Some((_, value)) = find("bytes_answered") {
        let help = "Bytes of heads and bodies sent from the soft interrupt.";
        out.counter("lowroad_softirq_answered_bytes", help, *value);
    }
}
