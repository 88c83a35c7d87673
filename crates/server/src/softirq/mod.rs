//! The commands for the softirq level: attach it to a port, detach it, show its state. The crate `lowroad-softirq`
//! implements the level.
//!
//! Each command is a module. The commands use `attach` (the daemon's process), `policy` (the options of one `attach`),
//! `managed_level` (the link between a Lowroad server and its level) and `level_view` (the visible state of a level),
//! which do not depend on commands.

mod advice;
mod answer_shares;
pub mod attach;
mod clients;
mod detach;
mod doctor;
mod explain;
mod json;
mod level_lock;
mod level_view;
mod levels;
pub mod managed_level;
mod namespace;
mod policy;
mod purge;
mod status;
mod top;
mod upper_server;
pub mod worker;

pub use attach::attach;
pub use detach::detach;
pub use doctor::doctor;
pub use explain::explain;
pub use purge::purge;
pub use status::{level_values, status};
pub use top::top;
