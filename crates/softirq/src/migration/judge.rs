//! Judges from counters and samples whether migration works. Pure: uses no clock, maps or sockets.

use std::collections::{HashMap, HashSet};
use std::net::{Ipv6Addr, SocketAddrV6};

use crate::layout;

/// Number of units of `seen` for which a connection counts as active. A client without a reply retransmits after 0.2 s,
/// 0.6 s, 1.4 s, 3 s and so on.
pub const FRESH: u32 = 3;
/// A client has failed once it has retransmitted this often, each time in another second, and still has no socket. A
/// client that merely resets its connection is seen only once more.
const REPEATS: u32 = 2;
/// Limit of failed clients: this many without a successful one are no coincidence.
const FAILED_CLIENTS_MAX: usize = 4;
/// Limit of distinct client addresses that fell silent without getting a socket, if no migration succeeded in between:
/// the kernel probably resets their connections. A few clients that reset their connections themselves look the same.
const SILENT_CLIENTS_MAX: usize = 8;
/// Limit of refused segments within a second without a successful migration.
const REFUSED_MAX: u64 = 8;
/// Maximum number of remembered clients.
const SUSPECTS_MAX: usize = 1024;
/// Pause before migration is tried again: the first one, and the longest.
const PAUSE_MIN_S: u64 = 60;
const PAUSE_MAX_S: u64 = 3600;
const SECOND_NS: u64 = 1_000_000_000;

/// Counters read from the programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MigrationCounters {
    /// Segments from which the kernel was to create a socket.
    pub migrated: u64,
    /// Connections that were later seen to have a socket.
    pub succeeded: u64,
    /// Segments from which the kernel refused to create a socket.
    pub refused: u64,
}

/// A migrated connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigratedConnection {
    /// The client's address; IPv4 as `::ffff:a.b.c.d`.
    pub client: SocketAddrV6,
    /// The server's address.
    pub server: SocketAddrV6,
    /// Time of the connection's last segment.
    pub last_seen: u16,
    /// Whether the kernel has a socket for the connection.
    pub has_kernel_socket: bool,
}

type AddressPair = (SocketAddrV6, SocketAddrV6);

/// State of the judgement.
#[derive(Debug, Default)]
pub struct MigrationJudge {
    problem: layout::handover_problem,
    previous: Option<MigrationCounters>,
    /// Clients without a socket: time of the last segment, and number of retransmissions.
    suspects: HashMap<AddressPair, (u16, u32)>,
    /// Failed clients over IPv4 and over IPv6, since firewalls have separate rules for these.
    failed: [HashSet<AddressPair>; 2],
    /// Addresses of clients that fell silent without getting a socket.
    silent: HashSet<Ipv6Addr>,
    /// End of the pause during which migration is not tried.
    retry_ns: u64,
    pause_s: u64,
}

impl MigrationJudge {
    /// The current problem, one of `shared.h`.
    pub fn problem(&self) -> layout::handover_problem {
        self.problem
    }

    /// Length of the pause; `None` if the problem does not end after a pause.
    pub fn pause_s(&self) -> Option<u64> {
        let is_timed = self.problem != layout::HANDOVER_NO_COOKIES;
        is_timed.then_some(self.pause_s)
    }

    /// Whether connections must be sampled: some are suspect, or clearly fewer succeeded than were migrated.
    pub fn needs_samples(&self, counts: &MigrationCounters) -> bool {
        let (migrated, succeeded) = self.count_deltas(counts);
        !self.suspects.is_empty() || migrated > 0 && succeeded * 4 < migrated * 3
    }

    /// Handles the kernel's current settings. After a change, migration is tried again.
    pub fn settings(&mut self, has_cookies: bool, have_changed: bool) {
        if !has_cookies {
            self.problem = layout::HANDOVER_NO_COOKIES;
        } else if have_changed {
            self.problem = layout::HANDOVER_WORKS;
            self.pause_s = 0;
            self.reset_samples();
        }
    }

    /// Judges the last second. `has_socket` returns whether the connection between two addresses may have a socket.
    pub fn update(
        &mut self,
        counts: &MigrationCounters,
        connections: &[MigratedConnection],
        has_socket: impl Fn(&SocketAddrV6, &SocketAddrV6) -> bool,
        now_ns: u64,
    ) {
        let (migrated, succeeded) = self.count_deltas(counts);
        let previous = self.previous.replace(*counts).unwrap_or(*counts);
        if self.problem != layout::HANDOVER_WORKS {
            if self.problem != layout::HANDOVER_NO_COOKIES && now_ns >= self.retry_ns {
                self.problem = layout::HANDOVER_WORKS;
                self.reset_samples();
            }
            return;
        }
        // Clients that fell silent before a successful migration had other reasons.
        if succeeded > 0 {
            self.silent.clear();
        }
        self.track(connections, has_socket);
        if migrated == 0 && counts.refused > previous.refused + REFUSED_MAX {
            self.begin_pause(layout::HANDOVER_REFUSED, now_ns);
        } else if self.has_many_failures() || self.silent.len() >= SILENT_CLIENTS_MAX {
            self.begin_pause(layout::HANDOVER_NOT_TAKEN, now_ns);
        }
    }

