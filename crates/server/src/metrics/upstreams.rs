//! Metrics of upstream servers.

use std::collections::BTreeMap;

use lowroad_handler::upstream_status::{FAILURE_REASONS, UpstreamStatus};
use lowroad_metrics::{LatencyDistribution, MetricKind, MetricSnapshot, SampleValue};

use crate::running_server::RunningServer;

/// Reads a number of an upstream server; `None` if the server has no such number.
type UpstreamNumber = fn(&UpstreamStatus) -> Option<u64>;

/// The servers with the same labels.
type EqualServers<'a> = BTreeMap<ServerLabels<'a>, Vec<&'a UpstreamStatus>>;

/// A histogram's name and help text, and its distribution.
type DurationFamily = (
    &'static str,
    &'static str,
    fn(&UpstreamStatus) -> &LatencyDistribution,
);

/// The metric's kind, name and help text, and its number.
type UpstreamFamily = (MetricKind, &'static str, &'static str, UpstreamNumber);

/// The labels of an upstream server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerLabels<'a> {
    /// The origin as configured, or the name of its group.
    pub origin: &'a str,
    /// The server's address.
    pub server: &'a str,
}

/// Gauges of state: of several servers with the same labels, the greatest value is reported.
const STATES: [UpstreamFamily; 3] = [
    (
        MetricKind::Gauge,
        "lowroad_upstream_in_rotation",
        "Whether an upstream server may get requests of all clients: 0 while an operator drains it or has taken it down.",
        |it| Some(it.mode.is_in_rotation().into()),
    ),
    (
        MetricKind::Gauge,
        "lowroad_upstream_up",
        "Whether a member of an upstream group works: 1 also while it has all its connections in use, 0 while health \
         checks fail, and while it is ejected, until a trial request succeeds.",
        |it| Some(it.member.as_ref()?.is_available.into()),
    ),
    (
        MetricKind::Gauge,
        "lowroad_upstream_weight",
        "The weight of a member of an upstream group.",
        |it| Some(it.member.as_ref()?.weight.into()),
    ),
];

/// Metrics that are added up over servers with the same labels.
const SUMS: [UpstreamFamily; 13] = [
    (
        MetricKind::Gauge,
        "lowroad_upstream_requests_in_progress",
        "Requests in progress at an upstream server.",
        |it| Some(it.member.as_ref()?.requests_now.into()),
    ),
    (
        MetricKind::Counter,
        "lowroad_upstream_responses",
        "Responses of an upstream server that are not failures.",
        |it| Some(it.requests.responses),
    ),
    (
        MetricKind::Counter,
        "lowroad_upstream_ejections",
        "How often the circuit breaker has ejected an upstream server.",
        |it| Some(it.member.as_ref()?.counts.ejections),
    ),
    (
        MetricKind::Counter,
        "lowroad_upstream_recoveries",
        "How often an ejection of an upstream server ended because a request succeeded.",
        |it| Some(it.member.as_ref()?.counts.recoveries),
    ),
    (
        MetricKind::Counter,
        "lowroad_upstream_checks_failed",
        "Failed health checks of an upstream server.",
        |it| Some(it.member.as_ref()?.counts.checks_failed),
    ),
    (
        MetricKind::Counter,
        "lowroad_upstream_checks_passed",
        "Successful health checks of an upstream server.",
        |it| Some(it.member.as_ref()?.counts.checks_passed),
    ),
    (
        MetricKind::Gauge,
        "lowroad_upstream_connections_in_use",
        "Connections to an upstream server with a request, or open with HTTP/2.",
        |it| Some(it.connections.in_use),
    ),
    (
        MetricKind::Gauge,
        "lowroad_upstream_connections_idle",
        "Idle connections to an upstream server.",
        |it| Some(it.connections.idle),
    ),
    (
        MetricKind::Counter,
        "lowroad_upstream_connections_opened",
        "Connections opened to an upstream server.",
        |it| Some(it.connections.opened),
    ),
    (
        MetricKind::Counter,
        "lowroad_upstream_connections_reused",
        "Uses of an idle connection to an upstream server.",
        |it| Some(it.connections.reused),
    ),
    (
        MetricKind::Counter,
        "lowroad_upstream_connections_failed",
        "Failed attempts to connect to an upstream server.",
        |it| Some(it.connections.failed),
    ),
    (
        MetricKind::Gauge,
        "lowroad_upstream_waiting_requests",
        "Requests that wait for a connection to an upstream server.",
        |it| Some(it.connections.waiting),
    ),
    (
        MetricKind::Counter,
        "lowroad_upstream_not_retried",
        "Requests not retried after a failure of an upstream server because their body exceeded the limit.",
        |it| Some(it.unrepeated),
    ),
];

