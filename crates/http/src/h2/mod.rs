//! HTTP/2 as two state machines without I/O: `H2Server` receives requests and sends responses, `H2Client` sends
//! requests and receives responses. Received bytes are turned into events that borrow from them; all output is appended
//! to a buffer. Clocks, sites and the meaning of bodies belong to the caller.
//!
//! As in [`crate::h1`], unconsumed input stays with the caller, and is passed again together with the bytes that
//! follow; a request is the version-neutral [`crate::Request`]; a response is status, fields and the length of its
//! body. The difference: exchanges are identified by [`StreamId`], many are active at the same time, and a body is sent
//! when its stream is scheduled:
//!
//! ```text
//!  Server  Request ─► Data* ─► End                           any number of streams at the same time;
//!          interim()* respond() ─► body()* ─► end()          Reset is possible at any time ─► release_reset_stream()
//!          send() ─► NextData: `len` bytes of this stream's body must follow   } until None
//! ```
//!
//! # Duties of the engine
//! - **Exchanges** are identified by connection and [`StreamId`]. ALPN or the first bytes ([`PREFACE`]) select HTTP/2.
//! - **Reading continues** while responses are sent, because window updates, resets and new requests arrive then. Only
//!   if more than about 64 KB of this side's output is unsent, the engine's connection stops reading: then the peer
//!   does not read either, and has to wait.
//! - **Output**: all bytes written to the output buffer are sent completely and in order. While an earlier part is
//!   being sent, new bytes become the next part. Responses write heads only. When the input is consumed, and whenever
//!   the socket has accepted everything, `H2Server::send` is called until the buffer is full enough (16 KB; for TLS,
//!   pieces of 16,375 bytes fill a record). The bytes of each `NextData` are copied from the parts of the stream's
//!   body, or referenced as the next part. A `BodyPart::Stream` calls `H2Server::body` when bytes arrive and
//!   `H2Server::end` at its end; it stays with its exchange instead of occupying the connection's output queue.
//! - **Request bodies**: one `RequestBodyStream` for each stream. Consumed bytes are reported with
//!   `H2Server::release_capacity`. A full `RequestBodyStream` need not stop reading, since the client has no window to
//!   send more. An unwanted body is dropped with `H2Server::discard_body`.
//! - **Resets**: `H2ServerEvent::Reset` cancels the pending work of the stream. `H2Server::release_reset_stream` is
//!   called when the work has ended: immediately if cancelling ends it, or with its outcome if a helper thread
//!   continues. Until then the slot is occupied.
//! - **Refusals** concern one stream: `H2ServerEvent::Refused` is answered by `HttpService::refuse`, and the connection
//!   continues.
//! - **Upgrades**: an extended CONNECT has `H2RequestHead::protocol`, and is a GET with Upgrade for the handler.
//!   `H2Server::open_tunnel` accepts it; `H2ServerEvent::Data` and `H2Server::body` carry the bytes of the tunnel.
//! - **Timeouts** as for HTTP/1: the timeout of the head applies while `H2Server::is_new`; the SETTINGS timeout while
//!   `H2Server::awaits_acknowledgement`; bodies have a minimum rate; so has sending while `H2Server::is_blocked` or the
//!   socket accepts nothing; the idle timeout applies while `H2Server::is_idle`. `H2Server::end_with_error` ends the
//!   connection.
//! - **Drain**: `H2Server::drain`, then `H2Server::send_final_goaway` at most a second later. The connection ends when
//!   `H2Server::is_finished` and all output is sent.
//! - Each worker has one `text` buffer, `H2Settings` and `GlitchCounters`; the counters are shown in `status`.
//!
//! # Floods
//! Work that costs this side more than the peer is bounded, and exceeding a bound ends the connection with
//! ENHANCE_YOUR_CALM: streams that end early for any reason (`H2Settings::resets`; a slot becomes free when the work
//! for its stream has ended); legal but useless frames (`H2Settings::glitches`; sent DATA compensates for window
//! updates); the length of field sections with their CONTINUATION frames; the number of streams; by windows, the data
//! that a client sends ahead. Frames that are acknowledged count as glitches, so that the output that a peer can cause
//! is bounded.
//!
//! Read RFC 9113, RFC 7541 (HPACK), RFC 9218 (priorities), RFC 8441 (extended CONNECT).

mod client;
mod connection;
mod control;
mod counters;
mod data_receive;
mod data_send;
mod error;
mod reset_streams;
mod response_head;
mod server;
mod server_protocol;
mod settings;
mod streams;
mod window;
mod written_head;

pub mod frame;
pub mod hpack;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

pub use self::client::{H2Client, H2ClientEvent, H2ResponseHead, OutgoingRequest};
pub use self::connection::PREFACE;
pub use self::counters::GlitchCounters;
pub use self::error::{ConnectionError, ErrorCode};
pub use self::response_head::{
    FieldBlock, HeadInProgress, LazyBlock, put_encoded, put_fields, put_lines,
};
pub use self::server::{H2Server, H2ServerEvent};
pub use self::settings::{H2Settings, id};
pub use self::written_head::decode_written_head;
pub use crate::field_section::StreamRequestHead as H2RequestHead;
pub use crate::protocol::{NextData, StreamId};
pub use crate::streams::Priority;

/// The arguments of each call to a connection.
#[derive(Debug)]
pub struct ConnectionTurn<'t> {
    /// The monotonic time in ms.
    pub now_ms: u64,
    /// The settings, the same at each call.
    pub settings: &'t H2Settings,
    /// The output buffer.
    pub out: &'t mut Vec<u8>,
    /// The counters of rare events.
    pub counters: &'t mut GlitchCounters,
}
