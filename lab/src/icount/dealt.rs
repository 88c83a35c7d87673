//! Deals the connections of a workload to clients in a fixed order. The same connections then make the same requests at
//! any speed of the server, and a short run covers the beginning of a long run, which is representative of the whole.
//! Independent of guests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::drive::DriveQuota;
use super::even::{self, even};
use crate::load::SEED;
use crate::workload::{
    ClientSession, ConnectionOpening, ExpectedResponse, ReceivedResponse, ResponseInterest,
    TrafficWorkload, named,
};

/// Number of connections in a balanced order, if each figure starts with the first connection. Later connections are in
/// the order in which they are drawn.
pub const ORDERED_COUNT: usize = 1000;
/// Number of connections in a balanced order, if each run of a measurement continues after the connections of the
/// previous run.
pub const ORDERED_COUNT_ONWARD: usize = 6000;

/// Cache of orders: computing an order of 1,000 connections takes a quarter of a second, and most measurements reuse
/// one.
#[derive(Default)]
pub struct OrderCache(Vec<(OrderKey, Arc<[u64]>)>);

/// A workload's name, its settings, and the number of ordered connections.
type OrderKey = (String, BTreeMap<String, String>, usize);

impl OrderCache {
    /// Returns the connections of a named workload for a server at `host`; the first `count` are in a balanced order.
    ///
    /// # Errors
    /// The workload or its settings are unknown.
    pub fn connections_in_order(
        &mut self,
        name: &str,
        settings: &BTreeMap<String, String>,
        host: &str,
        count: usize,
    ) -> Result<WorkloadConnections, String> {
        let workload = named(name, settings, host)?;
        let is_same_key =
            |(key, _): &&(OrderKey, _)| key.0 == name && key.1 == *settings && key.2 == count;
        let even = match self.0.iter().find(is_same_key) {
            Some((_, even)) => even.clone(),
            None => {
                let even = even_order(&*workload, count, SEED);
                // The host is not part of the key: it does not affect the order.
                let kind = (name.to_owned(), settings.clone(), count);
                self.0.push((kind, even.clone()));
                even
            }
        };
        Ok(WorkloadConnections::in_order(workload, SEED, even))
    }
}

/// The balanced order of a workload's first connections; empty if no order is needed.
fn even_order(workload: &dyn TrafficWorkload, count: usize, seed: u64) -> Arc<[u64]> {
    let is_mix = workload.classes().len() > 1;
    // If connections are unlimited, each client keeps its first one, so there is no order to balance.
    match is_mix && !is_endless(workload, seed) {
        true => even(workload, count, seed).into(),
        false => Arc::default(),
    }
}

/// The connections of a workload, in a fixed order.
pub struct WorkloadConnections {
    order: Arc<ConnectionOrder>,
    /// The first connection that [`WorkloadConnections::onward`] has not dealt yet.
    next: Arc<AtomicU64>,
}

impl WorkloadConnections {
    fn in_order(
        workload: Arc<dyn TrafficWorkload>,
        seed: u64,
        even: Arc<[u64]>,
    ) -> WorkloadConnections {
        WorkloadConnections {
            order: Arc::new(ConnectionOrder {
                workload,
                seed,
                even,
            }),
            next: Arc::default(),
        }
    }

    /// A workload that deals all connections, beginning with the first.
    pub fn from_start(&self) -> Arc<dyn TrafficWorkload> {
        Arc::new(ConnectionHand {
            order: self.order.clone(),
            next: Arc::default(),
        })
    }

    /// Whether connections have an unlimited number of requests.
    pub fn is_endless(&self) -> bool {
        is_endless(&*self.order.workload, self.order.seed)
    }

    /// A quota of connections, beginning with number `first`: at least `connections`, with at least `requests` requests
    /// in total.
    pub fn quota(&self, first: u64, connections: u64, requests: u64) -> DriveQuota {
        if self.is_endless() {
            return DriveQuota::Requests(requests);
        }
        let (mut count, mut total_requests) = (0, 0);
        while count < connections || total_requests < requests {
            // A session is drawn from its number, so the clients' sessions will open with the same number of requests.
            let opening = self.order.session(first + count).open();
            (count, total_requests) = (count + 1, total_requests + opening.requests);
        }
        DriveQuota::Connections {
            count,
            requests: total_requests,
        }
    }

    /// The connection that [`WorkloadConnections::onward`] deals next.
    pub fn next(&self) -> u64 {
        self.next.load(Relaxed)
    }

    /// A workload that continues after the connections that `onward` dealt before.
    pub fn onward(&self) -> Arc<dyn TrafficWorkload> {
        Arc::new(ConnectionHand {
            order: self.order.clone(),
            next: self.next.clone(),
        })
    }
}

fn is_endless(workload: &dyn TrafficWorkload, seed: u64) -> bool {
    // The setting applies to the whole workload, so the first session represents all.
    workload.session(0, seed).open().requests == u64::MAX
}

struct ConnectionOrder {
    workload: Arc<dyn TrafficWorkload>,
    seed: u64,
    /// The numbers of the first connections, in their balanced order; later connections have consecutive numbers.
    even: Arc<[u64]>,
}

impl ConnectionOrder {
    /// The session of the connection at this position.
    fn session(&self, position: u64) -> Box<dyn ClientSession> {
        self.workload.session(self.number(position), self.seed)
    }

    fn number(&self, position: u64) -> u64 {
        let count = self.even.len();
        // The balanced order contains only numbers below `sample_count`. Later connections start there, so no number
        // occurs twice.
        match self.even.get(position as usize) {
            Some(number) => *number,
            None if count == 0 => position,
            None => even::sample_count(count) + (position - count as u64),
        }
    }
}

