//! Child processes of the server.
//!
//! [`message`] is what they and the server tell each other. [`supervisor`] keeps the applications of a configuration running. [`limits`] bounds what a program may use, and
//! [`descriptors`] remembers the limit of descriptors that programs get. Knows nothing of requests and of what children do.

#![deny(unsafe_code)]

pub mod descriptors;
pub mod limits;
pub mod message;
pub mod supervisor;

use std::sync::Arc;

/// Takes lines that operators should see: what a program writes, and how it ended.
pub type Notice = Arc<dyn Fn(&str) + Send + Sync>;
