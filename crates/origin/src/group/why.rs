//! Explanations of picks and members, for `explain`, status and logs.

use std::fmt;
use std::sync::Arc;

use super::MemberId;
use super::choose::By;
use super::member::{Counts, Standing};

/// The set of candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Healthy primary members.
    Primary,
    /// Healthy backups, because too few primary members are healthy.
    Backup,
    /// All members, because too few are healthy (panic routing).
    Panic,
}

impl Tier {
    /// The tier to try after all members of this one.
    pub(super) fn next(self) -> Option<Tier> {
        (self == Tier::Primary).then_some(Tier::Backup)
    }
}

/// The reason for a pick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Why {
    /// The set of candidates.
    pub tier: Tier,
    /// The policy's selection.
    pub by: By,
    /// The number of candidates.
    pub candidates: usize,
}

impl fmt::Display for Why {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.by {
            By::Only => to.write_str("the only one")?,
            By::Turn => to.write_str("its turn")?,
            By::LeastLoaded { load } => write!(to, "the fewest requests for its weight, {load}")?,
            By::LessOfTwo { load } => write!(to, "the less loaded of two drawn, {load} requests")?,
            By::Key { passed_over: 0 } => to.write_str("its key")?,
            By::Key { passed_over } => {
                write!(to, "its key, after {passed_over} with too much load")?
            }
        }
        let count = self.candidates;
        match self.tier {
            Tier::Primary => write!(to, "; {count} could be asked"),
            Tier::Backup => write!(to, "; a backup, because too few members are well"),
            Tier::Panic => write!(to, "; too few are well, so all {count} are asked"),
        }
    }
}

/// The reason why no member was picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoMember {
    /// The group is empty, or all members are draining.
    Empty,
    /// No member is healthy.
    AllDown,
    /// All healthy members have the maximum of requests.
    AllFull,
    /// All healthy members were tried.
    AllTried,
}

impl fmt::Display for NoMember {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            NoMember::Empty => "the group has no members",
            NoMember::AllDown => "no member is well",
            NoMember::AllFull => "all members have as many requests as they may",
            NoMember::AllTried => "all members were tried",
        })
    }
}

/// The health and counters of a member.
#[derive(Clone, Debug)]
pub struct Status {
    /// The member.
    pub member: MemberId,
    /// Its name.
    pub name: Arc<str>,
    /// Its full weight.
    pub weight: u32,
    /// Whether it is a backup.
    pub backup: bool,
    /// Its health.
    pub standing: Standing,
    /// Requests in progress.
    pub requests: u32,
    /// Of them, those that wait for a connection.
    pub pending: u32,
    /// Its counters.
    pub counts: Counts,
}
