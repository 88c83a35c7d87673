//! HTTP/1.1 as two state machines without I/O: `H1Server` receives requests and sends responses, `H1Client` sends
//! requests and receives responses. Received bytes are turned into events that borrow from them; heads and body framing
//! are appended to a buffer. Clocks, sites and the meaning of bodies belong to the caller.
//!
//! Input that is not consumed stays with the caller, and is passed again together with the bytes that follow.
//!
//! ```text
//!  Server  Request ─► Data* ─► End ─┐               Client  request() ─► data()* ─► end() ─┐
//!          interim()* respond() ─► data()* ─► end()         Interim* Response ─► Data* ─► End
//!            └──────────── the next request ──┘               └──────────── the next request ──┘
//!
//!  Request ─► finish_upgrade() ─► Data*, data()*            request_upgrade() ─► Interim* Upgraded ─► Data*, data()*
//! ```
//!
//! Read RFC 9112 §6 (bodies), §7.1 (chunks), §9 (connections); RFC 9110 §10.1.1 (Expect), §15.2 (interim responses).

mod client;
mod fields;
mod receive_body;
mod request;
mod response;
mod send_body;
mod server;
#[cfg(test)]
mod tests;
mod upgrade;

use crate::limits::RequestLimits;

pub use client::{H1Client, H1ClientEvent};
pub use fields::{put_encoded, put_fields};
pub(crate) use request::path_form;
pub use request::{H1RequestHead, first_line, head_complete, parse};
pub use response::{H1ResponseHead, ResponseFault, repair_head, repair_trailers};
pub use send_body::{BodyLen, BodyLengthMismatch};
pub use server::{H1Server, H1ServerEvent};
pub use upgrade::requested_upgrade;

/// The result of examining the input once.
#[derive(Debug)]
pub struct InputStep<E> {
    /// Bytes consumed from the start of the input.
    pub used: usize,
    /// The event encoded in the consumed bytes. If there is neither an event nor a consumed byte, more input is needed,
    /// or the output has to advance first.
    pub event: Option<E>,
}

impl<E> InputStep<E> {
    /// The input is not sufficient.
    pub(crate) const WAIT: InputStep<E> = InputStep {
        used: 0,
        event: None,
    };

    pub(crate) fn event(used: usize, event: E) -> InputStep<E> {
        InputStep {
            used,
            event: Some(event),
        }
    }

    pub(crate) fn used(used: usize) -> InputStep<E> {
        InputStep { used, event: None }
    }
}

/// Whether a partial head, of which the first `parsed_len` bytes were parsed, should be parsed again: when its end may
/// have arrived, when it has reached its limit, and every 256 bytes, so that malformed heads are detected early.
fn is_due(input: &[u8], parsed_len: usize, limits: &RequestLimits) -> bool {
    input.len() >= limits.head_len_max
        // A malformed head is found after at most 256 further bytes.
        || input.len() / 256 != parsed_len / 256
        || head_complete(input, parsed_len)
}
