//! The eBPF programs as an implementation under test.

use lowroad_softirq::layout::{self, REASONS};
use lowroad_softirq::level::SoftirqLevel;
use lowroad_softirq::level::publisher;
use lowroad_softirq::programs::loader::ProgramTier;
use rustix::fd::OwnedFd;

use super::bench::{Bench, FrameEffect};
use super::leftover;
use super::responses::{Response, TestPublisher};
use super::script::{self, TraceTarget};

const HOUR_NS: u64 = 3_600_000_000_000;

/// Programs on a bench. To be used in the bench's namespace.
pub struct Programs<'b> {
    bench: &'b Bench,
    shelf: TestPublisher,
    tier: ProgramTier,
    counted: Vec<u64>,
    /// Kernel connections that the trace has opened.
    sockets: Vec<OwnedFd>,
}

impl<'b> Programs<'b> {
    /// The programs of a bench with this tier.
    pub fn new(bench: &'b Bench, tier: ProgramTier) -> Programs<'b> {
        let shelf = TestPublisher::new(&bench.level);
        let counted = bench.level.counters().expect("counters");
        Programs {
            bench,
            shelf,
            tier,
            counted,
            sockets: Vec::new(),
        }
    }

    fn publish(&mut self, name: &str, edition: u8, lives_ns: u64) {
        let one = Response::named(name);
        let what = one.prepare(edition);
        for key in one.keys() {
            self.shelf.publish(&self.bench.level, &key, &what, lives_ns);
        }
    }
}

impl TraceTarget for Programs<'_> {
    fn frame(&mut self, frame: &[u8]) -> FrameEffect {
        let did = self.bench.run(frame);
        // TC sets no mark, but a counter shows the punt.
        let handed = |name: &str| name == "tcp_not_handed";
        if self.tier == ProgramTier::Tc && did == FrameEffect::Pass {
            let now = self.bench.level.counters().expect("counters");
            let changed = |at: &usize| now[*at] != self.counted[*at] && handed(REASONS[*at].0);
            if (0..now.len()).any(|at| changed(&at)) {
                return FrameEffect::Up;
            }
        }
        did
    }

    fn take_reasons(&mut self) -> Vec<String> {
        let now = self.bench.level.counters().expect("counters");
        let before = std::mem::replace(&mut self.counted, now);
        let changed = REASONS
            .iter()
            .zip(before)
            .zip(&self.counted)
            .filter(|((_, before), now)| before != *now);
        // A test run has no TC ingress hook, so connections can't be assigned to a listener.
        let names = changed
            .map(|((reason, _), _)| reason.0.to_owned())
            .filter(|name| name != "tcp_not_handed");
        names.collect()
    }

    fn state(&mut self, is_v6: bool, port: u16) -> String {
        let found = self.bench.connection(is_v6, port);
        match found.map(|(_, _, connection)| u32::from(connection.state)) {
            None | Some(layout::STATE_OVER) => "-",
            Some(layout::STATE_OPEN) => "OPEN",
            Some(layout::STATE_CLOSING) => "CLOSING",
            Some(layout::STATE_DONE) => "DONE",
            Some(layout::STATE_HANDED) => "HANDED",
            Some(layout::STATE_KERNEL) => "KERNEL",
            Some(layout::STATE_ASKED) => "ASKED",
            Some(_) => "unknown",
        }
        .to_owned()
    }

    fn migrates_in_second_program(&self) -> bool {
        self.tier == ProgramTier::Xdp
    }

