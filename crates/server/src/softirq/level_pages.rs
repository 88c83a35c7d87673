//! Pages about the attached levels for `lowroad top`: text with the current rates, computed from the difference between
//! two samples.

use std::collections::HashMap;
use std::fmt::Write as _;

use lowroad_softirq::level::SoftirqLevel;
use lowroad_softirq::level::publisher;
use lowroad_softirq::programs::runs::{self, BpfStatsGuard};

use super::advice;
use super::answer_shares::{self, AnswerShares, float};
use super::level_view::{GROUPS, LevelView};
use super::levels::{self, group_digits};
use super::{namespace, url_hits};
use crate::cli::servers::TopArgs;

/// The levels, with the samples at the previous page.
pub struct LevelPages {
    levels: Vec<SoftirqLevel>,
    previous: Vec<TopSample>,
    /// Counting the programs' runs needs a privilege; other rates are shown without it.
    _stats_guard: Option<BpfStatsGuard>,
}

impl LevelPages {
    /// Opens the levels and takes the first samples. Enters the network namespace of the levels.
    ///
    /// # Errors
    /// There is no level to show: a message for the user.
    pub fn open(args: &TopArgs) -> Result<LevelPages, String> {
        if let Some(namespace) = &args.netns {
            namespace::enter_namespace(namespace)?;
        }
        let levels = levels::at_least_one(args.port)?;
        let stats_guard = match args.no_stats {
            true => None,
            false => BpfStatsGuard::start().ok(),
        };
        Ok(LevelPages {
            previous: take_samples(&levels)?,
            levels,
            _stats_guard: stats_guard,
        })
    }

    /// The page about all levels since the previous one.
    ///
    /// # Errors
    /// A level can't be read any more.
    pub fn next_page(&mut self, urls_max: usize) -> Result<String, String> {
        let current = take_samples(&self.levels)?;
        let samples = self.previous.iter().zip(&current);
        let pages: Vec<String> = samples
            .map(|(previous, current)| page(previous, current, urls_max))
            .collect();
        self.previous = current;
        Ok(pages.join("\n"))
    }
}

/// A level's state at one moment, with the hits of each response.
struct TopSample {
    at_ns: u64,
    view: LevelView,
    hits: HashMap<Vec<u8>, u64>,
}

fn take_samples(levels: &[SoftirqLevel]) -> Result<Vec<TopSample>, String> {
    let sample = |level| {
        let published = publisher::published(level);
        Ok(TopSample {
            at_ns: lowroad_softirq::now_ns(),
            view: LevelView::with_server(level)?,
            hits: published
                .into_iter()
                .map(|response| (response.key, response.hits))
                .collect(),
        })
    };
    levels.iter().map(sample).collect()
}

/// Formats the changes between two samples of a level as a page.
fn page(previous: &TopSample, current: &TopSample, urls_max: usize) -> String {
    let mut out = String::new();
    let span = SampleSpan::between(previous, current);
    head(&current.view, &mut out);
    if let Some(bypass) = current.view.bypass {
        // Writing to a string does not fail, here and below.
        let _ = writeln!(out, "rests: {}", bypass.text());
    }
    if let Some(pause_s) = current.view.pause_s {
        let _ = writeln!(out, "fetches {}", advice::for_pause(pause_s));
    }
    let (answers, punts) = (span.group("answer_"), span.group("up_"));
    let shares =
        AnswerShares::from_view(&current.view).since(&AnswerShares::from_view(&previous.view));
    let share = answer_shares::percent(shares.requests());
    let _ = writeln!(
        out,
        "answers/s {:>12}   to server/s {:>10}   hit share {share}",
        span.rate(answers),
        span.rate(punts)
    );
    let connections = &current.view.connections;
    let _ = writeln!(
        out,
        "open {:>17}   new/s {:>16}   being migrated {}",
        group_digits(u64::try_from(connections.open).unwrap_or(0)),
        span.rate(span.count("tcp_open") + span.count("tcp_open_cookie")),
        connections.migrating
    );
    let _ = writeln!(out, "requests: {}", shares.requests_text());
    let _ = writeln!(out, "bytes: {}", shares.bytes_text());
    time_line(&span, answers, &mut out);
    let punts = answer_shares::top_punt_reasons(|name| span.count(name));
    if !punts.is_empty() {
        out.push_str(
            "most frequent reasons not to answer here, per second, and what would change it\n",
        );
    }
    for punt in punts {
        let _ = writeln!(
            out,
            "{:>12}  {:<18} {}",
            span.rate(punt.count),
            punt.name,
            punt.advice
        );
    }
    for (prefix, title) in GROUPS {
        reasons(&span, prefix, title, &mut out);
    }
    urls(&span, urls_max, &mut out);
    out
}

fn head(view: &LevelView, out: &mut String) {
    let ports: Vec<String> = view.ports.iter().map(ToString::to_string).collect();
    let interfaces: Vec<String> = view
        .interfaces
        .iter()
        .map(|(name, tier)| format!("{name} ({tier})"))
        .collect();
    let daemon = match (view.pid, view.is_daemon_alive()) {
        (Some(pid), true) => format!("daemon {pid}"),
        _ => "no daemon".into(),
    };
    let _ = writeln!(
        out,
        "port {} on {}: {}, {daemon}, {} published",
        ports.join(", "),
        interfaces.join(", "),
        view.mode,
        group_digits(view.published.0.into())
    );
}