/// Histograms that are added up over servers with the same labels.
const DURATIONS: [DurationFamily; 2] = [
    (
        "lowroad_upstream_connect_seconds",
        "Time until a new connection to an upstream server was ready, with name resolution, TLS handshake and waiting for \
         a free connection.",
        |it| &it.connect_times,
    ),
    (
        "lowroad_upstream_response_seconds",
        "Time from sending a request to an upstream server to the head of its response.",
        |it| &it.response_times,
    ),
];

/// Adds the metrics of upstream servers.
pub fn add(running: &RunningServer, out: &mut MetricSnapshot) {
    let report = running.handler_runtime.origins();
    // Several origins may contain a server with the same labels: the origins of two routes with different settings or,
    // while requests are in progress, those of the configuration before a reload.
    let mut servers = EqualServers::new();
    for server in &report.servers {
        servers
            .entry(ServerLabels::new(server))
            .or_default()
            .push(server);
    }
    for (kind, name, help, number) in STATES {
        let family = out.family(kind, name, help);
        for (labels, equal) in &servers {
            if let Some(value) = equal.iter().filter_map(|it| number(it)).max() {
                family.whole(&labels.pairs(), value);
            }
        }
    }
    for (kind, name, help, number) in SUMS {
        let family = out.family(kind, name, help);
        for (labels, equal) in &servers {
            let values: Vec<u64> = equal.iter().filter_map(|it| number(it)).collect();
            if !values.is_empty() {
                family.whole(&labels.pairs(), values.iter().sum());
            }
        }
    }
    failures(&servers, out);
    durations(&servers, out);
}

fn failures(servers: &EqualServers<'_>, out: &mut MetricSnapshot) {
    let family = out.family(
        MetricKind::Counter,
        "lowroad_upstream_failures",
        "Failed requests to an upstream server by reason.",
    );
    for (labels, equal) in servers {
        let [origin, server] = labels.pairs();
        for (index, reason) in FAILURE_REASONS.into_iter().enumerate() {
            let count = equal.iter().map(|it| it.requests.failures[index]).sum();
            family.whole(&[origin, server, ("reason", reason)], count);
        }
    }
}

fn durations(servers: &EqualServers<'_>, out: &mut MetricSnapshot) {
    for (name, help, durations) in DURATIONS {
        let family = out.family(MetricKind::Histogram, name, help);
        for (labels, equal) in servers {
            let mut sum = LatencyDistribution::default();
            equal.iter().for_each(|it| sum.add(durations(it)));
            if sum.count() > 0 {
                family.sample(&labels.pairs(), SampleValue::Durations(sum));
            }
        }
    }
}

impl<'a> ServerLabels<'a> {
    /// The labels of a server.
    ///
    /// In the log, a server is named `origin NAME` or `origin NAME at URL`, or `origin URL` if it is the only server of
    /// that URL.
    pub fn new(server: &'a UpstreamStatus) -> ServerLabels<'a> {
        let (origin, name) = (without_kind(&server.origin), without_kind(&server.server));
        let url = name
            .strip_prefix(origin)
            .and_then(|rest| rest.strip_prefix(" at "));
        ServerLabels {
            origin,
            server: url.unwrap_or(name),
        }
    }

    fn pairs(&self) -> [(&'static str, &'a str); 2] {
        [("origin", self.origin), ("server", self.server)]
    }
}

fn without_kind(name: &str) -> &str {
    name.strip_prefix("origin ").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use lowroad_handler::origin_control::ServerMode;
    use lowroad_handler::upstream_status::{UpstreamConnections, UpstreamRequests};

    use super::*;

    #[test]
    fn server_label_is_its_url() {
        for (origin, server, expected) in [
            (
                "origin app",
                "origin app at http://10.0.0.1:3000",
                ("app", "http://10.0.0.1:3000"),
            ),
            (
                "origin http://a:1",
                "origin http://a:1",
                ("http://a:1", "http://a:1"),
            ),
            (
                "origin http://a",
                "origin http://a at http://10.0.0.1:80",
                ("http://a", "http://10.0.0.1:80"),
            ),
        ] {
            let status = UpstreamStatus {
                origin: origin.into(),
                mode: ServerMode::Ready,
                server: server.into(),
                member: None,
                requests: UpstreamRequests::default(),
                connect_times: LatencyDistribution::default(),
                response_times: LatencyDistribution::default(),
                connections: UpstreamConnections::default(),
                unrepeated: 0,
                latest_failure: None,
            };
            let labels = ServerLabels::new(&status);
            assert_eq!((labels.origin, labels.server), expected);
        }
    }
}
