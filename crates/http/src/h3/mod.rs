//! HTTP/3 as a state machine without I/O: `H3Server` receives requests and sends responses. It knows streams as ordered
//! bytes that may end, and neither packets nor encryption. A [`StreamId`] is the QUIC identifier of a request stream divided
//! by 4; `next`, `handle_abort`, `next_unblocked` and `StopReading` use the QUIC identifier.
//!
//! A request is the version-neutral [`crate::Request`], and the rules for it are those of [`crate::h2`]. The difference
//! to HTTP/2: each stream has its own input and output, and QUIC does flow control, so that there are no windows here.
//!
//! ```text
//!  Server  Request ─► Data* ─► End                           any number of streams at the same time;
//!          interim()* respond() ─► body()* ─► end_body()     Reset is possible at any time ─► release_reset_stream()
//!          send() ─► NextData: `len` bytes of this stream's body must follow   } until None
//! ```
//!
//! # Duties of the caller
//! - **Input**: received bytes of all streams that the client opens are passed to `H3Server::next`, and the end with
//!   them. Each call may consume a part. Only bytes behind a field section that waits for the dynamic table are not
//!   consumed: they are passed again when `H3Server::next_unblocked` returns the stream. RESET_STREAM and STOP_SENDING
//!   are passed to `H3Server::handle_abort`.
//! - **Output**: `H3Turn::control` and `H3Turn::decoder` are written to two unidirectional streams, opened at the first
//!   byte. Bytes that methods append to `out` belong to the stream of the request. The QUIC stream ends after a head without
//!   a body, and with the bytes of a `NextData` that is the last one. A stream without flow-control window is reported
//!   with `H3Server::set_blocked`.
//! - **Aborts**: after `H3ServerEvent::Reset` both directions of the QUIC stream are aborted with the code; after
//!   `H3ServerEvent::StopReading`, and for the streams of `H3Server::next_stopped`, STOP_SENDING is sent. After an error
//!   the connection is closed with its code.
//! - **Limits**: QUIC allows `H3Settings::streams_max` concurrent requests, and a few unidirectional streams.
//! - **Drain**: `H3Server::drain`, then `H3Server::send_final_goaway` after a round trip. The connection ends when
//!   `H3Server::is_finished` and all output is acknowledged.
//!
//! # Floods
//! As in [`crate::h2`], excesses end the connection, here with H3_EXCESSIVE_LOAD: streams that end early, legal but
//! useless frames, insertions into the dynamic table without requests, and incomplete field sections.
//!
//! Read RFC 9114, RFC 9204 (QPACK), RFC 9218 (priorities), RFC 9220 (extended CONNECT).

mod control;
mod data_send;
mod error;
mod exchanges;
mod request_frames;
mod request_messages;
mod response_head;
mod server;
mod server_protocol;
mod settings;
mod stream_input;
#[cfg(test)]
mod tests;
mod unidirectional;
mod written_head;

pub mod frames;
pub mod qpack;
pub mod varint;

use alloc::vec::Vec;

pub use self::data_send::QueuedStream;
pub use self::error::{ErrorScope, H3Error, H3ErrorCode};
pub use self::response_head::{
    FieldSection, H3HeadInProgress, LazySection, put_encoded, put_fields, put_lines,
};
pub use self::server::{H3Server, H3ServerEvent};
pub use self::settings::{H3Settings, setting};
pub use self::written_head::decode_written_head;
pub use crate::field_section::StreamRequestHead;
pub use crate::h2::GlitchCounters;
pub use crate::protocol::{NextData, StreamId};
pub use crate::streams::Priority;

/// Bytes of a stream, in their order.
#[derive(Clone, Copy, Debug)]
pub struct StreamBytes<'b> {
    /// The bytes.
    pub bytes: &'b [u8],
    /// The stream ends after them.
    pub is_end: bool,
}

/// How a client aborts a stream (RFC 9000 §3.5, §19.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAbort {
    /// RESET_STREAM: no more input follows.
    ResetStream,
    /// STOP_SENDING: output is not read.
    StopSending,
}

/// The arguments of each call that processes input.
#[derive(Debug)]
pub struct H3Turn<'t> {
    /// The monotonic time in ms.
    pub now_ms: u64,
    /// The settings, the same at each call.
    pub settings: &'t H3Settings,
    /// The output of the control stream.
    pub control: &'t mut Vec<u8>,
    /// The output of the QPACK decoder stream.
    pub decoder: &'t mut Vec<u8>,
    /// The counters of rare events.
    pub counters: &'t mut GlitchCounters,
}
