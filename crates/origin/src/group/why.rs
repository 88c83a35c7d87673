//! What is said of picks and members, for `explain`, status and logs.

use std::fmt;
use std::sync::Arc;

use super::MemberId;
use super::choose::By;
use super::member::{Counts, Standing};

/// Among whom was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Members that are well.
    Primary,
    /// Backups, because too few members are well.
    Backup,
    /// All, because too few are well.
    Panic,
}

impl Tier {
    /// Who is asked when all of these were tried.
    pub(super) fn next(self) -> Option<Tier> {
        (self == Tier::Primary).then_some(Tier::Backup)
    }
}

/// Why a member was picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Why {
    /// Among whom.
    pub tier: Tier,
    /// By what.
    pub by: By,
    /// How many might have been.
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

/// Why none was picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoMember {
    /// There is none, or all are drained.
    Empty,
    /// None is well.
    AllDown,
    /// Who is well has as many requests as it may.
    AllFull,
    /// Who is well was tried.
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

/// How a member stands, and what it did.
#[derive(Clone, Debug)]
pub struct Status {
    /// It.
    pub member: MemberId,
    /// How it is called.
    pub name: Arc<str>,
    /// What it weighs when it has all of its weight.
    pub weight: u32,
    /// It stands in for others.
    pub backup: bool,
    /// How it stands.
    pub standing: Standing,
    /// Requests that it has.
    pub requests: u32,
    /// Of them, those that wait for a connection.
    pub pending: u32,
    /// What it did.
    pub counts: Counts,
}
