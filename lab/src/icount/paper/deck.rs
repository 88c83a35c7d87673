//! Deals the requests of several URL lists to all clients, in fixed shares. With random draws, a short run would have
//! other shares than a long one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::workload::urls::UrlWorkload;
use crate::workload::{ClientSession, ConnectionOpening, ExpectedResponse, TrafficWorkload};

/// The traffic of the deck. All its lists open connections in the same way.
pub struct TrafficDeck {
    parts: Vec<UrlWorkload>,
    classes: Vec<String>,
    order: Arc<[usize]>,
    /// Number of requests dealt so far, to all clients.
    next: Arc<AtomicUsize>,
}

impl TrafficDeck {
    /// Creates the traffic of at least one list, each with the number of its requests in a deck.
    pub fn new(parts: Vec<(UrlWorkload, u32)>) -> TrafficDeck {
        let counts: Vec<u32> = parts.iter().map(|(_, count)| *count).collect();
        let parts: Vec<UrlWorkload> = parts.into_iter().map(|(urls, _)| urls).collect();
        let first = |urls: &UrlWorkload| urls.classes().first().cloned().unwrap_or_default();
        TrafficDeck {
            classes: parts.iter().map(first).collect(),
            parts,
            order: order(&counts).into(),
            next: Arc::default(),
        }
    }
}

impl TrafficWorkload for TrafficDeck {
    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn session(&self, number: u64, seed: u64) -> Box<dyn ClientSession> {
        let sessions = self.parts.iter().map(|part| part.session(number, seed));
        Box::new(DeckHand {
            sessions: sessions.collect(),
            order: self.order.clone(),
            next: self.next.clone(),
        })
    }
}

struct DeckHand {
    sessions: Vec<Box<dyn ClientSession>>,
    order: Arc<[usize]>,
    next: Arc<AtomicUsize>,
}

impl ClientSession for DeckHand {
    fn open(&mut self) -> ConnectionOpening {
        // All lists open connections in the same way, so any of them can decide.
        self.sessions[0].open()
    }

    fn request(&mut self, last: bool, out: &mut Vec<u8>) -> ExpectedResponse {
        // All clients share one counter, so the shares hold regardless of the order of the clients.
        let position = self.next.fetch_add(1, Relaxed) % self.order.len();
        let part = self.order[position];
        let class = u8::try_from(part).unwrap_or(u8::MAX);
        let expected = self.sessions[part].request(last, out);
        ExpectedResponse { class, ..expected }
    }
}

/// The order of a deck: each list occurs as often as its count, as evenly as possible. The next entry is always the
/// list that is furthest behind its share.
fn order(counts: &[u32]) -> Vec<usize> {
    // Dividing by the common divisor makes the deck short, so that even a short run has the right shares.
    let divisor = counts.iter().copied().fold(0, divisor).max(1);
    let counts: Vec<i64> = counts
        .iter()
        .map(|count| i64::from(count / divisor))
        .collect();
    let total: i64 = counts.iter().sum();
    let mut owed = vec![0; counts.len()];
    let mut order = Vec::new();
    for _ in 0..total {
        for (owed_part, count) in owed.iter_mut().zip(&counts) {
            *owed_part += count;
        }
        let owed_max = owed.iter().copied().max().unwrap_or_default();
        let next = owed
            .iter()
            .position(|amount| *amount == owed_max)
            .unwrap_or_default();
        // Smooth weighted round-robin, as in nginx: equal parts are spread over the deck instead of forming runs.
        owed[next] -= total;
        order.push(next);
    }
    order
}

fn divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::urls::UrlSpec;
    use crate::workload::{PerConnection, WorkloadVersion};

    #[test]
    fn deck_spreads_shares_evenly() {
        assert_eq!(order(&[1]), [0]);
        assert_eq!(order(&[1000, 500]), [0, 1, 0]);
        let deck = order(&[1000, 300]);
        assert_eq!(deck.len(), 13);
        assert_eq!(deck.iter().filter(|part| **part == 1).count(), 3);
        assert!(deck.windows(2).all(|two| two != [1, 1]), "{deck:?}");
    }

    #[test]
    fn all_clients_draw_from_one_deck() {
        let urls = |path: &str| {
            let specs = vec![UrlSpec::get(path)];
            UrlWorkload::new(
                specs,
                "h",
                WorkloadVersion::Http10,
                PerConnection::Fixed(1),
                false,
            )
            .expect("good")
        };
        let deck = TrafficDeck::new(vec![(urls("/a"), 10), (urls("/b"), 1)]);
        let mut clients = [deck.session(0, 1), deck.session(1, 1)];
        let mut counts = [0; 2];
        for at in 0..1100 {
            let mut out = Vec::new();
            let class = clients[at % 2].request(true, &mut out).class;
            counts[usize::from(class)] += 1;
            assert!(out.starts_with([b"GET /a ", b"GET /b "][usize::from(class)]));
        }
        assert_eq!(counts, [1000, 100]);
    }
}
