//! The level's share of requests and bytes, and the most frequent reasons for punts, computed from a `LevelView`.
//!
//! The level does not see the requests on a migrated connection. A Lowroad server above the level counts them; without
//! one, the number of punts is a lower bound for the requests to the server.

use lowroad_softirq::layout::REASONS;
use lowroad_softirq::learner::DenialKind;
use serde_json::{Value, json};

use super::advice;
use super::level_view::LevelView;
use super::levels::group_digits;
use super::upper_server::ServerCounts;

/// Maximum number of reasons in the output.
const REASONS_MAX: usize = 3;

/// Counts since counting began, or of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerShares {
    answered: u64,
    bytes: u64,
    punted: u64,
    server: Option<ServerCounts>,
}

impl AnswerShares {
    /// The counts since counting began.
    #[must_use]
    pub fn from_view(view: &LevelView) -> AnswerShares {
        AnswerShares {
            // Only hits are counted: a retransmitted response is not another request.
            answered: view.count("answer_hit"),
            bytes: view.answered_bytes,
            punted: view.sum("up_"),
            server: view.server,
        }
    }

    /// The difference between these counts and earlier ones.
    #[must_use]
    pub fn since(&self, previous: &AnswerShares) -> AnswerShares {
        AnswerShares {
            answered: self.answered.saturating_sub(previous.answered),
            bytes: self.bytes.saturating_sub(previous.bytes),
            punted: self.punted.saturating_sub(previous.punted),
            server: since(self.server, previous.server),
        }
    }

    /// The level's share of requests, from 0 to 1. Without the server's counts, it is an upper bound. `None`: no
    /// requests.
    #[must_use]
    pub fn requests(&self) -> Option<f64> {
        share(self.answered, self.answered + self.server_requests())
    }

    /// The level's share of bytes, from 0 to 1; `None`: no bytes, or the server's count is unknown.
    #[must_use]
    pub fn bytes(&self) -> Option<f64> {
        share(self.bytes, self.bytes + self.server?.bytes)
    }

    /// Requests to the server. The server is queried shortly after the level, so the two counts may differ: the server
    /// may have counted a request that was not punted yet, and a punted request may still be incomplete.
    fn server_requests(&self) -> u64 {
        let reported = self.server.map_or(0, |server| server.requests);
        reported.max(self.punted)
    }

    /// The level's requests and its share of all requests as text.
    #[must_use]
    pub fn requests_text(&self) -> String {
        let (answered, share) = (group_digits(self.answered), percent(self.requests()));
        let by_server = group_digits(self.server_requests());
        match self.server {
            Some(server) => format!(
                "{answered} answered here ({share}), {by_server} by the server (process {})",
                server.process
            ),
            None => format!(
                "{answered} answered here (at most {share}), at least {by_server} passed to the server: \
                 later ones on their connections are not seen here"
            ),
        }
    }

    /// The level's bytes and its share of all bytes as text.
    #[must_use]
    pub fn bytes_text(&self) -> String {
        let sent = group_digits(self.bytes);
        match self.server {
            Some(server) => format!(
                "{sent} sent here ({}), {} by the server",
                percent(self.bytes()),
                group_digits(server.bytes)
            ),
            None => format!("{sent} sent here; those of the server are unknown"),
        }
    }

    /// All counts as JSON; unknown counts are null.
    #[must_use]
    pub fn to_json(self) -> Value {
        let server = self.server.map(|server| {
            json!({"process": server.process, "age_s": server.age_s, "requests": server.requests,
                   "bytes": server.bytes})
        });
        json!({
            "answered": {"requests": self.answered, "bytes": self.bytes},
            "handed_up": self.punted,
            "server": server,
            "requests": self.requests(),
            "bytes": self.bytes(),
        })
    }
}

/// The difference between two counts of the same server process.
fn since(now: Option<ServerCounts>, previous: Option<ServerCounts>) -> Option<ServerCounts> {
    let (now, previous) = (now?, previous?);
    // A restarted server counts from 0, so its counts can't be compared.
    (now.process == previous.process).then_some(ServerCounts {
        requests: now.requests.saturating_sub(previous.requests),
        bytes: now.bytes.saturating_sub(previous.bytes),
        ..now
    })
}

