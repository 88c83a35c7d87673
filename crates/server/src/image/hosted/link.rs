//! The network device below the hosted image's stack: one queue of a tap device.

use lowroad_engine::tap::{Left, Tap};
use lowroad_net::{Frame, Link, Offload};

/// A tap device. This system's kernel completes checksums and segments large frames.
pub struct TapLink(pub Tap);

impl Link for TapLink {
    fn send(&mut self, frame: &Frame<'_>) {
        let head_len = u16::try_from(frame.head.len()).unwrap_or(u16::MAX);
        let left = Left {
            sum: frame.partial_sum,
            cut: frame.cut_len.map(|segment_len| (head_len, segment_len)),
        };
        self.0.send([frame.head, frame.copied, frame.lasting], left);
    }

    fn offload(&self) -> Offload {
        Offload {
            sum: true,
            segmentation: true,
        }
    }
}
