//! Messages between the server and a module's process.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use lowroad_handler::request_label::RequestLabel;
use serde::{Deserialize, Serialize};

/// Messages from the server to the process.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToModule {
    /// The first message: starts the module.
    Start {
        name: String,
        library: PathBuf,
        settings: Vec<(String, String)>,
        workers: usize,
        response_len_max: usize,
    },
    /// Starts a call.
    Request {
        call: u64,
        worker: usize,
        head: Box<CallHead>,
    },
    /// Passes an event to a call.
    Event {
        call: u64,
        worker: usize,
        event: i32,
        number: u32,
        /// The status of a fetch.
        status: u16,
        /// A part of the body, or the content of a fetch.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
}

impl ToModule {
    /// The index of the worker that receives the message.
    pub fn worker(&self) -> usize {
        match self {
            ToModule::Start { .. } => 0,
            ToModule::Request { worker, .. } | ToModule::Event { worker, .. } => *worker,
        }
    }
}

/// Messages from the process to the server.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromModule {
    /// The reply to `Start`.
    Started(Result<(), String>),
    /// The reply to `Request` and `Event`: the module has processed the message.
    Handled { call: u64, handled: Box<EventReply> },
    /// The ticket of a call was used.
    Continued { call: u64 },
    /// A log line.
    Line {
        level: u32,
        text: String,
        /// The request that the line is about.
        request: Option<LineRequest>,
    },
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
    pub request_id: [u8; 16],
}

/// Identifies the request that a log line is about.
#[derive(Debug, Serialize, Deserialize)]
pub struct LineRequest {
    pub client: IpAddr,
    #[serde(with = "serde_bytes")]
    pub host: Vec<u8>,
    pub request_id: [u8; 16],
}

impl From<&RequestLabel> for LineRequest {
    fn from(label: &RequestLabel) -> LineRequest {
        LineRequest {
            client: label.client,
            host: label.host.to_vec(),
            request_id: label.request_id.to_be_bytes(),
        }
    }
}

impl From<LineRequest> for RequestLabel {
    fn from(request: LineRequest) -> RequestLabel {
        RequestLabel {
            client: request.client,
            host: request.host.into(),
            request_id: u128::from_be_bytes(request.request_id),
        }
    }
}

/// The output and requested operations of a module, for one event.
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
    /// Whether the module has unread bytes of the body.
    pub body_held: bool,
}
