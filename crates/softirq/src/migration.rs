//! Migration watch: detects whether the kernel accepts migrated connections. The programs can't see that: a firewall
//! behind them may drop segments of connections if it has not seen their SYN, and clients would wait forever. The
//! daemon therefore looks up migrated connections in the kernel's tables; while these connections get no socket, all
//! connections are left to the kernel from their SYN on. `judge` decides; this module collects the input and applies
//! the decision.

mod judge;

use std::net::SocketAddrV6;

use lowroad_wire::width::index;

use crate::clock::units_since;
use crate::error::LevelError;
use crate::layout;
use crate::level::SoftirqLevel;
use crate::level::connections::endpoints;
use crate::machine::netlink::{self, KernelSocket};
use crate::machine::tcp_settings::{self, TcpSettings};

use judge::{MigratedConnection, MigrationCounters, MigrationJudge};

/// The reason for which connections are left to the kernel, and the remedy; `None` if migration works.
#[must_use]
pub fn describe(problem: layout::handover_problem) -> Option<&'static str> {
    match problem {
        layout::HANDOVER_WORKS => None,
        layout::HANDOVER_NO_COOKIES => Some(
            "net.ipv4.tcp_syncookies is 0, so the kernel refuses migrated connections: sysctl -w \
             net.ipv4.tcp_syncookies=1",
        ),
        layout::HANDOVER_NOT_TAKEN => Some(
            "migrated connections do not reach the server: a firewall drops or resets connections \
             whose SYN it has not seen (sysctl -w net.netfilter.nf_conntrack_tcp_loose=1, or a \
             rule that accepts the port before the rule against new connections without SYN)",
        ),
        _ => Some(
            "the kernel refuses migrated connections (check for a Multipath TCP listener, and for \
             disabled net.ipv4.tcp_* settings)",
        ),
    }
}

/// The watch, which takes a sample every second.
#[derive(Debug, Default)]
pub struct MigrationWatch {
    judge: MigrationJudge,
    settings: Option<TcpSettings>,
}

impl MigrationWatch {
    /// Checks the settings and the migrated connections. Returns a message for the operator, if any.
    ///
    /// # Errors
    /// If counters can't be read.
    pub fn check(
        &mut self,
        level: &SoftirqLevel,
        now_ns: u64,
    ) -> Result<Option<String>, LevelError> {
        let settings = TcpSettings::read();
        let current = level.control().settings;
        // Sysctls may change while the level runs.
        if current & tcp_settings::BITS != settings.bits() {
            level.set_settings(current & !tcp_settings::BITS | settings.bits());
        }
        // `is_tracking` varies with the traffic, so it does not count as a change of settings.
        let set = TcpSettings {
            is_tracking: false,
            ..settings
        };
        let have_changed = self.settings.replace(set) != Some(set);
        let counts = counts(level)?;
        let needs_samples = self.judge.needs_samples(&counts);
        // Walking the connection table is expensive, so it is done only on suspicion.
        let connections = if needs_samples {
            sample_connections(level, now_ns)
        } else {
            Vec::new()
        };
        let has_socket = |client: &SocketAddrV6, server: &SocketAddrV6| {
            // A failed query is no evidence of a missing socket.
            !matches!(
                netlink::socket_of(*server, *client),
                Ok(KernelSocket::Listener)
            )
        };
        let previous = self.judge.problem();
        let has_cookies = settings.cookies != Some(0);
        self.judge.settings(has_cookies, have_changed);
        self.judge.update(&counts, &connections, has_socket, now_ns);
        let now = self.judge.problem();
        if level.control().handover_broken != now {
            level.set_handover(now);
        }
        Ok((now != previous).then(|| self.message(now, previous)))
    }

    fn message(&self, now: layout::handover_problem, previous: layout::handover_problem) -> String {
        match (describe(now), self.judge.pause_s(), previous) {
            (Some(reason), Some(pause_s), _) => format!(
                "{reason}; all connections are left to the kernel; the next attempt is in {pause_s} \
                 s, or when these settings change"
            ),
            (Some(reason), None, _) => {
                format!("{reason}; until then all connections are left to the kernel")
            }
            (None, _, _) => "connections are answered and migrated again".to_owned(),
        }
    }
}

fn counts(level: &SoftirqLevel) -> Result<MigrationCounters, LevelError> {
    let counters = level.counters()?;
    let count = |reason| counters[index(reason)];
    Ok(MigrationCounters {
        migrated: count(layout::reason_tcp_handed),
        succeeded: count(layout::reason_tcp_kept),
        refused: count(layout::reason_tcp_not_handed),
    })
}

/// Connections that have migrated and were active recently.
fn sample_connections(level: &SoftirqLevel, now_ns: u64) -> Vec<MigratedConnection> {
    let mut found = Vec::new();
    for entry in level.entries() {
        let age = u32::from(units_since(now_ns, entry.seen));
        let state = u32::from(entry.state);
        let is_migrating = state == layout::STATE_HANDED;
        // Connections that the kernel owned from the start have no handshake by this level.
        let has_kernel_socket = state == layout::STATE_KERNEL && entry.handshake != 0;
        if age <= judge::FRESH && (is_migrating || has_kernel_socket) {
            let (server, client) = endpoints(&entry.tuple);
            found.push(MigratedConnection {
                client,
                server,
                last_seen: entry.seen,
                has_kernel_socket,
            });
        }
    }
    found
}
