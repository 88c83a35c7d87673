//! Metrics of the handlers of routes, and of traffic classes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lowroad_metrics::{MetricKind, MetricSnapshot};
use lowroad_routes::counts::RouteCounters;

use crate::running_server::RunningServer;

/// Adds the metrics of handlers.
pub fn add(running: &RunningServer, out: &mut MetricSnapshot) {
    routes(running, out);
    classes(running, out);
}

fn routes(running: &RunningServer, out: &mut MetricSnapshot) {
    type RouteCounter = fn(&RouteCounters) -> &AtomicU64;
    let families: [(MetricKind, &str, &str, RouteCounter); 5] = [
        (
            MetricKind::Counter,
            "lowroad_handler_calls",
            "Calls of a route's handler.",
            |it| &it.calls,
        ),
        (
            MetricKind::Counter,
            "lowroad_handler_failures",
            "Failed calls of a route's handler.",
            |it| &it.failed,
        ),
        (
            MetricKind::Gauge,
            "lowroad_handler_waiting_requests",
            "Requests that wait for the head of a handler's response.",
            |it| &it.waiting,
        ),
        (
            MetricKind::Counter,
            "lowroad_handler_stored_responses",
            "Requests for a route answered from the store.",
            |it| &it.store_hits,
        ),
        (
            MetricKind::Counter,
            "lowroad_handler_coalesced_requests",
            "Requests for a route answered by an equal request's call.",
            |it| &it.shared,
        ),
    ];
    // Grouped by scope, as requests are: the number of scopes is bounded, and equal routes of sites with the same name
    // share their labels.
    let mut by_scope: BTreeMap<usize, Vec<&RouteCounters>> = BTreeMap::new();
    for route in running.sites.all.iter().flat_map(|site| site.routes.iter()) {
        let counters = by_scope.entry(route.metric_scope.index()).or_default();
        counters.push(&route.counts);
    }
    let scopes = running.sites.scopes.labels();
    for (kind, name, help, counter) in families {
        let family = out.family(kind, name, help);
        for (index, routes) in &by_scope {
            let sum = routes.iter().map(|it| counter(it).load(Relaxed)).sum();
            if let Some(scope) = scopes.get(*index) {
                family.whole(&[("site", &*scope.site), ("route", &*scope.route)], sum);
            }
        }
    }
}

/// Numbers of a traffic class: the name in `lowroad status`, the metric's kind and name, and its help text.
const CLASS_NUMBERS: [(&str, MetricKind, &str, &str); 8] = [
    (
        "requests",
        MetricKind::Counter,
        "lowroad_class_requests",
        "Requests of a traffic class.",
    ),
    (
        "beyond_rate",
        MetricKind::Counter,
        "lowroad_class_beyond_rate",
        "Requests of a traffic class refused because they exceeded its rate.",
    ),
    (
        "calls",
        MetricKind::Counter,
        "lowroad_class_calls",
        "Calls of handlers for a traffic class.",
    ),
    (
        "waited",
        MetricKind::Counter,
        "lowroad_class_waited",
        "Calls of a traffic class that waited for their turn.",
    ),
    (
        "shed",
        MetricKind::Counter,
        "lowroad_class_shed",
        "Requests of a traffic class refused because its queue was full.",
    ),
    (
        "too_late",
        MetricKind::Counter,
        "lowroad_class_too_late",
        "Requests of a traffic class refused because they had waited until its deadline.",
    ),
    (
        "under_way",
        MetricKind::Gauge,
        "lowroad_class_calls_in_progress",
        "Calls in progress for a traffic class.",
    ),
    (
        "waiting",
        MetricKind::Gauge,
        "lowroad_class_waiting_requests",
        "Requests of a traffic class that wait for their turn.",
    ),
];

fn classes(running: &RunningServer, out: &mut MetricSnapshot) {
    let classes = running.sites.classes.iter();
    let numbers: Vec<_> = classes.flat_map(|it| it.counts()).collect();
    for (number, kind, metric, help) in CLASS_NUMBERS {
        let family = out.family(kind, metric, help);
        for (name, value) in &numbers {
            // The names of `lowroad status` begin with the class: `gold.requests`.
            if let Some((class, _)) = name.rsplit_once('.').filter(|(_, it)| *it == number) {
                family.whole(&[("class", class)], *value);
            }
        }
    }
}
