//! The state of a level at one moment, as plain data for `status` and `top`.

use lowroad_softirq::layout::{self, HEARTBEAT_LIMIT_NS, REASONS};
use lowroad_softirq::learner::DenialKind;
use lowroad_softirq::level::SoftirqLevel;
use lowroad_softirq::level::connections::ConnectionCounts;
use lowroad_softirq::migration;
use lowroad_softirq::programs::links;
use lowroad_softirq::programs::loader::ProgramTier;
use lowroad_softirq::programs::runs::{self, RunStats};

use super::level_lock;
use super::levels::group_digits;
use super::upper_server::{self, ServerCounts};
use crate::level::LevelReport;

/// A level's state at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelView {
    /// The ports that the level answers.
    pub ports: Vec<u16>,
    /// Interfaces with the names of their tiers.
    pub interfaces: Vec<(String, &'static str)>,
    /// off, serving or draining.
    pub mode: &'static str,
    /// The daemon's process number, if it runs.
    pub pid: Option<u32>,
    /// Time since the daemon's last heartbeat; `None` if it has sent none.
    pub heartbeat_age_ms: Option<u64>,
    /// Number of published responses, and its maximum.
    pub published: (u32, usize),
    /// Number of connections.
    pub connections: ConnectionCounts,
    /// Why the kernel can't take over connections, with a remedy. If set, the level answers nothing.
    pub trouble: Option<&'static str>,
    /// The current bypass period, if there is one.
    pub bypass: Option<BypassPeriod>,
    /// Seconds until the daemon resumes its fetches; it pauses them if recent ones brought too few hits.
    pub pause_s: Option<u64>,
    /// Active settings.
    pub settings: Vec<&'static str>,
    /// Counters, in the order of [`REASONS`].
    pub counters: Vec<u64>,
    /// Bytes of response heads and bodies that were sent.
    pub answered_bytes: u64,
    /// How often the daemon did not store a response, in the order of [`DenialKind::ALL`].
    pub denials: [u64; DenialKind::ALL.len()],
    /// Time since counting began.
    pub age_s: Option<u64>,
    /// Counters of the server above, if it is a Lowroad server. Only set by [`LevelView::with_server`].
    pub server: Option<ServerCounts>,
    /// Run statistics of the programs, counted by the kernel.
    pub runs: Vec<RunStats>,
}

/// Level bypass: the level leaves all connections to the kernel for a period, because it answered too few requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BypassPeriod {
    /// Whether the programs return without parsing packets.
    pub is_asleep: bool,
    /// Seconds until the period ends.
    pub remaining_s: u64,
    /// Requests that the level answered before the period.
    pub answers: u64,
    /// All requests before the period.
    pub requests: u64,
}

impl BypassPeriod {
    fn from_control(control: &layout::control, now_ns: u64) -> Option<BypassPeriod> {
        (control.resting != layout::AWAKE).then_some(BypassPeriod {
            is_asleep: control.resting == layout::ASLEEP,
            remaining_s: seconds_until(control.rest_until_ns, now_ns),
            answers: control.rest_answers,
            requests: control.rest_requests,
        })
    }

    /// The bypass period as text.
    #[must_use]
    pub fn text(&self) -> String {
        format!(
            "all connections are left to the kernel for {} s more: of {} requests {} were \
             answered here; `lowroad purge all` ends this at once{}",
            group_digits(self.remaining_s),
            group_digits(self.requests),
            group_digits(self.answers),
            if self.is_asleep {
                " (asleep: no packet is inspected)"
            } else {
                ""
            }
        )
    }
}

/// Seconds until a time, rounded up.
fn seconds_until(until_ns: u64, now_ns: u64) -> u64 {
    until_ns.saturating_sub(now_ns).div_ceil(1_000_000_000)
}

/// Groups of counters by the prefix of their names, with titles.
pub const GROUPS: [(&str, &str); 6] = [
    ("answer_", "answered here"),
    ("up_", "passed to the server"),
    ("tcp_", "connections"),
    ("drop_", "dropped"),
    ("pass_", "left to the kernel"),
    ("event_", "events"),
];

