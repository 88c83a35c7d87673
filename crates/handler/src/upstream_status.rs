//! The state of upstream servers, for status reports and metrics.

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
    /// The health and requests, if the server is a member of a group.
    pub member: Option<UpstreamMember>,
    /// The connections.
    pub connections: UpstreamConnections,
    /// Requests that were not retried because their body exceeded the limit for buffering.
    pub unrepeated: u64,
    /// The last failure.
    pub latest_failure: Option<String>,
}

/// A server as a member of a group.
#[derive(Clone, Debug)]
pub struct UpstreamMember {
    /// The health as a text.
    pub health: String,
    /// Whether the server gets requests.
    pub is_available: bool,
    /// Whether the server is a backup.
    pub is_backup: bool,
    /// The weight.
    pub weight: u32,
    /// Requests in progress.
    pub requests_now: u32,
    /// Requests with a response.
    pub answered: u64,
    /// Failed requests by kind.
    pub failures: [(&'static str, u64); 5],
    /// Ejections by the circuit breaker.
    pub ejections: u64,
    /// Successful health checks.
    pub checks_passed: u64,
    /// Failed health checks.
    pub checks_failed: u64,
}

/// The connections to a server.
#[derive(Clone, Copy, Debug, Default)]
pub struct UpstreamConnections {
    /// Connections with a request.
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
        // Origins are in a hash map, whose order varies, but a report should have a stable order.
        lines.sort_unstable();
        lines
    }
}

impl UpstreamStatus {
    /// The state of the server as one line of text.
    fn line(&self) -> String {
        let member = match &self.member {
            Some(member) => format!("{}; ", member.text()),
            None => String::new(),
        };
        let connections = self.connections;
        let mut line = format!(
            "{}: {member}{} connections in use, {} idle, {} opened, {} reused, {} failed to connect, {} \
             requests not retried (body too large)",
            self.server,
            connections.in_use,
            connections.idle,
            connections.opened,
            connections.reused,
            connections.failed,
            self.unrepeated
        );
        if let Some(why) = &self.latest_failure {
            line.push_str(&format!("; latest failure: {why}"));
        }
        line
    }
}

impl UpstreamMember {
    fn text(&self) -> String {
        let backup = if self.is_backup { ", backup" } else { "" };
        let failed: u64 = self.failures.iter().map(|(_, count)| count).sum();
        format!(
            "{}{backup}, weight {}, {} requests now, {} answered, {failed} failed, ejected {} times",
            self.health, self.weight, self.requests_now, self.answered, self.ejections
        )
    }
}
