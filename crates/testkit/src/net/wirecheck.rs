//! A client that verifies responses: many concurrent connections, each of which sends random requests of many kinds one
//! after the other, and checks status, length and CRC-32 of each response.
//!
//! Run it in the client's namespace: `path.client.enter(|| check.run())`. It is not made for performance measurements.

mod connection;
mod plan;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use super::draws::RandomDraws;
use super::site::TestPage;
use connection::{CheckConnection, CheckFailure};
use plan::TurnPlan;

/// Maximum number of messages in a report; further failures are only counted.
const MESSAGES_MAX: usize = 50;

/// The settings of a check.
#[derive(Clone, Debug)]
pub struct WireCheck {
    /// The seed of all random numbers.
    pub seed: u64,
    /// The server's address.
    pub address: SocketAddr,
    /// The number of concurrent clients.
    pub clients: usize,
    /// The number of consecutive connections of each client.
    pub connections_per_client: usize,
    /// The number of turns of a connection. A turn is a request or a pipelined pair.
    pub requests_per_connection: Range<usize>,
    /// The requested pages. Half of all requests are for the first page.
    pub pages: Vec<TestPage>,
    /// The percentage of hot connections, on which all requests are cacheable: few short pages, in few variations.
    pub hot_percent: f64,
    /// The percentage of cacheable turns on the other connections.
    pub hot_turn_percent: f64,
    /// The path for uploads, answered with [`receipt`](super::servers::receipt).
    pub upload: Option<String>,
    /// The longest upload.
    pub upload_len_max: usize,
    /// A request without a complete response after this time counts as hung. A large page over a bad link takes long: 2
    /// MB with an MSS of 536, no SACK and 4 % loss needed over half a minute.
    pub deadline: Duration,
}

impl WireCheck {
    /// 64 clients with one connection each, of 1 to 20 requests; uploads to [`UPLOAD`](super::servers::UPLOAD).
    pub fn new(seed: u64, address: SocketAddr, pages: &[TestPage]) -> WireCheck {
        WireCheck {
            seed,
            address,
            clients: 64,
            connections_per_client: 1,
            requests_per_connection: 1..21,
            pages: pages.to_vec(),
            hot_percent: 0.0,
            hot_turn_percent: 0.0,
            upload: Some(super::servers::UPLOAD.to_owned()),
            upload_len_max: 100_000,
            deadline: Duration::from_secs(30),
        }
    }

    /// Runs the check in the calling thread's namespace.
    pub fn run(&self) -> CheckReport {
        assert!(!self.pages.is_empty(), "pages to ask for");
        assert!(!self.requests_per_connection.is_empty(), "1.. requests");
        let shared = CheckContext::default();
        let next = AtomicUsize::new(0);
        let connections = self.clients * self.connections_per_client;
        thread::scope(|scope| {
            for _ in 0..self.clients {
                scope.spawn(|| {
                    // The connection's number, not the thread, determines its requests, so that runs are reproducible.
                    while let Some(number) = Some(next.fetch_add(1, Relaxed))
                        && number < connections
                    {
                        self.connection(number, &shared);
                    }
                });
            }
        });
        shared.report.into_inner().expect("no holder panics")
    }

    /// Runs the turns of a connection; reconnects after failures.
    fn connection(&self, number: usize, shared: &CheckContext) {
        let stream = u64::try_from(number).expect("64 bits at most");
        // Each connection has its own sequence of random numbers, so its requests do not depend on the progress of
        // others.
        let mut draws = RandomDraws::new(self.seed, stream);
        let range = &self.requests_per_connection;
        let turns = range.start + draws.below(range.len());
        let is_hot = draws.percent(self.hot_percent);
        let mut connection = None;
        for turn in 0..turns {
            let is_last = turn + 1 == turns;
            let is_hot =
                is_hot || self.hot_turn_percent > 0.0 && draws.percent(self.hot_turn_percent);
            let plan = match is_hot {
                true => plan::draw_hot(self, shared, &mut draws, is_last),
                false => plan::draw(self, shared, &mut draws, is_last),
            };
            // After a failed turn the next one opens a new connection.
            let context = format!("connection {number}, turn {turn}, {plan}");
            let connected = match connection.take() {
                Some(connection) => Ok(connection),
                None => CheckConnection::open(self.address, self.deadline),
            };
            shared.count(&plan, &connected);
            let outcome = connected.and_then(|mut connection| {
                let is_open = connection.turn(&plan, self.deadline, shared)?;
                Ok(is_open.then_some(connection))
            });
            match outcome {
                Ok(open_connection) => connection = open_connection,
                Err(failure) => shared.record_failure(&context, failure),
            }
        }
    }
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Requests sent.
    pub requests: u64,
    /// Complete and correct responses.
    pub correct: u64,
    /// Connections.
    pub connections: u64,
    /// The number of turns of each kind.
    pub kinds: BTreeMap<&'static str, u64>,
    /// The first 50 wrong responses, with descriptions.
    pub wrong: Vec<String>,
    /// The first 50 other failures, which are counted by the fields below.
    pub other_failures: Vec<String>,
    /// Wrong responses.
    pub wrong_count: u64,
    /// Requests and connection attempts that were not complete at the deadline.
    pub hung: u64,
    /// Connections that were reset or refused.
    pub reset: u64,
    /// Connections that the server closed before a complete response.
    pub closed_early: u64,
}

impl CheckReport {
    /// Whether there were no failures.
    pub fn is_clean(&self) -> bool {
        self.wrong_count + self.hung + self.reset + self.closed_early == 0
            && self.correct == self.requests
    }
}

/// The state shared by the connections of a check.
#[derive(Default)]
struct CheckContext {
    report: Mutex<CheckReport>,
    /// The entity tags received so far, by path.
    etags: Mutex<BTreeMap<String, String>>,
}

impl CheckContext {
    fn etag(&self, path: &str) -> Option<String> {
        let etags = self.etags.lock().expect("no holder panics");
        etags.get(path).cloned()
    }

    fn store_etag(&self, path: &str, etag: &str) {
        let mut etags = self.etags.lock().expect("no holder panics");
        etags.insert(path.to_owned(), etag.to_owned());
    }

    fn count_correct(&self) {
        self.report.lock().expect("no holder panics").correct += 1;
    }

    fn count(&self, plan: &TurnPlan, connected: &Result<CheckConnection, CheckFailure>) {
        let mut report = self.report.lock().expect("no holder panics");
        report.requests += plan.expectations.len() as u64;
        *report.kinds.entry(plan.kind.name()).or_default() += 1;
        report.connections += u64::from(connected.as_ref().is_ok_and(CheckConnection::is_new));
    }

    fn record_failure(&self, context: &str, failure: CheckFailure) {
        let mut report = self.report.lock().expect("no holder panics");
        let report = &mut *report;
        let (count, messages) = match &failure {
            CheckFailure::Wrong(_) => (&mut report.wrong_count, &mut report.wrong),
            CheckFailure::Hung(_) => (&mut report.hung, &mut report.other_failures),
            CheckFailure::Reset(_) => (&mut report.reset, &mut report.other_failures),
            CheckFailure::ClosedEarly(_) => (&mut report.closed_early, &mut report.other_failures),
        };
        *count += 1;
        if messages.len() < MESSAGES_MAX {
            messages.push(format!("{context}: {failure}"));
        }
    }
}
