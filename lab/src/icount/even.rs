//! An order of a workload's connections whose beginning is like the whole, as nearly as whole connections allow: as large a share of it
//! is of each class, its bodies are as long, and its connections have as many requests. From some 200 connections on, lengths are
//! right to 10 %. So a short run tells what a long one would. Pure.

use crate::workload::TrafficWorkload;

/// Requests that are looked at to know what the whole is like.
const OF_THE_WHOLE: f64 = 40_000.0;
/// So many connections are there to choose the next from. Those that are passed over stay among them.
const CHOICE: usize = 400;
/// Most requests of a connection that are looked at.
const MOST_REQUESTS: u64 = 1000;

/// Numbers of connections, so many, of a workload whose connections have an end.
pub fn even(workload: &dyn TrafficWorkload, count: usize, seed: u64) -> Vec<u64> {
    let mut looked = Vec::new();
    let mut whole = ConnectionContent::none(workload);
    while whole.requests < OF_THE_WHOLE || looked.len() < count + CHOICE {
        let one = ConnectionContent::of(workload, looked.len() as u64, seed);
        whole.add(&one);
        looked.push(one);
    }
    let mut choice: Vec<usize> = (0..CHOICE).collect();
    let mut dealt = ConnectionContent::none(workload);
    let mut order = Vec::with_capacity(count);
    for next in (CHOICE..).take(count) {
        let distances = choice
            .iter()
            .map(|number| dealt.distance_with(&looked[*number], &whole));
        let nearest = distances.enumerate().min_by(|a, b| a.1.total_cmp(&b.1));
        let (at, _) = nearest.expect("there is a choice");
        let number = std::mem::replace(&mut choice[at], next);
        dealt.add(&looked[number]);
        order.push(number as u64);
    }
    order
}

/// The first number that no order of so many has.
pub fn after(count: usize) -> u64 {
    (count + CHOICE) as u64
}

/// What some connections ask for.
#[derive(Clone, Debug)]
struct ConnectionContent {
    connections: f64,
    requests: f64,
    by_class: Vec<f64>,
    /// Of the bodies whose length is known.
    body_len: f64,
}

impl ConnectionContent {
    fn none(workload: &dyn TrafficWorkload) -> ConnectionContent {
        ConnectionContent {
            connections: 0.0,
            requests: 0.0,
            by_class: vec![0.0; workload.classes().len()],
            body_len: 0.0,
        }
    }

    fn of(workload: &dyn TrafficWorkload, number: u64, seed: u64) -> ConnectionContent {
        let mut content = ConnectionContent::none(workload);
        let mut session = workload.session(number, seed);
        let requests = session.open().requests.min(MOST_REQUESTS);
        let mut text = Vec::new();
        for left in (0..requests).rev() {
            text.clear();
            let expected = session.request(left == 0, &mut text);
            content.by_class[usize::from(expected.class)] += 1.0;
            content.body_len += expected.len.unwrap_or(0) as f64;
        }
        (content.connections, content.requests) = (1.0, requests as f64);
        content
    }

    fn add(&mut self, other: &ConnectionContent) {
        self.connections += other.connections;
        self.requests += other.requests;
        self.body_len += other.body_len;
        for (own, other) in self.by_class.iter_mut().zip(&other.by_class) {
            *own += other;
        }
    }

    /// How far both together are from what as many requests of the whole would be; 0 if it is the same. A request of a class
    /// counts for more the rarer the class is.
    fn distance_with(&self, other: &ConnectionContent, whole: &ConnectionContent) -> f64 {
        let requests = self.requests + other.requests;
        // What there is too much of, squared, and how much of it the whole has a request.
        let surplus = |own: f64, other: f64, whole_has: f64| {
            let rate = whole_has / whole.requests;
            (
                (own + other - rate * requests).powi(2),
                rate.max(f64::MIN_POSITIVE),
            )
        };
        let in_requests = |own, other, whole_has| {
            let (squared, rate) = surplus(own, other, whole_has);
            squared / (rate * rate).max(f64::MIN_POSITIVE)
        };
        let numbers = self.by_class.iter().zip(&other.by_class);
        let of_classes = numbers
            .zip(&whole.by_class)
            .map(|((own, other), whole_has)| {
                let (squared, rate) = surplus(*own, *other, *whole_has);
                squared / rate
            });
        of_classes.sum::<f64>()
            + in_requests(self.body_len, other.body_len, whole.body_len)
            + in_requests(self.connections, other.connections, whole.connections)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::workload::named;

    fn sum(
        workload: &dyn TrafficWorkload,
        numbers: impl Iterator<Item = u64>,
    ) -> ConnectionContent {
        numbers.fold(ConnectionContent::none(workload), |mut sum, number| {
            sum.add(&ConnectionContent::of(workload, number, 1));
            sum
        })
    }

    /// The greatest difference of a class from its share of the whole, in requests, and how much longer the mean body is.
    fn differs(part: &ConnectionContent, whole: &ConnectionContent) -> (f64, f64) {
        let off = |(own, whole_has): (&f64, &f64)| {
            (own - whole_has / whole.requests * part.requests).abs()
        };
        let classes = part.by_class.iter().zip(&whole.by_class);
        let mean = |of: &ConnectionContent| of.body_len / of.requests;
        (
            classes.map(off).fold(0.0, f64::max),
            mean(part) / mean(whole),
        )
    }

    #[test]
    fn the_beginning_is_like_the_whole() {
        for (name, settings) in [
            ("webbench", vec![]),
            ("specweb96", vec![("target", "50")]),
            ("specweb99", vec![("dirs", "3"), ("dynamic", "0")]),
        ] {
            let settings = settings.into_iter();
            let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
            let workload = named(name, &settings.collect(), "host").expect("known");
            let order = even(&*workload, 1000, 1);
            let distinct: BTreeSet<_> = order.iter().collect();
            assert_eq!(distinct.len(), 1000);
            assert!(order.iter().all(|number| *number < after(1000)));
            let whole = sum(&*workload, 0..10_000);
            for part in [200, 400, 1000] {
                let found = sum(&*workload, order[..part].iter().copied());
                let (off, len) = differs(&found, &whole);
                assert!(off < 8.0, "{name}: {off} requests of {part} connections");
                // As they are drawn, those of 200 are half as long.
                assert!((0.9..1.1).contains(&len), "{name}: {len} of {part}");
            }
        }
    }

    #[test]
    fn long_connections_are_looked_at_for_a_while() {
        let settings = [("protocol", "1.1"), ("per-connection", "5000")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let workload = named("webbench", &settings.into(), "host").expect("known");
        assert_eq!(
            ConnectionContent::of(&*workload, 0, 1).requests,
            MOST_REQUESTS as f64
        );
        assert_eq!(even(&*workload, 3, 1).len(), 3);
    }
}
