//! The state of upstream servers, for status reports and metrics.

use lowroad_metrics::LatencyDistribution;

use crate::origin_control::ServerMode;

/// The servers of all origins in use.
#[derive(Clone, Debug, Default)]
pub struct UpstreamReport {
    /// The servers.
    pub servers: Vec<UpstreamStatus>,
    /// Problems that are not of a single server: names that can't be resolved.
    pub faults: Vec<String>,
}

/// The state of one server.
#[derive(Clone, Debug)]
pub struct UpstreamStatus {
    /// The origin.
    pub origin: String,
    /// The server, as in the log: `origin http://127.0.0.1:3000`.
    pub server: String,
    /// The operator's decision.
    pub mode: ServerMode,
    /// The health and requests, if the server is a member of a group.
    pub member: Option<UpstreamMember>,
    /// The requests that have ended.
    pub requests: UpstreamRequests,
    /// How long it took until a new connection was ready.
    pub connect_times: LatencyDistribution,
    /// How long it took from sending a request until the head of its response.
    pub response_times: LatencyDistribution,
    /// The connections.
    pub connections: UpstreamConnections,
    /// Requests that were not retried because their body exceeded the limit for buffering.
    pub unrepeated: u64,
    /// The last failure.
    pub latest_failure: Option<UpstreamFailure>,
}

/// A failure of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamFailure {
    /// The reason.
    pub reason: String,
    /// The time in seconds since 1970.
    pub unix_s: u64,
}

/// Why a request to a server failed: no connection, a timeout, a lost connection, a malformed response, or a status code
/// that counts as a failure.
pub const FAILURE_REASONS: [&str; 5] = ["connect", "timeout", "lost", "malformed", "status"];

/// The requests to a server that have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpstreamRequests {
    /// Requests with a response that is not a failure.
    pub responses: u64,
    /// Failed requests, in the order of [`FAILURE_REASONS`].
    pub failures: [u64; FAILURE_REASONS.len()],
}

/// A server as a member of a group.
#[derive(Clone, Debug)]
pub struct UpstreamMember {
    /// The health as a text.
    pub health: String,
    /// Whether the server is known to work; false until a trial request succeeds.
    pub is_available: bool,
    /// Whether the server is a backup.
    pub is_backup: bool,
    /// The weight.
    pub weight: u32,
    /// Requests in progress.
    pub requests_now: u32,
    /// Changes of the circuit breaker, and health checks.
    pub counts: HealthCounts,
}

/// How often the health of a server was checked, and changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthCounts {
    /// Ejections by the circuit breaker.
    pub ejections: u64,
    /// Ejections that ended because a request succeeded.
    pub recoveries: u64,
    /// Successful health checks.
    pub checks_passed: u64,
    /// Failed health checks.
    pub checks_failed: u64,
}

/// The connections to a server.
#[derive(Clone, Copy, Debug, Default)]
pub struct UpstreamConnections {
    /// Connections with a request, and open ones with HTTP/2.
    pub in_use: u64,
    /// Idle connections.
    pub idle: u64,
    /// Requests that wait for a connection.
    pub waiting: u64,
    /// Connections opened so far.
    pub opened: u64,
    /// Reuses of idle connections.
    pub reused: u64,
    /// Failed attempts to connect.
    pub failed: u64,
}

impl UpstreamReport {
    /// Adds another report.
    pub fn append(&mut self, mut other: UpstreamReport) {
        self.servers.append(&mut other.servers);
        self.faults.append(&mut other.faults);
    }

    /// A line for each server and each fault.
    pub fn lines(&self) -> Vec<String> {
        let servers = self.servers.iter().map(UpstreamStatus::line);
        let mut lines: Vec<String> = servers.chain(self.faults.iter().cloned()).collect();
        // Origins are in a hash map. Its order varies, but a report should have a stable order.
        lines.sort_unstable();
        lines
    }
}

impl UpstreamStatus {
    /// Removes everything that is added up over servers with the same name, except connections.
    pub fn clear_counts(&mut self) {
        self.requests = UpstreamRequests::default();
        self.connect_times = LatencyDistribution::default();
        self.response_times = LatencyDistribution::default();
        self.unrepeated = 0;
        if let Some(member) = &mut self.member {
            member.counts = HealthCounts::default();
        }
    }

    /// The state of the server as one line of text.
    fn line(&self) -> String {
        let requests = self.requests.text();
        let requests = match &self.member {
            Some(member) => member.text(&requests),
            None => requests,
        };
        let state = match self.mode {
            ServerMode::Ready => String::new(),
            mode => format!("state {}, ", mode.as_str()),
        };
        let connections = self.connections;
        let mut line = format!(
            "{}: {state}{requests}; {} connections in use, {} idle, {} opened, {} reused, {} failed to connect, {} \
             requests not retried (body too large)",
            self.server,
            connections.in_use,
            connections.idle,
            connections.opened,
            connections.reused,
            connections.failed,
            self.unrepeated
        );
        if let Some(failure) = &self.latest_failure {
            let date = lowroad_http::date::format(failure.unix_s);
            let date = String::from_utf8_lossy(&date);
            line.push_str(&format!("; latest failure: {} ({date})", failure.reason));
        }
        line
    }
}

impl UpstreamRequests {
    fn text(&self) -> String {
        let failed: u64 = self.failures.iter().sum();
        format!("{} answered, {failed} failed", self.responses)
    }
}

impl UpstreamMember {
    /// `requests`: the text of the requests that have ended.
    fn text(&self, requests: &str) -> String {
        let backup = if self.is_backup { ", backup" } else { "" };
        format!(
            "{}{backup}, weight {}, {} requests now, {requests}, ejected {} times, recovered {} times",
            self.health,
            self.weight,
            self.requests_now,
            self.counts.ejections,
            self.counts.recoveries
        )
    }
}
