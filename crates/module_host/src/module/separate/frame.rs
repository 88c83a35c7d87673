//! What a server and the process of a module say to each other: a length of 4 bytes, little end
//! first, and a message in postcard's form. Both are the same program, so that no version is told.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Bytes of a message: more than a response that is held, and what belongs to it.
pub const FRAME_LEN_MAX: usize = 64 << 20;

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
        head: Box<Head>,
    },
    /// Something happened to a call.
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
    /// The worker that gets it.
    pub fn worker(&self) -> usize {
        match self {
            ToModule::Start { .. } => 0,
            ToModule::Request { worker, .. } | ToModule::Event { worker, .. } => *worker,
        }
    }
}

/// From the process to the server.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToServer {
    /// The answer to the first message.
    Started(Result<(), String>),
    /// The module had a request or an event.
    Handled { call: u64, handled: Box<Handled> },
    /// Somebody used a call's ticket.
    Continued { call: u64 },
    /// A line for the log.
    Line { level: u32, text: String },
}

/// A request without its body.
#[derive(Debug, Serialize, Deserialize)]
pub struct Head {
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

/// What a module said and asked for in one event.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Handled {
    pub next: i32,
    pub status: u16,
    pub fields: Vec<(String, serde_bytes::ByteBuf)>,
    #[serde(with = "serde_bytes")]
    pub before: Vec<u8>,
    pub stored: Option<(serde_bytes::ByteBuf, serde_bytes::ByteBuf)>,
    pub flushed: bool,
    pub timer_ms: Option<u32>,
    pub fetches: Vec<serde_bytes::ByteBuf>,
    /// It has not read all of the body that it got.
    pub body_held: bool,
}

/// A message with its length before it; `None` if it is too long.
pub fn encode(message: &impl Serialize) -> Option<Vec<u8>> {
    let mut frame = postcard::to_extend(message, vec![0; 4]).ok()?;
    let len = frame.len() - 4;
    if len > FRAME_LEN_MAX {
        return None;
    }
    frame[..4].copy_from_slice(&u32::try_from(len).ok()?.to_le_bytes());
    Some(frame)
}

/// A message of these bytes, which came after their length.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    postcard::from_bytes(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// The length that these bytes say.
pub fn len_of(bytes: [u8; 4]) -> io::Result<usize> {
    let len = u32::from_le_bytes(bytes) as usize;
    if len > FRAME_LEN_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a message is too long",
        ));
    }
    Ok(len)
}

/// Reads one message and waits for it.
pub fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<T> {
    let mut len = [0; 4];
    from.read_exact(&mut len)?;
    let mut bytes = vec![0; len_of(len)?];
    from.read_exact(&mut bytes)?;
    decode(&bytes)
}

/// Writes one message and waits for it to be taken.
pub fn write(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let frame = encode(message);
    to.write_all(&frame.ok_or_else(|| io::Error::other("a message is too long"))?)
}
