//! Child processes of the server: start, messages, restart, end.
//!
//! | child | started by | messages | restart | end |
//! |---|---|---|---|---|
//! | applications (FastCGI servers, origins) | [`supervisor`] | lines to the log | [`backoff`] | SIGTERM, later SIGKILL, to the group |
//! | the process that starts CGI programs | `gateway::cgi::spawner` | `message::PacketChannel` | with the next program | end of the channel |
//! | CGI programs | that process, under [`limits`] | pipes | none | SIGTERM, later SIGKILL, to the group |
//! | processes of modules | `module_host` | [`message::stream`] | [`backoff`], and a spare | SIGKILL |
//! | the helper that opens files for root | `privileges::helper` | `message::PacketChannel` | none | end of the channel |
//! | the level of the server and its daemon | `server::softirq::{own, attach::keep}` | `message::PacketChannel` | [`backoff`] | end of the channel |
//! | server and level of `attach --worker` | `server::softirq::worker::keep` | none | [`backoff`] | SIGTERM |
//! | QEMU | `server::image::qemu` | QMP | none | its power button, later SIGKILL |
//!
//! In a server, the thread of [`launcher`] starts all of them. Two other modules handle children themselves.
//! `server::init` is process 1 of a container and reaps all orphans, including those that it has not started, so it does
//! not wait for a particular child. `acme::hook` awaits a command and its output on tokio.

#![deny(unsafe_code)]

pub mod backoff;
pub mod descriptors;
pub mod launcher;
pub mod limits;
pub mod message;
pub mod process;
pub mod supervisor;

use std::sync::Arc;

/// Receives lines for the operator: the output of a program, and messages about its end.
pub type ChildNotice = Arc<dyn Fn(&str) + Send + Sync>;