impl LevelView {
    /// Reads a level's state.
    ///
    /// # Errors
    /// When the counters can't be read: a message for the user.
    pub fn new(level: &SoftirqLevel) -> Result<LevelView, String> {
        let control = level.control();
        let heartbeat_ns = control.heartbeat_ns;
        let now_ns = lowroad_softirq::now_ns();
        let age_ms = now_ns.saturating_sub(heartbeat_ns) / 1_000_000;
        let pause_s = seconds_until(control.pause_until_ns, now_ns);
        Ok(LevelView {
            ports: level.ports(),
            interfaces: links::attached(level.folder())
                .into_iter()
                .map(|(name, tier)| (name, tier_name(tier)))
                .collect(),
            mode: mode_name(control.mode),
            pid: level_lock::holder_pid(level.folder()),
            // 0: no daemon has served this level yet.
            heartbeat_age_ms: (heartbeat_ns != 0).then_some(age_ms),
            published: (control.published, level.capacity()),
            connections: level.connections(),
            trouble: migration::describe(control.handover_broken),
            bypass: BypassPeriod::from_control(&control, now_ns),
            pause_s: (pause_s > 0).then_some(pause_s),
            settings: settings(control.settings),
            counters: level.counters().map_err(|error| error.to_string())?,
            answered_bytes: level.answered_bytes().map_err(|error| error.to_string())?,
            denials: level.denials(),
            age_s: level.age().map(|age| age.as_secs()),
            server: None,
            runs: runs::read_runs(level.folder()),
        })
    }

    /// Reads a level's state, and the counters of the Lowroad server above, if there is one.
    ///
    /// # Errors
    /// As [`LevelView::new`].
    pub fn with_server(level: &SoftirqLevel) -> Result<LevelView, String> {
        let view = LevelView::new(level)?;
        let server = upper_server::find_server(&view.ports);
        Ok(LevelView { server, ..view })
    }

    /// The counters and gauges for the server's metrics. Counters that are 0 are omitted.
    pub fn report(&self) -> LevelReport {
        let counters = REASONS.iter().zip(&self.counters);
        let counters = counters.map(|((name, _), count)| ((*name).to_owned(), *count));
        let denials = DenialKind::ALL.iter().zip(self.denials);
        let denials = denials.map(|(kind, count)| (format!("denied_{}", kind.name()), count));
        let connections = &self.connections;
        let gauges = [
            ("gauge_published_responses", u64::from(self.published.0)),
            ("gauge_published_responses_max", self.published.1 as u64),
            ("gauge_open_connections", connections.open as u64),
            ("gauge_connections_max", connections.slots as u64),
            ("gauge_parked_sockets", connections.parked as u64),
            ("gauge_bypassed", self.bypass.is_some().into()),
        ];
        let gauges = gauges.map(|(name, value)| (name.to_owned(), value));
        let bytes = [("bytes_answered".to_owned(), self.answered_bytes)];
        let moving = counters.chain(denials).chain(bytes);
        LevelReport {
            numbers: moving
                .filter(|(_, value)| *value > 0)
                .chain(gauges)
                .collect(),
        }
    }

    /// Whether the programs treat the daemon as alive.
    #[must_use]
    pub fn is_daemon_alive(&self) -> bool {
        // The programs use the same limit.
        let limit_ms = HEARTBEAT_LIMIT_NS / 1_000_000;
        self.heartbeat_age_ms.is_some_and(|age| age < limit_ms)
    }

    /// The non-zero counters of a group, with names and texts.
    pub fn group(&self, prefix: &str) -> Vec<(&'static str, &'static str, u64)> {
        let all = REASONS.iter().zip(&self.counters);
        all.filter(|((name, _), count)| name.starts_with(prefix) && **count > 0)
            .map(|((name, text), count)| (*name, *text, *count))
            .collect()
    }

    /// The value of a counter.
    #[must_use]
    pub fn count(&self, reason: &str) -> u64 {
        let index = REASONS.iter().position(|(name, _)| *name == reason);
        index
            .and_then(|index| self.counters.get(index))
            .copied()
            .unwrap_or(0)
    }

    /// The sum of a group's counters.
    #[must_use]
    pub fn sum(&self, prefix: &str) -> u64 {
        self.group(prefix).iter().map(|(_, _, count)| count).sum()
    }
}