    fn carry_out(&mut self, words: &[&str], is_v6: bool, port: u16) -> bool {
        let level = &self.bench.level;
        match words {
            ["flights" | "unwrap"] => return true,
            ["kept", parts] => {
                let kept_parts_max = match self.tier {
                    ProgramTier::Tc => layout::KEPT_PARTS_MAX_TC,
                    ProgramTier::Xdp => layout::PARTS_MAX,
                };
                return parts.parse() == Ok(kept_parts_max);
            }
            ["publish", names @ ..] => names.iter().for_each(|name| self.publish(name, 0, HOUR_NS)),
            ["retire", name] => {
                let keys = Response::named(name).keys();
                keys.iter().for_each(|key| self.shelf.retire(level, key));
            }
            ["replace", name] => self.publish(name, 1, HOUR_NS),
            ["expire", name] => {
                let keys = Response::named(name).keys();
                keys.iter().for_each(|key| self.shelf.expire(level, key));
            }
            ["purge"] => {
                publisher::purge(level, &publisher::published(level)).expect("a grace period")
            }
            ["restart"] => self.shelf = TestPublisher::new(level),
            ["strict"] => level.prepare(0, 60, 1500).expect("keys"),
            ["learn"] => level
                .prepare(layout::SETTING_LEARN, 60, 1500)
                .expect("keys"),
            ["forget"] => self.bench.displace_half_open(),
            ["mode", "drain"] => level.set_mode(layout::MODE_DRAIN),
            ["mode", "serve"] => level.set_mode(layout::MODE_SERVE),
            ["mode", "off"] => level.set_mode(layout::MODE_OFF),
            ["rest"] => level.begin_bypass(u64::MAX, 0, 0),
            ["wake"] => level.wake(),
            ["sleep"] => level.fall_asleep().expect("a grace period"),
            // Beyond the limit of 30 s.
            ["stale"] => self.bench.beat(31_000_000_000),
            ["fresh"] => self.bench.beat(0),
            ["deny"] => {
                level.prepare(layout::SETTING_DENY, 60, 1500).expect("keys");
                self.bench.deny(is_v6);
            }
            ["ignore-cookies"] => level
                .prepare(layout::SETTING_IGNORE_COOKIES, 60, 1500)
                .expect("keys"),
            ["admit"] => {
                forget_admitted(level);
                level.set_admission(true);
            }
            ["rules"] => forget_admitted(level),
            ["exempt"] => level.exempt_port(port, true),
            ["nobody-listens"] => self.bench.set_listening(false),
            ["socket"] => {
                let isn = Some(script::CLIENT_ISN);
                self.sockets.push(leftover::connected(is_v6, port, isn));
            }
            ["old-socket", isn] => {
                let isn = script::CLIENT_ISN.wrapping_add(script::number(isn));
                self.sockets
                    .push(leftover::connected(is_v6, port, Some(isn)));
            }
            ["no-socket"] => self.sockets.drain(..).for_each(|socket| {
                // After a reset the kernel keeps no socket.
                let zero_linger = Some(std::time::Duration::ZERO);
                rustix::net::sockopt::set_socket_linger(&socket, zero_linger).expect("a socket");
            }),
            ["fin-wait"] => {
                let client = leftover::fin_wait(self.bench, is_v6, port);
                self.sockets.push(client);
            }
            ["time-wait", mark, stamped @ ..] => {
                let mark = script::CLIENT_ISN.wrapping_add(script::number(mark));
                leftover::time_wait(self.bench, is_v6, port, mark, !stamped.is_empty());
            }
            ["keep-time-wait"] => level.set_settings(layout::SETTING_KEEP_TIME_WAIT),
            ["hand-over"] => return !self.migrates_in_second_program(),
            ["ended"] => leftover::wait_for_no_socket(port),
            _ => panic!("no such act: {words:?}"),
        }
        true
    }

    fn reset(&mut self) {
        let level = &self.bench.level;
        self.sockets.clear();
        self.bench.set_listening(true);
        level.set_mode(layout::MODE_SERVE);
        level.prepare(0, 60, 1500).expect("keys");
        self.shelf = TestPublisher::new(level);
        self.bench.beat(0);
        self.bench.clear_half_open();
    }
}

/// Revokes all admissions, then waits until the programs' coarse clock has reached the current time.
fn forget_admitted(level: &SoftirqLevel) {
    use rustix::time::{ClockId, clock_gettime};
    level.forget_admitted(lowroad_softirq::now_ns());
    let now = clock_gettime(ClockId::Monotonic);
    while clock_gettime(ClockId::MonotonicCoarse) <= now {
        std::thread::yield_now();
    }
}
