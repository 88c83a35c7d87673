//! The receiving queue: buffers for frames, which are passed on without copying.

use core::ptr::NonNull;

use lowroad_net::ReceivedFrame;

use super::queue::{VirtQueue, WRITE};
use super::transport::{QueueDoorbell, VirtioError, VirtioTransport, queue_len};
use crate::heap;

/// Maximum number of buffers.
const BUFFERS_MAX: u16 = 256;
/// Bytes of a buffer: a frame of 1,514 bytes and the virtio header.
const BUFFER_LEN: usize = 2048;
/// Bytes of the virtio header before a frame.
pub const HEAD_LEN: usize = 12;
/// Flags of a frame with a good checksum: the checksum is still partial, so the frame comes from this host; or the
/// device has verified it.
const SUM_IS_GOOD: u8 = 1 | 2;

/// The receiver of a pair of queues.
pub struct FrameReceiver {
    ring: VirtQueue,
    doorbell: QueueDoorbell,
    buffers: NonNull<u8>,
    /// The position up to which frames were taken.
    consumed: u16,
    /// The position up to which the device is known to have returned buffers.
    last_used: u16,
    /// The positions up to which buffers are offered, and published.
    offered: u16,
    published: u16,
    /// Received frames.
    pub frames: u64,
    /// Invalid values from the device.
    pub invalid_values: u64,
}

impl FrameReceiver {
    /// Creates the queue of pair number `pair`, with the interrupt of that number. `FrameReceiver::refill` must follow
    /// the device's start.
    pub fn open(
        device: &dyn VirtioTransport,
        pair: u16,
        has_events: bool,
    ) -> Result<FrameReceiver, VirtioError> {
        let queue = 2 * pair;
        let len = queue_len(device, queue, BUFFERS_MAX);
        if len == 0 {
            return Err("the device has no receive queue");
        }
        let mut ring = VirtQueue::new(len, has_events).ok_or("no memory for a queue")?;
        let buffers = heap::pages(usize::from(len) * BUFFER_LEN).ok_or("no memory for buffers")?;
        for n in 0..len {
            let address = buffers.as_ptr() as u64 + u64::from(n) * BUFFER_LEN as u64;
            ring.describe(n, address, BUFFER_LEN as u32, WRITE, 0);
            ring.offer(n, n);
        }
        let doorbell = device
            .open_queue(queue, &ring, Some(pair))
            .ok_or("the device rejects the receive queue")?;
        Ok(FrameReceiver {
            ring,
            doorbell,
            buffers,
            consumed: 0,
            last_used: 0,
            offered: len,
            published: 0,
            frames: 0,
            invalid_values: 0,
        })
    }

    /// The next frame, if there is one. Its buffer is offered again by the next `FrameReceiver::refill`.
    pub fn next(&mut self) -> Option<ReceivedFrame<'_>> {
        loop {
            // The shared index is read only after all known frames were taken: this saves cache misses.
            if self.consumed == self.last_used {
                self.last_used = self.ring.used_position();
                if self.consumed == self.last_used {
                    return None;
                }
            }
            let (n, len) = self.ring.used(self.consumed);
            self.consumed = self.consumed.wrapping_add(1);
            if n >= u32::from(self.ring.len()) {
                self.invalid_values += 1;
                continue;
            }
            self.ring.offer(self.offered, n as u16);
            self.offered = self.offered.wrapping_add(1);
            let len = len as usize;
            if !(HEAD_LEN..=BUFFER_LEN).contains(&len) {
                self.invalid_values += 1;
                continue;
            }
            self.frames += 1;
            // SAFETY: `n` is below the number of buffers and `len` within one. The device has returned the buffer and
            // gets it back by `refill`, which can't be called while the slice is borrowed.
            let bytes = unsafe {
                core::slice::from_raw_parts(self.buffers.as_ptr().add(n as usize * BUFFER_LEN), len)
            };
            return Some(ReceivedFrame {
                frame: &bytes[HEAD_LEN..],
                sum_is_good: bytes[0] & SUM_IS_GOOD != 0,
            });
        }
    }

    /// Publishes the buffers of all taken frames.
    pub fn refill(&mut self) {
        if self.published != self.offered {
            if self.ring.publish(self.published, self.offered) {
                self.doorbell.ring();
            }
            self.published = self.offered;
        }
    }

    /// Requests an interrupt for the next frame. Returns true if a frame has already arrived.
    pub fn wake(&mut self) -> bool {
        self.ring.wake_at(self.consumed)
    }

    /// Suppresses interrupts while the core is awake. With EVENT_IDX no interrupt is sent before the next request.
    pub fn on_wake(&mut self) {
        if !self.ring.has_events() {
            self.ring.suppress_interrupts(self.consumed);
        }
    }
}
