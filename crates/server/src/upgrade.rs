//! Upgrade: a new process takes over from a running one, without a failed request.
//!
//! ```text
//!  predecessor                          successor
//!  starts the program ────────────────► reads its configuration
//!  Socket, AdminSocket, …, Complete ──► prepares everything, accepts nothing
//!                    ◄───────────────── Ready, or Failed and the predecessor goes on
//!  Proceed ───────────────────────────►
//!  DiskReleased ──────────────────────► opens the disk cache, accepts from the same sockets
//!  closes its listeners, drains         answers
//!  LevelReleased ─────────────────────► attaches its level in the kernel
//! ```
//! Until `Proceed` the predecessor has changed nothing. Both processes have the same listening sockets, so the
//! connections that wait in them reach either process. The disk cache and the level in the kernel belong to one process
//! at a time.

pub mod control;
pub mod messages;
pub mod predecessor;
pub mod successor;
