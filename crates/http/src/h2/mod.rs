//! HTTP/2 as a protocol between two ends, each a state machine without a socket: [`Server`] takes requests and gives
//! responses, [`Client`] the other way round. Received bytes go in and come out as events, which borrow from them; all that
//! is to be sent is written at the end of a buffer. Neither knows a clock, a site or what a body means.
//!
//! As in [`crate::h1`], what is not used of the input stays with the caller and is given again with what follows it, a request
//! is the neutral [`crate::Request`], and a response is status, fields and the length of its body. What is different is that
//! an exchange is named by its [`StreamId`], that there are many at a time, and that a body is sent when its turn has come:
//!
//! ```text
//!  Server  Request ─► Data* ─► End                           any number of streams at a time,
//!          interim()* respond() ─► body()* ─► end()          each Reset at any time ─► done()
//!          send() ─► Piece: so many bytes of this stream's body are to follow   } until None
//! ```
//!
//! # What the engine has to do
//! - **Name exchanges** by connection and [`StreamId`]. ALPN or the first bytes ([`PREFACE`]) select HTTP/2.
//! - **Read on** while responses are sent: windows, resets and new requests come then. `Connection::reads` is true unless more
//!   than some 64 KB of what was written here has not left; that is the peer's fault, and it waits.
//! - **Output**: everything written to the one buffer leaves in its order, whole. While something is being sent it becomes a
//!   part behind it. Responses write heads only. Once the input is used up, and whenever the socket has taken everything,
//!   [`Server::send`] is called until the buffer is as full as it should be (16 KB; for TLS pieces of 16,375 bytes fill a
//!   record); each [`Piece`] is filled by copying its bytes from the stream's parts, or by a reference to them as the
//!   next part. A `Part::Stream` says [`Server::body`] when bytes have come, [`Server::end`] at its end, and stays with its
//!   exchange instead of standing in the connection's line.
//! - **Request bodies**: `Incoming` of each stream; what is taken from it is told with [`Server::taken`]; a full one needs no
//!   pause, since the client has no window to go on. A body that nobody wants: [`Server::leave_body`].
//! - **Resets**: [`Event::Reset`] drops what waits (its `Pending`), and [`Server::done`] is called when the work has really
//!   ended: at once where dropping ends it, with the outcome where a helper goes on. Until then its slot is taken.
//! - **Refusals** are of a stream: [`Event::Refused`] is answered as `Service::refuse` does, and the connection goes on.
//! - **Upgrades**: an extended CONNECT has [`Head::protocol`], and is a GET with Upgrade for who answers;
//!   [`Server::open_tunnel`] says that there is one, and [`Event::Data`] and [`Server::body`] are its bytes.
//! - **Timeouts** as for HTTP/1: [`Server::is_new`] (the head's), [`Server::awaits_acknowledgement`], bodies by their pace,
//!   [`Server::is_blocked`] or an unread socket by the pace of sending, [`Server::is_idle`]. At its end [`Server::give_up`].
//! - **Drain**: [`Server::drain`], [`Server::leave`] a second later at most, and the connection ends when
//!   [`Server::is_over`] and all has left.
//! - One `text` buffer, [`Settings`] and [`Counters`] for a worker; the counters go to `status`.
//!
//! # Floods
//! What costs us more than the peer is bounded, and who goes beyond is sent GOAWAY with ENHANCE_YOUR_CALM: streams that end
//! before their time, by whomever ([`Settings::resets`]; a slot is free when its work has ended); frames of little use
//! ([`Settings::glitches`]; DATA that we send makes good for window updates); CONTINUATION and field sections by their
//! length; streams by their number; what is sent ahead by windows. What is acknowledged is counted among the glitches, so
//! the output that a peer can cause is bounded too.
//!
//! Read RFC 9113, RFC 7541 (HPACK), RFC 9218 (priorities), RFC 8441 (extended CONNECT).

mod client;
mod common;
mod connection;
mod control;
mod counters;
mod error;
mod forgotten;
mod head;
mod priority;
mod queue;
mod receiving;
mod respond;
mod section;
mod sending;
mod server;
mod settings;
mod streams;
mod window;

pub mod frame;
pub mod hpack;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

pub use self::client::{Ask, Client, ClientEvent, ResponseHead};
pub use self::connection::PREFACE;
pub use self::counters::Counters;
pub use self::error::{Code, Fault};
pub use self::head::Head;
pub use self::priority::Priority;
pub use self::respond::{Begun, Block, LazyBlock, put_encoded, put_fields, put_lines};
pub use self::sending::Piece;
pub use self::server::{Event, Server};
pub use self::settings::{Settings, id};
pub use crate::protocol::StreamId;

/// What a connection is given each time it is asked something.
#[derive(Debug)]
pub struct Turn<'t> {
    /// Monotonic ms.
    pub now_ms: u64,
    /// The same each time.
    pub settings: &'t Settings,
    /// Where what is to be sent is written.
    pub out: &'t mut Vec<u8>,
    /// Where is counted what should be rare.
    pub counters: &'t mut Counters,
}
