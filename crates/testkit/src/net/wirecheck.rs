//! A client that verifies: many connections, each a closed loop of requests of many kinds, drawn
//! from a seed, where status, length and CRC-32 of each answer must be right.
//!
//! Run it inside the client's namespace: `path.client.enter(|| check.run())`. Knows not who
//! answers, and not how fast: it is not for measuring.

mod connection;
mod plan;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use super::draws::Draws;
use super::site::Page;
use connection::{Connection, Trouble};
use plan::Plan;

/// Messages that are kept; more are counted only.
const MESSAGES_MAX: usize = 50;

/// What to check.
#[derive(Clone, Debug)]
pub struct Check {
    /// What all draws follow from.
    pub seed: u64,
    /// Where to connect.
    pub address: SocketAddr,
    /// How many clients at a time.
    pub clients: usize,
    /// How many connections each makes, one after the other.
    pub connections_per_client: usize,
    /// How many turns (requests, or pipelined pairs) a connection has before it closes as planned.
    pub requests_per_connection: Range<usize>,
    /// What is asked for again and again: half of all requests are for the first of these.
    pub pages: Vec<Page>,
    /// Of a hundred connections, this many ask for nothing that a cache could not answer: short
    /// pages, in few ways.
    pub hot_percent: f64,
    /// Of a hundred turns of the other connections, this many are such.
    pub hot_turn_percent: f64,
    /// Where uploads are answered with [`receipt`](super::servers::receipt), if anywhere.
    pub upload: Option<String>,
    /// How long an upload is at most.
    pub upload_len_max: usize,
    /// A request without its whole answer after this counts as hung. A large page over a bad link
    /// may need more: 2 MB with an MSS of 536, no SACK and 4 % loss took over half a minute.
    pub deadline: Duration,
}

impl Check {
    /// 64 clients with one connection each, 1 to 20 requests long; uploads to
    /// [`UPLOAD`](super::servers::UPLOAD).
    pub fn new(seed: u64, address: SocketAddr, pages: &[Page]) -> Check {
        Check {
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

    /// Runs it to its end, from where the calling thread is.
    pub fn run(&self) -> Report {
        assert!(!self.pages.is_empty(), "pages to ask for");
        assert!(!self.requests_per_connection.is_empty(), "1.. requests");
        let shared = Shared::default();
        let next = AtomicUsize::new(0);
        let connections = self.clients * self.connections_per_client;
        thread::scope(|scope| {
            for _ in 0..self.clients {
                scope.spawn(|| {
                    // The number, not the thread, decides what a connection does.
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

    /// One connection from its start to its planned end, made anew after trouble.
    fn connection(&self, number: usize, shared: &Shared) {
        let stream = u64::try_from(number).expect("64 bits at most");
        let mut draws = Draws::new(self.seed, stream);
        let range = &self.requests_per_connection;
        let turns = range.start + draws.below(range.len());
        let is_hot = draws.percent(self.hot_percent);
        let mut connection = None;
        for turn in 0..turns {
            let last = turn + 1 == turns;
            let is_hot =
                is_hot || self.hot_turn_percent > 0.0 && draws.percent(self.hot_turn_percent);
            let plan = match is_hot {
                true => plan::draw_hot(self, shared, &mut draws, last),
                false => plan::draw(self, shared, &mut draws, last),
            };
            let told = format!("connection {number}, turn {turn}, {plan}");
            let connected = match connection.take() {
                Some(connection) => Ok(connection),
                None => Connection::open(self.address, self.deadline),
            };
            shared.count(&plan, &connected);
            let outcome = connected.and_then(|mut connection| {
                let goes_on = connection.turn(&plan, self.deadline, shared)?;
                Ok(goes_on.then_some(connection))
            });
            match outcome {
                Ok(left) => connection = left,
                Err(trouble) => shared.note(&told, trouble),
            }
        }
    }
}

/// What came of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Requests sent.
    pub requests: u64,
    /// Answers that came whole and right.
    pub right: u64,
    /// Connections made.
    pub connections: u64,
    /// Turns of each kind.
    pub kinds: BTreeMap<&'static str, u64>,
    /// Answers that were not what they had to be: which, and in what way. The first 50 of them.
    pub wrong: Vec<String>,
    /// Where the other troubles below happened, up to 50.
    pub troubles: Vec<String>,
    /// Answers that were not what they had to be.
    pub wrong_count: u64,
    /// Requests (and connections) without a whole answer at the deadline.
    pub hung: u64,
    /// Connections that were reset or refused.
    pub reset: u64,
    /// Connections that ended in an orderly way, but before a whole answer.
    pub closed_early: u64,
}

impl Report {
    /// Whether all went well.
    pub fn is_clean(&self) -> bool {
        self.wrong_count + self.hung + self.reset + self.closed_early == 0
            && self.right == self.requests
    }
}

/// What the connections of a check share.
#[derive(Default)]
struct Shared {
    report: Mutex<Report>,
    /// The validators seen so far, by path.
    etags: Mutex<BTreeMap<String, String>>,
}

impl Shared {
    fn etag(&self, path: &str) -> Option<String> {
        let etags = self.etags.lock().expect("no holder panics");
        etags.get(path).cloned()
    }

    fn learn(&self, path: &str, etag: &str) {
        let mut etags = self.etags.lock().expect("no holder panics");
        etags.insert(path.to_owned(), etag.to_owned());
    }

    fn right(&self) {
        self.report.lock().expect("no holder panics").right += 1;
    }

    fn count(&self, plan: &Plan, connected: &Result<Connection, Trouble>) {
        let mut report = self.report.lock().expect("no holder panics");
        report.requests += plan.expectations.len() as u64;
        *report.kinds.entry(plan.kind.name()).or_default() += 1;
        report.connections += u64::from(connected.as_ref().is_ok_and(Connection::is_new));
    }

    fn note(&self, told: &str, trouble: Trouble) {
        let mut report = self.report.lock().expect("no holder panics");
        let report = &mut *report;
        let (count, messages) = match &trouble {
            Trouble::Wrong(_) => (&mut report.wrong_count, &mut report.wrong),
            Trouble::Hung(_) => (&mut report.hung, &mut report.troubles),
            Trouble::Reset(_) => (&mut report.reset, &mut report.troubles),
            Trouble::ClosedEarly(_) => (&mut report.closed_early, &mut report.troubles),
        };
        *count += 1;
        if messages.len() < MESSAGES_MAX {
            messages.push(format!("{told}: {trouble}"));
        }
    }
}
