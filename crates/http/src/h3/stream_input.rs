//! The state of a request stream in HTTP/3: its input, frames in parts of any size, and the frame of DATA that it sends.
//! Read RFC 9114 §4.1 and §7.1.
//!
//! ```text
//! FrameHead ──► Section ──► (decoded) ──► FrameHead              HEADERS; its part is kept until it is complete
//!     │            └──────► Blocked ────► FrameHead              it refers to entries that have not arrived
//!     ├───────► Data ────────────────────► FrameHead             passed on as it arrives
//!     └───────► Skipped ─────────────────► FrameHead             unknown types
//! ```

use alloc::vec::Vec;

use super::frames::PartialHead;

/// The expected part of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputPhase {
    FrameHead,
    /// The rest of a field section.
    Section {
        remaining: usize,
    },
    /// A whole field section waits for the dynamic table.
    Blocked {
        required: u64,
    },
    /// The rest of a DATA frame.
    Data {
        remaining: u64,
    },
    /// The rest of a frame of unknown type.
    Skipped {
        remaining: u64,
    },
}

/// The state that only streams of HTTP/3 have.
#[derive(Debug)]
pub(super) struct StreamInputState {
    pub(super) phase: InputPhase,
    pub(super) head: PartialHead,
    /// The received part of a field section, or a blocked one.
    pub(super) section: Vec<u8>,
    /// `H3ServerEvent::Request` or `H3ServerEvent::Refused` was returned.
    pub(super) has_request: bool,
    /// QUIC's flow control blocks the stream.
    pub(super) is_send_blocked: bool,
    /// The unsent rest of the last DATA frame.
    pub(super) frame_remaining: u64,
}

impl StreamInputState {
    pub(super) const NEW: StreamInputState = StreamInputState {
        phase: InputPhase::FrameHead,
        head: PartialHead::NONE,
        section: Vec::new(),
        has_request: false,
        is_send_blocked: false,
        frame_remaining: 0,
    };

    /// Whether the input may end here: between two frames.
    pub(super) fn is_between_frames(&self) -> bool {
        self.phase == InputPhase::FrameHead && !self.head.has_part()
    }
}