    /// Updates the suspects, and the failed and silent clients, from a sample of connections.
    fn track(
        &mut self,
        connections: &[MigratedConnection],
        has_socket: impl Fn(&SocketAddrV6, &SocketAddrV6) -> bool,
    ) {
        for successful in connections
            .iter()
            .filter(|connection| connection.has_kernel_socket)
        {
            self.failed[family(successful)].clear();
            // Migration works, so the next problem starts with the shortest pause.
            self.pause_s = 0;
        }
        let mut old = std::mem::take(&mut self.suspects);
        for connection in connections
            .iter()
            .filter(|connection| !connection.has_kernel_socket)
        {
            let endpoints = (connection.client, connection.server);
            if self.failed[family(connection)].contains(&endpoints)
                || self.suspects.len() >= SUSPECTS_MAX
            {
                continue;
            }
            let (at, repeats) = old.remove(&endpoints).unwrap_or((connection.last_seen, 0));
            // Another segment from a client without a socket is a retransmission.
            let repeats = repeats + u32::from(at != connection.last_seen);
            if repeats < REPEATS {
                self.suspects
                    .insert(endpoints, (connection.last_seen, repeats));
            } else if !has_socket(&connection.client, &connection.server) {
                self.failed[family(connection)].insert(endpoints);
            }
        }
        // Suspects that are missing in this sample and have no socket have fallen silent.
        let vanished = old
            .keys()
            .filter(|(client, server)| !has_socket(client, server));
        let room = SUSPECTS_MAX.saturating_sub(self.silent.len());
        self.silent
            .extend(vanished.map(|(client, _)| *client.ip()).take(room));
    }

    /// Whether too many clients have failed. After a pause, half as many suffice.
    fn has_many_failures(&self) -> bool {
        let limit = if self.pause_s == 0 {
            FAILED_CLIENTS_MAX
        } else {
            FAILED_CLIENTS_MAX / 2
        };
        self.failed.iter().any(|failed| failed.len() >= limit)
    }

    fn begin_pause(&mut self, problem: layout::handover_problem, now_ns: u64) {
        self.problem = problem;
        // Exponential backoff, since each attempt makes some clients wait in vain.
        self.pause_s = (self.pause_s * 2).clamp(PAUSE_MIN_S, PAUSE_MAX_S);
        self.retry_ns = now_ns + self.pause_s * SECOND_NS;
        self.reset_samples();
    }

    fn reset_samples(&mut self) {
        self.suspects.clear();
        self.silent.clear();
        self.failed.iter_mut().for_each(HashSet::clear);
    }

    /// Numbers of connections migrated and succeeded since the last sample.
    fn count_deltas(&self, counts: &MigrationCounters) -> (u64, u64) {
        let previous = self.previous.unwrap_or(*counts);
        (
            counts.migrated.saturating_sub(previous.migrated),
            counts.succeeded.saturating_sub(previous.succeeded),
        )
    }
}

