//! TCP (RFC 9293). `input` processes segments, and `ack` their acknowledgements; `output` sends; `timers` handles
//! deadlines; `listener` and `syn_sent` establish connections.

pub(crate) mod ack;
pub(crate) mod congestion;
pub(crate) mod connection;
pub(crate) mod end;
pub(crate) mod half_open;
pub(crate) mod input;
pub(crate) mod listener;
pub(crate) mod output;
pub(crate) mod queue;
pub(crate) mod receive_data;
pub(crate) mod rtt;
pub(crate) mod sack;
pub(crate) mod segment;
pub(crate) mod stateless_reply;
pub(crate) mod syn_sent;
pub(crate) mod table;
pub(crate) mod time_wait;
pub(crate) mod timers;
