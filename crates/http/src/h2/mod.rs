//! HTTP/2 as two state machines without a socket: `H2Server` receives requests and sends responses, `H2Client` the
//! reverse. Received bytes are turned into events that borrow from them; all output is appended to a buffer. Clocks,
//! sites and the meaning of bodies belong to the caller.
//!
//! As in [`crate::h1`], unconsumed input stays with the caller, and is passed again together with the bytes that
//! follow; a request is the version-neutral [`crate::Request`]; a response is status, fields and the length of its
//! body. The difference: exchanges are identified by [`StreamId`], many are active at a time, and a body is sent when
//! its stream is scheduled:
//!
//! ```text
//!  Server  Request ─► Data* ─► End                           any number of streams at a time,
//!          interim()* respond() ─► body()* ─► end()          each Reset at any time ─► done()
//!          send() ─► Piece: so many bytes of this stream's body are to follow   } until None
//! ```
//!
//! # Duties of the engine
//! - **Exchanges** are identified by connection and [`StreamId`]. ALPN or the first bytes ([`PREFACE`]) select HTTP/2.
//! - **Reading continues** while responses are sent, because windows, resets and new requests arrive then. `reads` of
//!   the engine's connection is true unless more than about 64 KB written here is unsent; then the peer does not
//!   read, and has to wait.
//! - **Output**: all bytes written to the one buffer are sent completely and in order. While an earlier part is being
//!   sent, they become a part after it. Responses write heads only. When the input is consumed, and whenever the
//!   socket has accepted everything, `H2Server::send` is called until the buffer is full enough (16 KB; for TLS,
//!   pieces of 16,375 bytes fill a record). Each `NextData` is filled by copying its bytes from the stream's parts,
//!   or by a reference to them as the next part. A `BodyPart::Stream` calls `H2Server::body` when bytes arrive and
//!   `H2Server::end` at its end; it stays with its exchange instead of occupying the connection's output queue.
//! - **Request bodies**: one `RequestBodyStream` for each stream. Consumed bytes are reported with `H2Server::release_capacity`. A
//!   full one needs no pause, since the client has no window to send more. An unneeded body: `H2Server::leave_body`.
//! - **Resets**: `H2ServerEvent::Reset` drops the waiting work (its `Pending`). `H2Server::release_reset_stream` is called when the
//!   work has ended: at once if dropping ends it, or with its outcome if a helper continues. Until then the slot is
//!   occupied.
//! - **Refusals** concern one stream: `H2ServerEvent::Refused` is answered like `Service::refuse`, and the connection
//!   continues.
//! - **Upgrades**: an extended CONNECT has `H2RequestHead::protocol`, and is a GET with Upgrade for the handler;
//!   `H2Server::open_tunnel` accepts it; `H2ServerEvent::Data` and `H2Server::body` carry its bytes.
//! - **Timeouts** as for HTTP/1: `H2Server::is_new` (that of the head), `H2Server::awaits_acknowledgement`, bodies by
//!   their rate, `H2Server::is_blocked` or an unread socket by the rate of sending, `H2Server::is_idle`. Then
//!   `H2Server::end_with_error`.
//! - **Drain**: `H2Server::drain`, then `H2Server::send_final_goaway` at most a second later; the connection ends when
//!   `H2Server::is_over` and all output is sent.
//! - One `text` buffer, `H2Settings` and `GlitchCounters` for a worker; the counters are shown in `status`.
//!
//! # Floods
//! Work that costs this side more than the peer is bounded, and exceeding a bound ends the connection with
//! ENHANCE_YOUR_CALM: streams that end early for any reason (`H2Settings::resets`; a slot is free when its work has
//! ended); frames of little use (`H2Settings::glitches`; sent DATA compensates for window updates); CONTINUATION and
//! field sections by their length; streams by their number; data sent ahead by windows. Frames that are acknowledged
//! count as glitches, so that the output that a peer can cause is bounded, too.
//!
//! Read RFC 9113, RFC 7541 (HPACK), RFC 9218 (priorities), RFC 8441 (extended CONNECT).

mod client;
mod connection;
mod control;
mod counters;
mod data_receive;
mod data_send;
mod error;
mod field_section;
mod head;
mod priority;
mod queue;
mod reset_streams;
mod response_head;
mod server;
mod server_protocol;
mod settings;
mod streams;
mod window;

pub mod frame;
pub mod hpack;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

pub use self::client::{H2Client, H2ClientEvent, H2ResponseHead, OutgoingRequest};
pub use self::connection::PREFACE;
pub use self::counters::GlitchCounters;
pub use self::data_send::NextData;
pub use self::error::{ConnectionError, ErrorCode};
pub use self::head::H2RequestHead;
pub use self::priority::Priority;
pub use self::response_head::{
    FieldBlock, HeadInProgress, LazyBlock, put_encoded, put_fields, put_lines,
};
pub use self::server::{H2Server, H2ServerEvent};
pub use self::settings::{H2Settings, id};
pub use crate::protocol::StreamId;

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
