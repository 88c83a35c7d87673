//! The commands for the softirq level: attach it to a port, detach it, show its state. The crate `lowroad-softirq`
//! implements the level.
//!
//! Each command is a module. The commands use `attach` (the daemon's process), `policy` (the options of one `attach`),
//! `managed_level` (the link between a Lowroad server and its level) and `level_view` (the visible state of a level),
//! which do not depend on commands.

mod upper_server;
mod advice;
pub mod attach;
mod clients;
mod detach;
mod doctor;
mod explain;
mod level_lock;
mod json;
mod levels;
mod namespace;
pub mod managed_level;
mod policy;
mod purge;
mod answer_shares;
mod status;
mod top;
mod level_view;
pub mod worker;

pub use attach::attach;
pub use detach::detach;
pub use doctor::doctor;
pub use explain::explain;
pub use purge::purge;
pub use status::status;
pub use top::top;
