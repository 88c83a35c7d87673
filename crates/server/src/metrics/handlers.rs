//! Metrics of routes, upstream servers, modules and traffic classes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lowroad_handler::upstream_status::UpstreamStatus;
use lowroad_metrics::{MetricKind, MetricSnapshot};
use lowroad_routes::counts::RouteCounters;

use crate::running_server::RunningServer;

/// Adds the metrics of handlers.
pub fn add(running: &RunningServer, out: &mut MetricSnapshot) {
    routes(running, out);
    upstreams(&running.handler_runtime.origins().servers, out);
    named_counters(running, out);
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
    for (kind, name, help, counter) in families {
        let family = out.family(kind, name, help);
        for site in &running.sites.all {
            for route in site.routes.iter() {
                let labels = [("site", &*site.rules.label), ("route", &*route.name())];
                family.whole(&labels, counter(&route.counts).load(Relaxed));
            }
        }
    }
}

fn upstreams(servers: &[UpstreamStatus], out: &mut MetricSnapshot) {
    type UpstreamValue = fn(&UpstreamStatus) -> Option<u64>;
    let families: [(MetricKind, &str, &str, UpstreamValue); 12] = [
        (
            MetricKind::Gauge,
            "up",
            "Whether an upstream server gets requests.",
            |it| Some(it.member.as_ref()?.is_available.into()),
        ),
        (
            MetricKind::Gauge,
            "weight",
            "The weight of an upstream server.",
            |it| Some(it.member.as_ref()?.weight.into()),
        ),
        (
            MetricKind::Gauge,
            "requests_in_progress",
            "Requests in progress at an upstream server.",
            |it| Some(it.member.as_ref()?.requests_now.into()),
        ),
        (
            MetricKind::Counter,
            "responses",
            "Responses of an upstream server.",
            |it| Some(it.member.as_ref()?.answered),
        ),
        (
            MetricKind::Counter,
            "ejections",
            "How often the circuit breaker has ejected an upstream server.",
            |it| Some(it.member.as_ref()?.ejections),
        ),
        (
            MetricKind::Counter,
            "checks_failed",
            "Failed health checks of an upstream server.",
            |it| Some(it.member.as_ref()?.checks_failed),
        ),
        (
            MetricKind::Counter,
            "checks_passed",
            "Successful health checks of an upstream server.",
            |it| Some(it.member.as_ref()?.checks_passed),
        ),
        (
            MetricKind::Gauge,
            "connections_in_use",
            "Connections to an upstream server with a request.",
            |it| Some(it.connections.in_use),
        ),
        (
            MetricKind::Gauge,
            "connections_idle",
            "Idle connections to an upstream server.",
            |it| Some(it.connections.idle),
        ),
        (
            MetricKind::Counter,
            "connections_opened",
            "Connections opened to an upstream server.",
            |it| Some(it.connections.opened),
        ),
        (
            MetricKind::Counter,
            "connections_reused",
            "Uses of an idle connection to an upstream server.",
            |it| Some(it.connections.reused),
        ),
        (
            MetricKind::Counter,
            "connections_failed",
            "Failed attempts to connect to an upstream server.",
            |it| Some(it.connections.failed),
        ),
    ];
    for (kind, name, help, value) in families {
        let family = out.family(kind, format!("lowroad_upstream_{name}"), help);
        for server in servers {
            if let Some(value) = value(server) {
                family.whole(&labels(server), value);
            }
        }
    }
    let failures = out.family(
        MetricKind::Counter,
        "lowroad_upstream_failures",
        "Failed requests of an upstream server by reason.",
    );
    for server in servers {
        let [origin, name] = labels(server);
        for (reason, count) in server.member.iter().flat_map(|member| &member.failures) {
            failures.whole(&[origin, name, ("reason", reason)], *count);
        }
    }
}

fn labels(server: &UpstreamStatus) -> [(&'static str, &str); 2] {
    // The names in the log begin with the kind.
    let name =
        |text: &'_ str| -> usize { text.strip_prefix("origin ").map_or(0, |_| "origin ".len()) };
    [
        ("origin", &server.origin[name(&server.origin)..]),
        ("server", &server.server[name(&server.server)..]),
    ]
}

/// Counters that handlers name themselves, such as `pages.over_memory`.
fn named_counters(running: &RunningServer, out: &mut MetricSnapshot) {
    for (name, value) in running.handler_runtime.counts() {
        out.gauge(
            format!("lowroad_{}", name.replace('.', "_")),
            "A counter of lowroad status.",
            value,
        );
    }
    let mut modules: Vec<(&'static str, Vec<(String, u64)>)> = Vec::new();
    for (module, counts) in running.handlers.counts() {
        for (name, value) in counts {
            let sample = (module.to_owned(), value);
            match modules.iter_mut().find(|(known, _)| *known == name) {
                Some((_, samples)) => samples.push(sample),
                None => modules.push((name, vec![sample])),
            }
        }
    }
    for (name, samples) in modules {
        let family = out.family(
            MetricKind::Gauge,
            format!("lowroad_module_{name}"),
            "A counter of a module.",
        );
        for (module, value) in samples {
            family.whole(&[("module", &*module)], value);
        }
    }
}

fn classes(running: &RunningServer, out: &mut MetricSnapshot) {
    let counts = running.sites.classes.iter().flat_map(|it| it.counts());
    let family = out.family(
        MetricKind::Gauge,
        "lowroad_class",
        "A counter of a traffic class.",
    );
    for (name, value) in counts {
        let (class, counter) = name.rsplit_once('.').unwrap_or(("", &name));
        family.whole(&[("class", class), ("counter", counter)], value);
    }
}