/// A reason for punting requests, or for leaving connections to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PuntReasons {
    /// The reason's name.
    pub name: &'static str,
    /// Number of requests or of SYNs.
    pub count: u64,
    /// A remedy.
    pub advice: &'static str,
}

/// The most frequent reasons; `count` returns the count of a reason.
pub fn top_punt_reasons(count: impl Fn(&str) -> u64) -> Vec<PuntReasons> {
    let all = REASONS.iter().filter_map(|(name, _)| {
        let (count, advice) = (count(name), advice::for_reason(name)?);
        (count > 0).then_some(PuntReasons {
            name,
            count,
            advice,
        })
    });
    let mut all: Vec<PuntReasons> = all.collect();
    all.sort_by_key(|reason| std::cmp::Reverse(reason.count));
    all.truncate(REASONS_MAX);
    all
}

/// The most frequent kinds of reasons why the daemon did not store responses, with their counts.
pub fn top_denials(counts: [u64; DenialKind::ALL.len()]) -> Vec<(u64, DenialKind)> {
    let all = counts.into_iter().zip(DenialKind::ALL);
    let mut all: Vec<(u64, DenialKind)> = all.filter(|(count, _)| *count > 0).collect();
    all.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    all.truncate(REASONS_MAX);
    all
}

/// A share in percent, with one decimal.
#[must_use]
pub fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".into(), |share| format!("{:.1} %", 100.0 * share))
}

fn share(part: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| float(part) / float(all))
}

/// A number as a floating-point number.
#[must_use]
#[allow(
    clippy::cast_precision_loss,
    reason = "for people, who read three digits"
)]
pub fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::softirq::level_view::tests::example_view;

    fn server_counts(process: u32, requests: u64, bytes: u64) -> Option<ServerCounts> {
        Some(ServerCounts {
            process,
            age_s: 60,
            requests,
            bytes,
        })
    }

    #[test]
    fn share_without_server_counts_is_an_upper_bound() {
        let shares = AnswerShares::from_view(&example_view());
        assert_eq!(shares.requests(), Some(0.9));
        assert_eq!(shares.bytes(), None);
        assert!(
            shares
                .requests_text()
                .contains("(at most 90.0 %), at least 100")
        );
        assert!(shares.bytes_text().contains("unknown"));
        assert_eq!(shares.to_json()["server"], Value::Null);
        assert_eq!(shares.to_json()["handed_up"], 100);
    }

    #[test]
    fn share_with_server_counts_includes_its_requests_and_bytes() {
        let mut view = example_view();
        view.server = server_counts(9, 900, 270_000);
        let shares = AnswerShares::from_view(&view);
        assert_eq!(shares.requests(), Some(0.5));
        assert_eq!(shares.bytes(), Some(0.25));
        assert_eq!(shares.to_json()["bytes"], 0.25);
        // The server was queried before it counted the last requests.
        view.server = server_counts(9, 0, 0);
        assert_eq!(AnswerShares::from_view(&view).requests(), Some(0.9));
    }

    #[test]
    fn difference_has_only_counts_of_the_period() {
        let mut view = example_view();
        view.server = server_counts(9, 200, 1000);
        let before = AnswerShares::from_view(&view);
        view.counters[0] += 30;
        view.answered_bytes += 100;
        view.server = server_counts(9, 270, 1300);
        let span = AnswerShares::from_view(&view).since(&before);
        assert_eq!(span.requests(), Some(0.3));
        assert_eq!(span.bytes(), Some(0.25));
        view.server = server_counts(10, 270, 1300);
        assert_eq!(AnswerShares::from_view(&view).since(&before).bytes(), None);
        assert_eq!(before.since(&before).requests(), None);
    }

    #[test]
    fn reasons_are_sorted_by_count() {
        let count = |name: &str| match name {
            "answer_hit" | "pass_kernel" => 1000,
            "up_cookie" => 5,
            "up_miss" => 7,
            "pass_syn_socket" => 6,
            "up_field" => 1,
            _ => 0,
        };
        let names: Vec<&str> = top_punt_reasons(count).iter().map(|one| one.name).collect();
        assert_eq!(names, ["up_miss", "pass_syn_socket", "up_cookie"]);
        assert!(top_punt_reasons(|_| 0).is_empty());
        let stored = top_denials(example_view().denials);
        assert_eq!(stored, [(7, DenialKind::Size), (4, DenialKind::Vary)]);
    }
}