fn family(connection: &MigratedConnection) -> usize {
    usize::from(connection.client.ip().to_ipv4_mapped().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_NS: u64 = 1_000 * SECOND_NS;

    fn seen(port: u16, seen: u16, has_kernel_socket: bool) -> MigratedConnection {
        let end = |address: &str, port| SocketAddrV6::new(address.parse().expect("v6"), port, 0, 0);
        MigratedConnection {
            client: end("::ffff:10.0.0.1", port),
            server: end("::ffff:10.0.0.2", 80),
            last_seen: seen,
            has_kernel_socket,
        }
    }

    /// Simulates a second in which these connections were sampled; none of them has a socket.
    fn second(judge: &mut MigrationJudge, at: u64, all: &[MigratedConnection]) {
        let counts = MigrationCounters {
            migrated: at * 100,
            ..MigrationCounters::default()
        };
        let is_tried = judge.problem() == layout::HANDOVER_WORKS;
        assert!(all.is_empty() || at == 0 || !is_tried || judge.needs_samples(&counts));
        judge.update(&counts, all, |_, _| false, NOW_NS + at * SECOND_NS);
    }

    fn unanswered(at: u16) -> Vec<MigratedConnection> {
        (1..=4).map(|port| seen(port, at, false)).collect()
    }

    #[test]
    fn retransmissions_without_a_socket_pause_migration() {
        let mut judge = MigrationJudge::default();
        for at in 0..3 {
            assert_eq!(judge.problem(), layout::HANDOVER_WORKS, "{at}");
            second(
                &mut judge,
                at,
                &unanswered(u16::try_from(at).expect("small")),
            );
        }
        assert_eq!(judge.problem(), layout::HANDOVER_NOT_TAKEN);
        assert_eq!(judge.pause_s(), Some(60));
        // After the pause migration is tried again, and then two failed clients suffice.
        // The pause of 60 s began in second 2.
        second(&mut judge, 61, &[]);
        assert_eq!(judge.problem(), layout::HANDOVER_NOT_TAKEN);
        second(&mut judge, 63, &[]);
        assert_eq!(judge.problem(), layout::HANDOVER_WORKS);
        for at in 70..73 {
            second(
                &mut judge,
                at,
                &unanswered(u16::try_from(at).expect("small"))[..2],
            );
        }
        assert_eq!(judge.problem(), layout::HANDOVER_NOT_TAKEN);
        assert_eq!(judge.pause_s(), Some(120));
        judge.settings(true, true);
        assert_eq!(judge.problem(), layout::HANDOVER_WORKS);
    }

    #[test]
    fn silent_clients_and_clients_with_a_socket_are_no_failures() {
        let mut judge = MigrationJudge::default();
        // Seen only once more, like a client that resets its connection.
        for at in 0..10 {
            second(&mut judge, at, &unanswered(u16::from(at > 3)));
        }
        assert_eq!(judge.problem(), layout::HANDOVER_WORKS);
        let mut judge = MigrationJudge::default();
        for at in 0..10u16 {
            let counts = MigrationCounters {
                migrated: u64::from(at) * 100,
                ..MigrationCounters::default()
            };
            judge.update(&counts, &unanswered(at), |_, _| true, NOW_NS);
        }
        assert_eq!(judge.problem(), layout::HANDOVER_WORKS);
    }

    #[test]
    fn success_clears_failures_of_the_same_address_family() {
        let to_v6 = |mut one: MigratedConnection| {
            one.client.set_ip("2001:db8::1".parse().expect("v6"));
            one
        };
        for is_v6 in [false, true] {
            let mut judge = MigrationJudge::default();
            // In each second one more client over one family fails, while another one over IPv4 succeeds.
            for at in 0..20u16 {
                let ports = at.saturating_sub(2)..=at;
                let unanswered = ports.map(|port| seen(port, at, false));
                let unanswered = unanswered.map(|one| if is_v6 { to_v6(one) } else { one });
                let all: Vec<MigratedConnection> =
                    unanswered.chain([seen(100, at, true)]).collect();
                second(&mut judge, at.into(), &all);
            }
            let is_paused = judge.problem() == layout::HANDOVER_NOT_TAKEN;
            assert_eq!(is_paused, is_v6);
        }
    }

    #[test]
    fn silent_clients_pause_migration_unless_others_succeed() {
        for succeeds in [false, true] {
            let mut judge = MigrationJudge::default();
            for at in 0..12u16 {
                // Another client address each second.
                let mut one = seen(9, at, false);
                one.client
                    .set_ip(Ipv6Addr::from(u128::from(at) + (0xffff << 32)));
                let counts = MigrationCounters {
                    migrated: u64::from(at),
                    succeeded: u64::from(succeeds && at > 5),
                    ..MigrationCounters::default()
                };
                judge.update(&counts, &[one], |_, _| false, NOW_NS);
            }
            let is_paused = judge.problem() == layout::HANDOVER_NOT_TAKEN;
            assert_eq!(is_paused, !succeeds);
        }
    }

    #[test]
    fn refusals_pause_migration_and_missing_syncookies_stop_it() {
        let mut judge = MigrationJudge::default();
        let refused = |refused| MigrationCounters {
            refused,
            ..MigrationCounters::default()
        };
        // Nine refusals within a second exceed the limit of eight.
        judge.update(&refused(0), &[], |_, _| false, NOW_NS);
        judge.update(&refused(9), &[], |_, _| false, NOW_NS);
        assert_eq!(judge.problem(), layout::HANDOVER_REFUSED);
        judge.settings(false, true);
        assert_eq!(judge.problem(), layout::HANDOVER_NO_COOKIES);
        assert_eq!(judge.pause_s(), None);
        judge.update(&refused(9), &[], |_, _| false, u64::MAX);
        assert_eq!(judge.problem(), layout::HANDOVER_NO_COOKIES);
        judge.settings(true, true);
        assert_eq!(judge.problem(), layout::HANDOVER_WORKS);
    }
}
