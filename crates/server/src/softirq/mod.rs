//! The commands for the softirq level, such as attaching it to a port, detaching it, and showing its state. The crate
//! `lowroad-softirq` implements the level itself.
//!
//! Each command is a module. The other modules do not depend on commands: `attach` (the daemon's process), `policy`
//! (the options of one `attach`), `managed_level` (the link between a Lowroad server and its level) and `level_view` (a
//! level's state).

mod advice;
mod answer_shares;
pub mod attach;
mod clients;
mod detach;
mod doctor;
mod explain;
mod json;
mod level_lock;
mod level_pages;
mod level_view;
mod levels;
pub mod managed_level;
mod namespace;
mod policy;
mod purge;
mod status;
mod upper_server;
mod url_hits;
pub mod worker;

pub use attach::attach;
pub use detach::detach;
pub use doctor::doctor;
pub use explain::explain;
pub use level_pages::LevelPages;
pub use purge::purge;
pub use status::{level_values, status};
