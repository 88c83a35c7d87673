//! The streams of HTTP/2: their flow-control windows.

use super::window::FlowControlWindow;
use crate::streams::{MessageStream, StreamTable};
pub(super) use crate::streams::{StreamInput, StreamOutput, UNKNOWN};

/// A stream with its windows.
pub(super) type H2Stream = MessageStream<StreamWindows>;
/// The streams of a connection.
pub(super) type H2StreamTable = StreamTable<StreamWindows>;

/// The flow control of a stream.
#[derive(Debug)]
pub(super) struct StreamWindows {
    /// The window for sending.
    pub(super) send_window: i32,
    /// The window for receiving.
    pub(super) window: FlowControlWindow,
    /// Bytes that were received, but not returned to the window.
    pub(super) unconsumed: u32,
    /// When to reset a lingering stream; `None` before the first check after its response.
    pub(super) linger_until_ms: Option<u64>,
}

impl H2Stream {
    /// Whether the stream could send, if the connection's window allows it.
    pub(super) fn can_send(&self) -> bool {
        let has_window = self.ready > 0 && self.transport.send_window > 0;
        // An empty DATA frame with END_STREAM needs no window (RFC 9113 §6.9.1).
        self.output == StreamOutput::Body && (has_window || self.ready == 0 && self.is_complete)
    }
}
