//! Messages between a server and the process of a module.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// From the server to the process.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToModule {
    /// The first message.
    Start {
        name: String,
        library: PathBuf,
        settings: Vec<(String, String)>,
        workers: usize,
        response_len_max: usize,
    },
    /// A call begins.
    Request {
        call: u64,
        worker: usize,
        head: Box<CallHead>,
    },
    /// An event of a call.
    Event {
        call: u64,
        worker: usize,
        event: i32,
        number: u32,
        /// A fetch's status.
        status: u16,
        /// A part of the body, or a fetch's bytes.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
}

impl ToModule {
    /// The worker that receives it.
    pub fn worker(&self) -> usize {
        match self {
            ToModule::Start { .. } => 0,
            ToModule::Request { worker, .. } | ToModule::Event { worker, .. } => *worker,
        }
    }
}

/// From the process to the server.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromModule {
    /// The answer to the first message.
    Started(Result<(), String>),
    /// The module handled a request or an event.
    Handled { call: u64, handled: Box<EventReply> },
    /// A call's ticket was used.
    Continued { call: u64 },
    /// A line for the log.
    Line { level: u32, text: String },
}

/// A request without its body.
#[derive(Debug, Serialize, Deserialize)]
pub struct CallHead {
    pub method: String,
    pub http10: bool,
    #[serde(with = "serde_bytes")]
    pub target: Vec<u8>,
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    pub query: Option<serde_bytes::ByteBuf>,
    #[serde(with = "serde_bytes")]
    pub host: Vec<u8>,
    #[serde(with = "serde_bytes")]
    pub lines: Vec<u8>,
    pub peer: IpAddr,
    pub local: SocketAddr,
    pub root: PathBuf,
}

/// A module's output and requests for one event.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct EventReply {
    pub next: i32,
    pub status: u16,
    pub fields: Vec<(String, serde_bytes::ByteBuf)>,
    #[serde(with = "serde_bytes")]
    pub before: Vec<u8>,
    pub stored: Option<(serde_bytes::ByteBuf, serde_bytes::ByteBuf)>,
    pub flushed: bool,
    pub timer_ms: Option<u32>,
    pub fetches: Vec<serde_bytes::ByteBuf>,
    /// The module has not read all of the body that it got.
    pub body_held: bool,
}