/// A tier's name for the operator.
pub fn tier_name(tier: ProgramTier) -> &'static str {
    match tier {
        ProgramTier::Xdp => "native XDP",
        ProgramTier::Tc => "TC ingress",
    }
}

fn mode_name(mode: u32) -> &'static str {
    match mode {
        layout::MODE_OFF => "off",
        layout::MODE_SERVE => "serving",
        layout::MODE_DRAIN => "draining",
        _ => "unknown to this program",
    }
}

const TRACKED: &str =
    "migrated connections stay with the server (nf_conntrack_count above 0, or tcp_rfc1337)";

fn settings(bits: u32) -> Vec<&'static str> {
    [
        (layout::SETTING_LEARN, "learn"),
        (layout::SETTING_LOG, "log"),
        (layout::SETTING_IGNORE_COOKIES, "ignore-cookies"),
        (layout::SETTING_IGNORE_CACHE_CONTROL, "ignore-cache-control"),
        (layout::SETTING_DENY, "deny"),
        (layout::SETTING_ADMIT, "admit"),
        (layout::SETTING_KEEP_TIME_WAIT, TRACKED),
        (
            layout::SETTING_STAY_UP,
            "migrated connections stay with the server (no SOCK_DESTROY)",
        ),
    ]
    .into_iter()
    .filter_map(|(bit, name)| (bits & bit != 0).then_some(name))
    .collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// An example of a level that serves.
    pub fn example_view() -> LevelView {
        let mut counters = vec![0; REASONS.len()];
        for (name, count) in [("answer_hit", 900), ("up_miss", 90), ("up_cookie", 10)] {
            let at = REASONS.iter().position(|(other, _)| *other == name);
            counters[at.expect("a reason")] = count;
        }
        LevelView {
            ports: vec![80],
            interfaces: vec![("eth0".into(), "TC ingress")],
            mode: "serving",
            pid: Some(7),
            heartbeat_age_ms: Some(400),
            published: (3, 4096),
            connections: ConnectionCounts {
                open: 5,
                migrating: 1,
                kernel: 2,
                parked: 3,
                slots: 65_536,
            },
            trouble: None,
            bypass: None,
            pause_s: None,
            settings: vec!["learn"],
            counters,
            answered_bytes: 90_000,
            denials: [0, 0, 0, 4, 7, 0, 0],
            age_s: Some(60),
            server: None,
            runs: Vec::new(),
        }
    }

    #[test]
    fn every_counter_is_in_exactly_one_group() {
        for (name, _) in REASONS {
            let groups = GROUPS.iter().filter(|(begin, _)| name.starts_with(begin));
            assert_eq!(groups.count(), 1, "{name}");
        }
    }

    #[test]
    fn groups_omit_zero_counters() {
        let view = example_view();
        assert_eq!(view.sum("up_"), 100);
        assert_eq!(
            view.group("answer_"),
            [("answer_hit", "a stored response", 900)]
        );
        assert!(view.group("drop_").is_empty());
    }

    #[test]
    fn daemon_without_recent_heartbeat_is_not_alive() {
        let mut view = example_view();
        assert!(view.is_daemon_alive());
        view.heartbeat_age_ms = Some(30_000);
        assert!(!view.is_daemon_alive());
        view.heartbeat_age_ms = None;
        assert!(!view.is_daemon_alive());
    }

    #[test]
    fn bypass_period_has_remaining_time_and_reason() {
        let mut control = layout::control {
            resting: layout::RESTING,
            rest_until_ns: 12_500_000_000,
            rest_answers: 3,
            rest_requests: 2130,
            ..layout::control::default()
        };
        let rest = |control: &_| BypassPeriod::from_control(control, 500_000_001);
        let text = rest(&control).expect("it rests").text();
        assert!(text.contains("for 12 s more: of 2,130 requests 3 were answered here"));
        control.resting = layout::ASLEEP;
        assert!(rest(&control).is_some_and(|rest| rest.text().contains("asleep")));
        control.resting = layout::AWAKE;
        assert_eq!(rest(&control), None);
    }
}
