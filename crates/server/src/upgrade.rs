//! Upgrade: a new process takes over from a running one, without a failed request.
//!
//! ```text
//!  predecessor                          successor
//!  starts the program ────────────────► reads its configuration
//!  Socket, AdminSocket, …, Complete ──► prepares, accepts no connections
//!                    ◄───────────────── Ready, or Failed and the predecessor continues
//!  Proceed ───────────────────────────►
//!  DiskReleased ──────────────────────► opens the disk cache, accepts from the same sockets
//!  LevelReleased ─────────────────────► attaches its level in the kernel
//!  DatagramsReleased ─────────────────► receives datagrams, and relays those of the predecessor's connections
//!  closes its listeners, drains         answers
//!                    ◄───────────────── DenyList, whenever the list changes
//! ```
//! Until `Proceed` the predecessor is unchanged, and refuses changes by operators, which the successor would not know. Both
//! processes have the same listening sockets, so the connections that wait in them reach either process. The disk cache and
//! the level in the kernel belong to one process at a time, and so do received datagrams: two receivers would split
//! handshakes between them.

pub mod control;
mod datagrams;
pub mod deny_forwarding;
pub mod messages;
pub mod predecessor;
pub mod successor;
pub mod takeover_gate;
