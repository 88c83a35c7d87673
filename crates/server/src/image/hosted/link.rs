//! The network device of the hosted image: one queue of a tap device.

use lowroad_engine::tap_device::{TapDevice, TapOffload};
use lowroad_net::{DeviceOffload, LinkDevice, OutgoingFrame};

/// A queue of a tap device. The host's kernel completes checksums and segments large frames.
pub struct TapLink(pub TapDevice);

impl LinkDevice for TapLink {
    fn send(&mut self, frame: &OutgoingFrame<'_>) {
        let head_len = u16::try_from(frame.head.len()).unwrap_or(u16::MAX);
        let tap_offload = TapOffload {
            checksum_at: frame.partial_sum,
            segmentation: frame.segment_len.map(|segment_len| (head_len, segment_len)),
        };
        self.0
            .send([frame.head, frame.copied, frame.static_bytes], tap_offload);
    }

    fn offload(&self) -> DeviceOffload {
        DeviceOffload {
            sum: true,
            segmentation: true,
        }
    }
}
