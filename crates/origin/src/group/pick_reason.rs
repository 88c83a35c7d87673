//! The reasons for picks, and the status of members, for `explain`, status reports and logs.

use std::fmt;
use std::sync::Arc;

use super::MemberId;
use super::member::{MemberCounters, MemberHealth, MemberMode};
use super::selection::SelectionReason;

/// The set of candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CandidateTier {
    /// Healthy primary members.
    Primary,
    /// Healthy backups, because too few primary members are healthy.
    Backup,
    /// All members, because too few are healthy (panic routing).
    Panic,
}

impl CandidateTier {
    /// The tier to try if all members of this tier were tried.
    pub(super) fn next(self) -> Option<CandidateTier> {
        (self == CandidateTier::Primary).then_some(CandidateTier::Backup)
    }
}

/// Why a member was picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PickReason {
    /// The set of candidates.
    pub tier: CandidateTier,
    /// How the policy selected the member.
    pub selected_by: SelectionReason,
    /// The number of candidates.
    pub candidates: usize,
}

impl fmt::Display for PickReason {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.selected_by {
            SelectionReason::Only => to.write_str("the only member")?,
            SelectionReason::Session => to.write_str("the server of the session")?,
            SelectionReason::RoundRobin => to.write_str("next in turn")?,
            SelectionReason::LeastLoaded { load } => {
                write!(to, "the fewest requests for its weight, {load}")?
            }
            SelectionReason::LessOfTwo { load } => {
                write!(to, "the less loaded of two random members, {load} requests")?
            }
            SelectionReason::Key { skipped: 0 } => to.write_str("selected by the key")?,
            SelectionReason::Key { skipped } => write!(
                to,
                "selected by the key, after {skipped} overloaded members"
            )?,
        }
        let count = self.candidates;
        match self.tier {
            CandidateTier::Primary => write!(to, "; {count} members available"),
            CandidateTier::Backup => write!(to, "; a backup, because too few members are healthy"),
            CandidateTier::Panic => {
                write!(to, "; too few members are healthy, so all {count} are used")
            }
        }
    }
}

/// Why no member was picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoMember {
    /// The group is empty.
    Empty,
    /// The operator drains all members, or has taken them out of service.
    AllOutOfService,
    /// No member is healthy.
    AllDown,
    /// All healthy members that were not tried have the maximum number of requests.
    AllFull,
    /// All healthy members were tried.
    AllTried,
}

impl fmt::Display for NoMember {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            NoMember::Empty => "the group has no members",
            NoMember::AllOutOfService => "all members are drained or out of service",
            NoMember::AllDown => "no member is healthy",
            NoMember::AllFull => "all members have the maximum number of requests",
            NoMember::AllTried => "all members have been tried",
        })
    }
}

/// The health and counters of a member.
#[derive(Clone, Debug)]
pub struct MemberStatus {
    /// The member.
    pub member: MemberId,
    /// The name.
    pub name: Arc<str>,
    /// The weight in force.
    pub weight: u32,
    /// The configured weight.
    pub configured_weight: u32,
    /// The operator's decision.
    pub mode: MemberMode,
    /// Whether the member is a backup.
    pub backup: bool,
    /// The health, also while the operator keeps the member out of rotation.
    pub health: MemberHealth,
    /// Requests in progress.
    pub requests: u32,
    /// How many of `requests` wait for a connection.
    pub pending: u32,
    /// The counters.
    pub counts: MemberCounters,
}