struct ConnectionHand {
    order: Arc<ConnectionOrder>,
    /// The position of the next connection.
    next: Arc<AtomicU64>,
}

impl TrafficWorkload for ConnectionHand {
    fn classes(&self) -> &[String] {
        self.order.workload.classes()
    }

    fn session(&self, _number: u64, _seed: u64) -> Box<dyn ClientSession> {
        // A session is dealt for each connection, not for each client: `open` replaces the one given here.
        Box::new(DealtClient {
            current: self.order.session(0),
            order: self.order.clone(),
            next: self.next.clone(),
        })
    }
}

/// A client that gets the next session in the order for each of its connections.
struct DealtClient {
    current: Box<dyn ClientSession>,
    order: Arc<ConnectionOrder>,
    next: Arc<AtomicU64>,
}

impl ClientSession for DealtClient {
    fn open(&mut self) -> ConnectionOpening {
        self.current = self.order.session(self.next.fetch_add(1, Relaxed));
        self.current.open()
    }

    fn request(&mut self, last: bool, out: &mut Vec<u8>) -> ExpectedResponse {
        self.current.request(last, out)
    }

    fn handle_response(&mut self, answer: &ReceivedResponse<'_>) {
        self.current.handle_response(answer);
    }

    fn handle_failure(&mut self) {
        self.current.handle_failure();
    }

    fn interest(&self) -> ResponseInterest {
        self.current.interest()
    }

    fn is_incomplete(&self) -> bool {
        self.current.is_incomplete()
    }

    fn pause_ns(&self) -> u64 {
        self.current.pause_ns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::urls::{UrlSpec, UrlWorkload};
    use crate::workload::{PerConnection, WorkloadVersion};

    fn dealt(name: &str, setting: (&str, &str)) -> WorkloadConnections {
        let settings = [(setting.0.to_owned(), setting.1.to_owned())].into();
        let dealt =
            OrderCache::default().connections_in_order(name, &settings, "host", ORDERED_COUNT);
        dealt.expect("known")
    }

    /// The requests that clients send, if the connections are dealt in this order.
    fn asked(workload: &dyn TrafficWorkload, order: &[u64]) -> Vec<Vec<u8>> {
        let mut clients: Vec<_> = (0..4).map(|number| workload.session(number, 1)).collect();
        let ask = |client: &u64| {
            let client = &mut clients[*client as usize];
            let opening = client.open();
            let mut out = Vec::new();
            client.request(opening.requests == 1, &mut out);
            out
        };
        order.iter().map(ask).collect()
    }

    #[test]
    fn request_sequence_is_independent_of_connection_order() {
        let dealt = dealt("specweb99", ("dirs", "3"));
        let one = asked(&*dealt.from_start(), &[0, 1, 2, 3, 0, 1]);
        let other = asked(&*dealt.from_start(), &[3, 3, 0, 1, 1, 2]);
        assert_eq!(one, other);
        let distinct: std::collections::BTreeSet<_> = one.iter().collect();
        assert!(distinct.len() > 1, "not all the same");
        let halves = [&[0, 1, 2][..], &[3, 0, 1]].map(|order| asked(&*dealt.onward(), order));
        assert_eq!(one, halves.concat());
    }

    #[test]
    fn session_numbers_are_unique() {
        let order = dealt("specweb99", ("dirs", "3")).order;
        let mut numbers: Vec<u64> = (0..3 * ORDERED_COUNT as u64)
            .map(|at| order.number(at))
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 3 * ORDERED_COUNT);
        let order = dealt("webstone", ("size", "64")).order;
        assert_eq!([0, 1, 2000].map(|at| order.number(at)), [0, 1, 2000]);
    }

    #[test]
    fn order_is_cached_by_settings() {
        let settings = |dirs: &str| [("dirs".to_owned(), dirs.to_owned())].into();
        let mut orders = OrderCache::default();
        let mut even = |dirs, host| {
            let dealt = orders.connections_in_order("specweb99", &settings(dirs), host, 10);
            dealt.expect("known").order.even.clone()
        };
        let (first, again, other) = (even("3", "one"), even("3", "another"), even("4", "one"));
        assert!(Arc::ptr_eq(&first, &again));
        assert!(!Arc::ptr_eq(&first, &other));
        assert!(
            orders
                .connections_in_order("specweb99", &settings("none"), "one", 10)
                .is_err()
        );
    }

    #[test]
    fn quota_consists_of_whole_connections() {
        let dealt = dealt("specweb99", ("dirs", "3"));
        let DriveQuota::Connections { count, requests } = dealt.quota(0, 5, 50) else {
            panic!("they have an end");
        };
        let openings = (0..count).map(|at| dealt.order.session(at).open().requests);
        assert_eq!(openings.sum::<u64>(), requests);
        assert!(count >= 5 && requests >= 50);
        let DriveQuota::Connections { count, .. } = dealt.quota(0, 100, 1) else {
            panic!("they have an end");
        };
        assert_eq!(count, 100);
    }

    #[test]
    fn unlimited_connections_give_a_request_quota() {
        let spec = UrlSpec::get("/");
        let endless = UrlWorkload::new(
            vec![spec],
            "host",
            WorkloadVersion::Http11,
            PerConnection::Unlimited,
            false,
        );
        let endless = Arc::new(endless.expect("right URLs"));
        let dealt = WorkloadConnections::in_order(endless, 1, Arc::default());
        assert_eq!(dealt.quota(0, 5, 50), DriveQuota::Requests(50));
    }
}
