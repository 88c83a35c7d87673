//! The shares of operations and of connection kinds. Independent of requests.

use super::WeightedChoice;
use crate::random::SplitMix;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpecWebOperation {
    /// A file.
    Static,
    /// A page that contains a file.
    Get,
    /// The same, by a CGI program.
    Cgi,
    /// A page with ads for a user.
    Ad,
    /// A form.
    Post,
}

const OPERATIONS: [SpecWebOperation; 5] = [
    SpecWebOperation::Static,
    SpecWebOperation::Get,
    SpecWebOperation::Cgi,
    SpecWebOperation::Ad,
    SpecWebOperation::Post,
];

/// Shares of the dynamic requests: GET, CGI, ads, POST.
const OFFICIAL: [f64; 4] = [1.0 - 0.16 - 0.42 - 0.005, 0.005, 0.42, 0.16];

/// Paper `000`'s dynamic requests: the same without CGI.
const PAPER: [f64; 4] = [0.42, 0.0, 0.42, 0.16];

/// The weights of the operations, and their result classes.
pub(super) struct OperationMix {
    weights: [f64; 5],
    weighted: WeightedChoice,
    names: Vec<String>,
    /// Class of each operation; for static requests that of the smallest files, followed by the other file classes.
    classes: [u8; 5],
}

impl OperationMix {
    pub(super) fn new(dynamic: f64, official: bool) -> OperationMix {
        let [get, cgi, ad, post] =
            (if official { OFFICIAL } else { PAPER }).map(|share| share * dynamic);
        let weights = [1.0 - dynamic, get, cgi, ad, post];
        let mut names = Vec::new();
        let mut classes = [0; 5];
        for (index, operation) in OPERATIONS.iter().enumerate() {
            // Static requests take one class for each class of files, so the numbers of operations and classes differ.
            classes[index] = names.len() as u8;
            if weights[index] > 0.0 {
                names.extend(
                    operation_names(*operation)
                        .iter()
                        .map(|name| name.to_string()),
                );
            }
        }
        OperationMix {
            weights,
            weighted: WeightedChoice::new(&weights),
            names,
            classes,
        }
    }

    /// Names of the classes of results.
    pub(super) fn classes(&self) -> &[String] {
        &self.names
    }

    /// The class of a request.
    pub(super) fn class(&self, operation: SpecWebOperation, file_class: u8) -> u8 {
        let first = self.classes[operation as usize];
        if operation == SpecWebOperation::Static {
            first + file_class
        } else {
            first
        }
    }

    pub(super) fn has_ads(&self) -> bool {
        self.weights[SpecWebOperation::Ad as usize] > 0.0
    }

    pub(super) fn draw(&self, random: &mut SplitMix) -> SpecWebOperation {
        OPERATIONS[self.weighted.pick(random)]
    }
}

fn operation_names(operation: SpecWebOperation) -> &'static [&'static str] {
    match operation {
        SpecWebOperation::Static => &[
            "static class 0",
            "static class 1",
            "static class 2",
            "static class 3",
        ],
        SpecWebOperation::Get => &["dynamic GET"],
        SpecWebOperation::Cgi => &["CGI GET"],
        SpecWebOperation::Ad => &["ad GET"],
        SpecWebOperation::Post => &["POST"],
    }
}

/// The kinds of connections. The rule is that 70 % of the REQUESTS are on persistent connections with 10 requests on
/// average: of 100 requests, 70 on 7 connections and 30 on 30 connections.
pub(super) struct ConnectionMix;

impl ConnectionMix {
    /// Draws whether a new connection is persistent, and its number of requests.
    pub(super) fn draw(random: &mut SplitMix) -> (bool, u64) {
        if random.below(37) < 7 {
            (true, 5 + random.below(11))
        } else {
            (false, 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::draw::tests::assert_fits;
    use super::*;

    #[test]
    fn shares_of_all_mixes() {
        for (dynamic, official, shares) in [
            (0.0, false, [100.0, 0.0, 0.0, 0.0, 0.0]),
            (0.3, false, [70.0, 12.6, 0.0, 12.6, 4.8]),
            (0.5, false, [50.0, 21.0, 0.0, 21.0, 8.0]),
            (0.8, false, [20.0, 33.6, 0.0, 33.6, 12.8]),
            (1.0, false, [0.0, 42.0, 0.0, 42.0, 16.0]),
            (0.3, true, [70.0, 12.45, 0.15, 12.6, 4.8]),
        ] {
            let mix = OperationMix::new(dynamic, official);
            let mut counts = [0; 5];
            let mut random = SplitMix::new(99);
            for _ in 0..1_000_000 {
                counts[mix.draw(&mut random) as usize] += 1;
            }
            if dynamic > 0.0 {
                assert_fits(&counts, &shares, &format!("{dynamic} {official}"));
            }
            assert_eq!(mix.has_ads(), shares[3] > 0.0);
        }
    }

    #[test]
    fn classes_are_those_that_occur() {
        assert_eq!(OperationMix::new(0.0, false).classes().len(), 4);
        let all = OperationMix::new(1.0, false);
        assert_eq!(all.classes(), ["dynamic GET", "ad GET", "POST"]);
        assert_eq!(all.class(SpecWebOperation::Post, 3), 2);
        let official = OperationMix::new(0.3, true);
        assert_eq!(
            official.classes()[official.class(SpecWebOperation::Static, 2) as usize],
            "static class 2"
        );
        assert_eq!(
            official.classes()[official.class(SpecWebOperation::Ad, 2) as usize],
            "ad GET"
        );
    }

    #[test]
    fn requests_on_persistent_connections() {
        let mut random = SplitMix::new(7);
        let (mut lengths, mut single) = ([0u64; 11], 0u64);
        for _ in 0..1_000_000 {
            match ConnectionMix::draw(&mut random) {
                (true, requests) => lengths[requests as usize - 5] += 1,
                (false, requests) => single += requests,
            }
        }
        let persistent: u64 = lengths.iter().sum();
        assert_fits(&[persistent, single], &[7.0, 30.0], "kinds of connections");
        assert_fits(&lengths, &[1.0; 11], "5 to 15 requests");
        let requests: u64 = lengths
            .iter()
            .zip(5..)
            .map(|(count, length)| count * length)
            .sum();
        let share = requests as f64 / (requests + single) as f64;
        let deviation = share_deviation(1e6);
        assert!((share - 0.7).abs() < 4.5 * deviation, "{share} {deviation}");
    }

    /// The standard deviation of the share of requests on persistent connections (delta method): from each
    /// connection's contribution to these requests, less 0.7 of its contribution to all.
    fn share_deviation(connections: f64) -> f64 {
        let (persistent, mean_all) = (7.0 / 37.0, 100.0 / 37.0);
        // Persistent connections have a mean of 10 requests and a variance of 10.
        let of_persistent = 0.3 * 0.3 * (10.0 * 10.0 + 10.0);
        let of_single = 0.7 * 0.7;
        let variance = persistent * of_persistent + (1.0 - persistent) * of_single;
        (variance / connections).sqrt() / mean_all
    }
}
