//! The state of upstream servers, for status reports and metrics.

/// The servers of all origins in use.
#[derive(Clone, Debug, Default)]
pub struct UpstreamReport {
    /// The servers.
    pub servers: Vec<UpstreamStatus>,
    /// Faults that concern no server: names that can't be resolved.
    pub faults: Vec<String>,
}

/// The state of one server.
#[derive(Clone, Debug)]
pub struct UpstreamStatus {
    /// The origin.
    pub origin: String,
    /// The server, as in the log: `origin http://127.0.0.1:3000`.
    pub server: String,
    /// Its health and requests, if it is a member of a group.
    pub member: Option<UpstreamMember>,
    /// Its connections.
    pub connections: UpstreamConnections,
    /// Requests that were not repeated because their body exceeded the limit.
    pub unrepeated: u64,
    /// The last failure.
    pub latest_failure: Option<String>,
}

/// A server as a member of a group.
#[derive(Clone, Debug)]
pub struct UpstreamMember {
    /// Its health in words.
    pub health: String,
    /// Whether it gets requests.
    pub is_available: bool,
    /// Whether it gets requests only if no other server can.
    pub is_backup: bool,
    /// Its weight.
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
    /// Uses of a connection that had been idle.
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

    /// A line for each server and fault.
    pub fn lines(&self) -> Vec<String> {
        let servers = self.servers.iter().map(UpstreamStatus::line);
        let mut lines: Vec<String> = servers.chain(self.faults.iter().cloned()).collect();
        // Origins are kept in a hash map, whose order varies; that of a report should not.
        lines.sort_unstable();
        lines
    }
}

impl UpstreamStatus {
    /// Its state in one line.
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
