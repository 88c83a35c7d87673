//! A workload's connections, dealt in one order to whoever connects next: so many connections ask for the same whatever
//! they wait for, and a short run asks for the beginning of a long one. Knows no guests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::drive::Quota;
use crate::workload::{Answer, Expected, Opening, Session, Wants, Workload};

/// The connections of a workload.
pub struct Dealt {
    workload: Arc<dyn Workload>,
    /// The first that [`Dealt::onward`] has not dealt.
    next: Arc<AtomicU64>,
}

impl Dealt {
    /// Those of this workload.
    pub fn of(workload: Arc<dyn Workload>) -> Dealt {
        Dealt {
            workload,
            next: Arc::default(),
        }
    }

    /// All of them, from the first on.
    pub fn from_start(&self) -> Arc<dyn Workload> {
        Arc::new(Hand {
            workload: self.workload.clone(),
            next: Arc::default(),
        })
    }

    /// Whether its connections have no end. `seed` is the load's.
    pub fn is_endless(&self, seed: u64) -> bool {
        self.workload.session(0, seed).open().requests == u64::MAX
    }

    /// Connections from `first` on, at least so many, that have at least so many requests. `seed` is the load's.
    pub fn quota(&self, first: u64, (connections, requests): (u64, u64), seed: u64) -> Quota {
        if self.is_endless(seed) {
            return Quota::Requests(requests);
        }
        let (mut count, mut all) = (0, 0);
        while count < connections || all < requests {
            let opening = self.workload.session(first + count, seed).open();
            (count, all) = (count + 1, all + opening.requests);
        }
        Quota::Connections {
            count,
            requests: all,
        }
    }

    /// The connection that [`Dealt::onward`] deals next.
    pub fn next(&self) -> u64 {
        self.next.load(Relaxed)
    }

    /// Those that come after all that were dealt so before.
    pub fn onward(&self) -> Arc<dyn Workload> {
        Arc::new(Hand {
            workload: self.workload.clone(),
            next: self.next.clone(),
        })
    }
}

struct Hand {
    workload: Arc<dyn Workload>,
    /// The connection that is dealt next.
    next: Arc<AtomicU64>,
}

impl Workload for Hand {
    fn classes(&self) -> &[String] {
        self.workload.classes()
    }

    fn session(&self, number: u64, seed: u64) -> Box<dyn Session> {
        Box::new(Client {
            current: self.workload.session(number, seed),
            workload: self.workload.clone(),
            next: self.next.clone(),
            seed,
        })
    }
}

/// A client: for each connection it is another.
struct Client {
    current: Box<dyn Session>,
    workload: Arc<dyn Workload>,
    next: Arc<AtomicU64>,
    seed: u64,
}

impl Session for Client {
    fn open(&mut self) -> Opening {
        let number = self.next.fetch_add(1, Relaxed);
        self.current = self.workload.session(number, self.seed);
        self.current.open()
    }

    fn request(&mut self, last: bool, out: &mut Vec<u8>) -> Expected {
        self.current.request(last, out)
    }

    fn answered(&mut self, answer: &Answer<'_>) {
        self.current.answered(answer);
    }

    fn failed(&mut self) {
        self.current.failed();
    }

    fn wants(&self) -> Wants {
        self.current.wants()
    }

    fn lacks(&self) -> bool {
        self.current.lacks()
    }

    fn pause_ns(&self) -> u64 {
        self.current.pause_ns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::urls::{UrlSpec, Urls};
    use crate::workload::{PerConnection, Version, named};

    /// What some clients ask for, as their connections come in this order.
    fn asked(workload: &dyn Workload, order: &[u64]) -> Vec<Vec<u8>> {
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
    fn connections_ask_for_the_same_whoever_has_them() {
        let settings = [("dirs".to_owned(), "3".to_owned())].into();
        let workload = named("specweb99", &settings, "host").expect("known");
        let dealt = Dealt::of(workload);
        let one = asked(&*dealt.from_start(), &[0, 1, 2, 3, 0, 1]);
        let other = asked(&*dealt.from_start(), &[3, 3, 0, 1, 1, 2]);
        assert_eq!(one, other);
        let distinct: std::collections::BTreeSet<_> = one.iter().collect();
        assert!(distinct.len() > 1, "not all the same");
        let halves = [&[0, 1, 2][..], &[3, 0, 1]].map(|order| asked(&*dealt.onward(), order));
        assert_eq!(one, halves.concat());
    }

    #[test]
    fn a_quota_is_made_of_whole_connections() {
        let settings = [("dirs".to_owned(), "3".to_owned())].into();
        let dealt = Dealt::of(named("specweb99", &settings, "host").expect("known"));
        let Quota::Connections { count, requests } = dealt.quota(0, (5, 50), 1) else {
            panic!("they have an end");
        };
        let openings = (0..count).map(|number| dealt.workload.session(number, 1).open().requests);
        assert_eq!(openings.sum::<u64>(), requests);
        assert!(count >= 5 && requests >= 50);
        let Quota::Connections { count, .. } = dealt.quota(0, (100, 1), 1) else {
            panic!("they have an end");
        };
        assert_eq!(count, 100);
    }

    #[test]
    fn connections_without_an_end_are_no_measure() {
        let spec = UrlSpec::get("/");
        let endless = Urls::new(
            vec![spec],
            "host",
            Version::Http11,
            PerConnection::Unlimited,
            false,
        );
        let dealt = Dealt::of(Arc::new(endless.expect("right URLs")));
        assert_eq!(dealt.quota(0, (5, 50), 1), Quota::Requests(50));
    }
}
