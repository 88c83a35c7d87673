//! Metrics of limits that were hit, by reason: those of requests by site and route, those of connections without.

use lowroad_engine::counters::{WorkerCounter, WorkerCounters};
use lowroad_limits::RefusalReason;
use lowroad_metrics::scope_registry::ScopeLabels;
use lowroad_metrics::{MetricKind, MetricSnapshot};
use lowroad_site::request_metrics::ScopeTotals;

use crate::running_server::RunningServer;

/// A limit of connections, and its counter.
type ConnectionReason = (&'static str, fn(&WorkerCounters) -> &WorkerCounter);

/// The limits of connections. The engine enforces them, often before the site is known.
const CONNECTION_REASONS: [ConnectionReason; 9] = [
    ("connections", |it| &it.over_connections_max),
    ("connections_per_address", |it| &it.over_address_max),
    ("deny_list", |it| &it.connections_denied),
    ("handshake_timeout", |it| &it.handshake_timeouts),
    ("header_timeout", |it| &it.header_timeouts),
    ("body_timeout", |it| &it.body_timeouts),
    ("send_timeout", |it| &it.send_timeouts),
    ("rate_min", |it| &it.rate_too_low),
    ("streams_per_connection", |it| &it.h2_refused),
];

/// Adds the metrics. `totals` are those of the requests of each scope.
pub fn add(
    running: &RunningServer,
    totals: &[(ScopeLabels, ScopeTotals)],
    out: &mut MetricSnapshot,
) {
    let family = out.family(
        MetricKind::Counter,
        "lowroad_refusals",
        "Requests and connections refused or ended at a limit; the reason is the limit's key in the configuration, if it has one.",
    );
    for (reason, counter) in CONNECTION_REASONS {
        let workers = running.counters.iter();
        let count = workers.map(|worker| counter(worker).value()).sum();
        family.whole(&[("site", ""), ("route", ""), ("reason", reason)], count);
    }
    for (labels, totals) in totals {
        for (reason, count) in RefusalReason::ALL.iter().zip(totals.refusals) {
            // Counters that are still 0 are omitted: there may be hundreds.
            if count > 0 {
                let labels = [
                    ("site", &*labels.site),
                    ("route", &*labels.route),
                    ("reason", reason.as_str()),
                ];
                family.whole(&labels, count);
            }
        }
    }
}
