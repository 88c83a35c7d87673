//! Who answers how much: the share of requests and bytes that a level has, and what went up most. It
//! reckons with what a [`View`] has seen, and looks at nothing itself.
//!
//! Which requests came on a connection after it was handed up, the level does not see. A server above
//! that counts says it; without one, what was handed up is the least.

use lowroad_softirq::layout::REASONS;
use lowroad_softirq::learn::Kind;
use serde_json::{Value, json};

use super::above::Above;
use super::advice;
use super::levels::grouped;
use super::view::View;

/// Reasons that are named.
const REASONS_MAX: usize = 3;

/// What was answered, from the beginning or over a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    answered: u64,
    bytes: u64,
    handed_up: u64,
    above: Option<Above>,
}

impl Shares {
    /// Since counting began.
    #[must_use]
    pub fn of(view: &View) -> Shares {
        Shares {
            // A second answer is not to a second request.
            answered: view.count("answer_hit"),
            bytes: view.answered_bytes,
            handed_up: view.sum("up_"),
            above: view.above,
        }
    }

    /// Only what came after.
    #[must_use]
    pub fn since(&self, before: &Shares) -> Shares {
        Shares {
            answered: self.answered.saturating_sub(before.answered),
            bytes: self.bytes.saturating_sub(before.bytes),
            handed_up: self.handed_up.saturating_sub(before.handed_up),
            above: since(self.above, before.above),
        }
    }

    /// Of one, how much of all requests was answered here; the most that it can be, if the server above
    /// does not tell. `None`: there were none.
    #[must_use]
    pub fn requests(&self) -> Option<f64> {
        share(self.answered, self.answered + self.requests_above())
    }

    /// Of one, how much of all bytes; `None`: there were none, or nobody knows.
    #[must_use]
    pub fn bytes(&self) -> Option<f64> {
        share(self.bytes, self.bytes + self.above?.bytes)
    }

    /// The server is asked a moment after the level: it may have counted what is not handed up yet, or a
    /// request that was handed up may be without its end.
    fn requests_above(&self) -> u64 {
        let told = self.above.map_or(0, |above| above.requests);
        told.max(self.handed_up)
    }

    /// For people.
    #[must_use]
    pub fn requests_text(&self) -> String {
        let (here, share) = (grouped(self.answered), percent(self.requests()));
        let above = grouped(self.requests_above());
        match self.above {
            Some(server) => format!(
                "{here} answered here ({share}), {above} by the server (process {})",
                server.process
            ),
            None => format!(
                "{here} answered here (at most {share}), at least {above} handed up: what came later on \
                 their connections is not seen here"
            ),
        }
    }

    /// For people.
    #[must_use]
    pub fn bytes_text(&self) -> String {
        let here = grouped(self.bytes);
        match self.above {
            Some(above) => format!(
                "{here} sent here ({}), {} by the server",
                percent(self.bytes()),
                grouped(above.bytes)
            ),
            None => format!("{here} sent here; the server's are not known"),
        }
    }

    /// For machines. What is not known is null.
    #[must_use]
    pub fn to_json(self) -> Value {
        let above = self.above.map(|above| {
            json!({"process": above.process, "age_s": above.age_s, "requests": above.requests,
                   "bytes": above.bytes})
        });
        json!({
            "answered": {"requests": self.answered, "bytes": self.bytes},
            "handed_up": self.handed_up,
            "server": above,
            "requests": self.requests(),
            "bytes": self.bytes(),
        })
    }
}

/// Of the same process; another has begun at 0.
fn since(now: Option<Above>, before: Option<Above>) -> Option<Above> {
    let (now, before) = (now?, before?);
    (now.process == before.process).then_some(Above {
        requests: now.requests.saturating_sub(before.requests),
        bytes: now.bytes.saturating_sub(before.bytes),
        ..now
    })
}

