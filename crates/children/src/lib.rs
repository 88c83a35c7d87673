//! Child processes of the server: start, messages, restart, end.
//!
//! | child | started by | messages | restart | end |
//! |---|---|---|---|---|
//! | applications (FastCGI servers, origins) | [`supervisor`] | lines to the log | [`backoff`] | SIGTERM, later SIGKILL, to the group |
//! | the process that starts CGI programs | `gateway::cgi::spawner` | [`message::Channel`] | with the next program | end of the channel |
//! | CGI programs | that process, under [`limits`] | pipes | none | SIGTERM, later SIGKILL, to the group |
//! | processes of modules | `module_host` | [`message::stream`] | [`backoff`], and a spare | SIGKILL |
//! | the helper that opens files for root | `privileges::helper` | [`message::Channel`] | none | end of the channel |
//! | the level of the server and its daemon | `server::softirq::{own, attach::keep}` | [`message::Channel`] | [`backoff`] | end of the channel |
//! | server and level of `attach --worker` | `server::softirq::worker::keep` | none | [`backoff`] | SIGTERM |
//! | QEMU | `server::image::qemu` | its own | none | its power button, later SIGKILL |
//!
//! Two keepers stand apart. `server::init` is process 1 of a container and reaps whatever ends there, also what it has not
//! started, so it waits for no child in particular; `acme::hook` awaits one command with its output on tokio, once.
//!
//! Knows nothing of requests, configurations and logs.

#![deny(unsafe_code)]

pub mod backoff;
pub mod descriptors;
pub mod limits;
pub mod message;
pub mod process;
pub mod supervisor;

use std::sync::Arc;

/// Takes lines that operators should see: what a program writes, and how it ended.
pub type Notice = Arc<dyn Fn(&str) + Send + Sync>;
