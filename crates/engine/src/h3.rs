//! HTTP/3 connections: many concurrent exchanges, one on each stream of QUIC. Frame formats and limits on the cost of
//! a client are in [`lowroad_http::h3`], packets in a [`QuicTransport`](crate::quic_transport::QuicTransport); this module
//! passes the streams from one to the other. What it shares with HTTP/2 is in `multiplexed`.
//!
//! ```text
//!  QuicEvent::Bytes ─► H3Server::next ─► a request ─┬─ answered immediately ─► head: `StreamOutput`
//!                                                   │                     body: `UnframedResponses` ─┐  unsent rest
//!                                                   └─ deferred ─ outcome ─► …                       ├─► `RemainingBody`
//!  QuicTransport::write ◄─ `StreamOutput` ◄─ DATA frames, interleaved ◄─ H3Server::send ◄────────────┘
//! ```
//! Bodies are passed to QUIC in pieces of at most [`PIECE_LEN_MAX`] bytes, so that priorities decide about the rest. A
//! piece that QUIC does not take stays in the stream's output, and the stream is not selected until it is written.

mod deadlines;
mod input;
mod output;
pub(crate) mod ports;
pub(crate) mod state;

/// Maximum number of body bytes that one write passes to QUIC.
const PIECE_LEN_MAX: usize = 16 * 1024;
/// Body pieces up to this length are copied behind the frame's header; longer ones are passed without a copy.
const COPIED_LEN_MAX: usize = 4 * 1024;
