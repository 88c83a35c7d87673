//! HTTP/1.1 as a protocol between two ends, each a state machine without a socket: [`Server`] takes requests and gives
//! responses, [`Client`] the other way round. Received bytes go in and come out as events, which borrow from them; heads
//! and the framing of bodies are written at the end of a buffer. Neither knows a clock, a site or what a body means.
//!
//! What is not used of the input stays with the caller and is given again with what follows it.
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
mod incoming;
mod outgoing;
mod request;
mod response;
mod server;
#[cfg(test)]
mod tests;
mod upgrade;

use crate::limits::Limits;

pub use client::{Client, ClientEvent};
pub use fields::{put_encoded, put_fields};
pub use outgoing::{BodyLen, Broken};
pub(crate) use request::path_form;
pub use request::{Head, first_line, head_complete, parse};
pub use response::{Fault, ResponseHead, mend_head, mend_trailers};
pub use server::{Event, Server};
pub use upgrade::upgrade_asked;

/// What one look at the input gave.
#[derive(Debug)]
pub struct Step<E> {
    /// Bytes of the input that were used, from its start.
    pub used: usize,
    /// What they meant. Without an event and with nothing used, more input is needed, or the other direction has to
    /// move first.
    pub event: Option<E>,
}

impl<E> Step<E> {
    /// Nothing can be done with this input.
    const WAIT: Step<E> = Step {
        used: 0,
        event: None,
    };

    fn event(used: usize, event: E) -> Step<E> {
        Step {
            used,
            event: Some(event),
        }
    }

    fn used(used: usize) -> Step<E> {
        Step { used, event: None }
    }
}

/// Whether a head of which the first `seen_len` bytes were looked at is worth another look: when its end may have come, or
/// it is at its limit, and every so often, to find early what can't become one.
fn is_due(input: &[u8], seen_len: usize, limits: &Limits) -> bool {
    input.len() >= limits.head_len_max
        || input.len() / 256 != seen_len / 256
        || head_complete(input, seen_len)
}