/// Why requests went up, or connections were left to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WentUp {
    /// The reason's name.
    pub name: &'static str,
    /// Requests, or SYNs.
    pub count: u64,
    /// What would change it.
    pub advice: &'static str,
}

/// The most frequent, by how often each came.
pub fn went_up(count: impl Fn(&str) -> u64) -> Vec<WentUp> {
    let all = REASONS.iter().filter_map(|(name, _)| {
        let (count, advice) = (count(name), advice::of(name)?);
        (count > 0).then_some(WentUp {
            name,
            count,
            advice,
        })
    });
    let mut all: Vec<WentUp> = all.collect();
    all.sort_by_key(|one| std::cmp::Reverse(one.count));
    all.truncate(REASONS_MAX);
    all
}

/// Why what was asked for is not stored: the most frequent kinds, and how often the daemon found them.
pub fn not_stored(counts: [u64; Kind::ALL.len()]) -> Vec<(u64, Kind)> {
    let all = counts.into_iter().zip(Kind::ALL);
    let mut all: Vec<(u64, Kind)> = all.filter(|(count, _)| *count > 0).collect();
    all.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    all.truncate(REASONS_MAX);
    all
}

/// Of hundred, with a digit.
#[must_use]
pub fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".into(), |share| format!("{:.1} %", 100.0 * share))
}

fn share(part: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| float(part) / float(all))
}

/// A number to reckon with.
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
    use crate::softirq::view::tests::made_up;

    fn above(process: u32, requests: u64, bytes: u64) -> Option<Above> {
        Some(Above {
            process,
            age_s: 60,
            requests,
            bytes,
        })
    }

    #[test]
    fn without_a_server_that_tells_the_share_is_the_most_it_can_be() {
        let shares = Shares::of(&made_up());
        assert_eq!(shares.requests(), Some(0.9));
        assert_eq!(shares.bytes(), None);
        assert!(
            shares
                .requests_text()
                .contains("(at most 90.0 %), at least 100")
        );
        assert!(shares.bytes_text().contains("not known"));
        assert_eq!(shares.to_json()["server"], Value::Null);
        assert_eq!(shares.to_json()["handed_up"], 100);
    }

    #[test]
    fn with_one_it_is_of_all_requests_and_bytes() {
        let mut view = made_up();
        view.above = above(9, 900, 270_000);
        let shares = Shares::of(&view);
        assert_eq!(shares.requests(), Some(0.5));
        assert_eq!(shares.bytes(), Some(0.25));
        assert_eq!(shares.to_json()["bytes"], 0.25);
        // It was asked before the last requests came to it.
        view.above = above(9, 0, 0);
        assert_eq!(Shares::of(&view).requests(), Some(0.9));
    }

    #[test]
    fn a_span_has_what_came_in_it() {
        let mut view = made_up();
        view.above = above(9, 200, 1000);
        let before = Shares::of(&view);
        view.counters[0] += 30;
        view.answered_bytes += 100;
        view.above = above(9, 270, 1300);
        let span = Shares::of(&view).since(&before);
        assert_eq!(span.requests(), Some(0.3));
        assert_eq!(span.bytes(), Some(0.25));
        view.above = above(10, 270, 1300);
        assert_eq!(Shares::of(&view).since(&before).bytes(), None);
        assert_eq!(before.since(&before).requests(), None);
    }

    #[test]
    fn the_most_frequent_reasons_come_first() {
        let count = |name: &str| match name {
            "answer_hit" | "pass_kernel" => 1000,
            "up_cookie" => 5,
            "up_miss" => 7,
            "pass_syn_socket" => 6,
            "up_field" => 1,
            _ => 0,
        };
        let names: Vec<&str> = went_up(count).iter().map(|one| one.name).collect();
        assert_eq!(names, ["up_miss", "pass_syn_socket", "up_cookie"]);
        assert!(went_up(|_| 0).is_empty());
        let stored = not_stored(made_up().denials);
        assert_eq!(stored, [(7, Kind::Size), (4, Kind::Vary)]);
    }
}