/// The programs' run time per segment and per response. The time per response includes handshakes and acknowledgements.
fn time_line(span: &SampleSpan<'_>, answers: u64, out: &mut String) {
    let (time_ns, count) = span.runs();
    let (Some(each_ns), Some(share)) = (time_ns.checked_div(count), span.share_of_cpu(time_ns))
    else {
        return;
    };
    let per_answer = match time_ns.checked_div(answers) {
        Some(ns) => format!("{} ns", group_digits(ns)),
        None => "-".into(),
    };
    let _ = writeln!(
        out,
        "ns per segment {:>7}   per answer {per_answer:>11}   of one processor {share:.1} %",
        group_digits(each_ns)
    );
}

fn reasons(span: &SampleSpan<'_>, prefix: &str, title: &str, out: &mut String) {
    let group: Vec<_> = span
        .current
        .view
        .group(prefix)
        .into_iter()
        .map(|(name, text, _)| (name, text, span.count(name)))
        .filter(|(_, _, count)| *count > 0)
        .collect();
    if group.is_empty() {
        return;
    }
    let _ = writeln!(out, "{title}, per second");
    for (name, text, count) in group {
        let _ = writeln!(out, "{:>12}  {name:<18} {text}", span.rate(count));
    }
}

fn urls(span: &SampleSpan<'_>, urls_max: usize, out: &mut String) {
    let hot = url_hits::hits_by_url(&span.previous.hits, &span.current.hits);
    if hot.is_empty() {
        return;
    }
    out.push_str("hits per second, by URL\n");
    for (url, hits) in hot.iter().take(urls_max) {
        let _ = writeln!(out, "{:>12}  {url}", span.rate(*hits));
    }
}

/// Two samples of the same level.
struct SampleSpan<'a> {
    previous: &'a TopSample,
    current: &'a TopSample,
    time_ns: u64,
}

impl<'a> SampleSpan<'a> {
    fn between(previous: &'a TopSample, current: &'a TopSample) -> SampleSpan<'a> {
        SampleSpan {
            previous,
            current,
            // The time is at least 1, because rates divide by it.
            time_ns: current.at_ns.saturating_sub(previous.at_ns).max(1),
        }
    }

    fn group(&self, begin: &str) -> u64 {
        let sum = |sample: &TopSample| sample.view.sum(begin);
        sum(self.current).saturating_sub(sum(self.previous))
    }

    /// The increase of one counter.
    fn count(&self, name: &str) -> u64 {
        let value = |sample: &TopSample| sample.view.count(name);
        value(self.current).saturating_sub(value(self.previous))
    }

    fn runs(&self) -> (u64, u64) {
        let (old, new) = (
            runs::sum(&self.previous.view.runs),
            runs::sum(&self.current.view.runs),
        );
        (new.0.saturating_sub(old.0), new.1.saturating_sub(old.1))
    }

    fn share_of_cpu(&self, time_ns: u64) -> Option<f64> {
        (time_ns > 0).then(|| 100.0 * float(time_ns) / float(self.time_ns))
    }

    /// A rate per second: an integer, or with one decimal if it is below ten.
    fn rate(&self, count: u64) -> String {
        let rate = float(count) * 1e9 / float(self.time_ns);
        match rate < 10.0 && count > 0 {
            true => format!("{rate:.1}"),
            false => group_digits(count.saturating_mul(1_000_000_000) / self.time_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::softirq::level_view::BypassPeriod;
    use crate::softirq::level_view::tests::example_view;
    use lowroad_softirq::layout::REASONS;
    use lowroad_softirq::programs::runs::RunStats;

    const KEY: &[u8] = b"\0\0\x50\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\x02\x01\x01/hot\x02h";

    fn two_samples() -> (TopSample, TopSample) {
        let look = |at_ns, more: u64, hits, time_ns| {
            let mut view = example_view();
            for (name, count) in [("answer_hit", 18 * more), ("up_miss", 2 * more)] {
                let at = REASONS.iter().position(|(other, _)| *other == name);
                view.counters[at.expect("a reason")] += count;
            }
            view.answered_bytes += 180 * more;
            view.runs = vec![RunStats {
                link: "tc-eth0".into(),
                program_id: 1,
                time_ns,
                count: time_ns / 500,
            }];
            TopSample {
                at_ns,
                view,
                hits: HashMap::from([(KEY.to_vec(), hits)]),
            }
        };
        (look(0, 0, 5, 0), look(2_000_000_000, 100, 1805, 2_000_000))
    }

    #[test]
    fn page_shows_rates_between_samples() {
        let (before, now) = two_samples();
        let page = page(&before, &now, 5);
        for part in [
            "port 80 on eth0 (TC ingress): serving, daemon 7, 3 published",
            "answers/s          900",
            "to server/s        100",
            "hit share 90.0 %",
            "requests: 1,800 answered here (at most 90.0 %), at least 200 passed to the server",
            "bytes: 18,000 sent here",
            "100  up_miss            first requests are always passed on",
            "ns per segment     500",
            "of one processor 0.1 %",
            "900  http://h/hot",
            "100  up_miss            no matching response is stored",
        ] {
            assert!(page.contains(part), "{part:?} in\n{page}");
        }
        // Counters without a change are omitted.
        assert!(!page.contains("up_cookie"), "{page}");
    }

    #[test]
    fn page_shows_bypass_and_fetch_pause() {
        let (before, mut now) = two_samples();
        now.view.bypass = Some(BypassPeriod {
            is_asleep: true,
            remaining_s: 25,
            answers: 0,
            requests: 2000,
        });
        now.view.pause_s = Some(8);
        let page = page(&before, &now, 5);
        for part in ["rests: all connections", "asleep", "fetches pause for 8 s"] {
            assert!(page.contains(part), "{part:?} in\n{page}");
        }
    }

    #[test]
    fn page_without_requests_has_no_share() {
        let (before, _) = two_samples();
        let page = page(&before, &before, 5);
        assert!(page.contains("hit share -"), "{page}");
        assert!(!page.contains("ns per segment"), "{page}");
    }
}
