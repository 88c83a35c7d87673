//! The transmitting queue. Each descriptor has a buffer for copied parts; static payload is read by the device in
//! place. Used descriptors are reclaimed only when free ones run short.

use core::ptr::NonNull;

use lowroad_net::{DeviceOffload, LinkDevice, OutgoingFrame};

use super::queue::{NEXT, VirtQueue};
use super::receive_queue::HEAD_LEN;
use super::transport::{QueueDoorbell, VirtioError, VirtioTransport, queue_len};
use crate::heap;

/// Maximum number of descriptors.
const LEN_MAX: usize = 256;
/// Mask for indices into the arrays here, which spares the compiler's bounds checks.
const MASK: usize = LEN_MAX - 1;
/// Bytes of a descriptor's buffer: a frame of 1,514 bytes and the header fit.
const BUFFER_LEN: usize = 2048;
/// Flag: the device completes a checksum.
const NEEDS_SUM: u64 = 1;
/// Segmentation type: TCP over IPv4.
const GSO_TCPV4: u64 = 1;
/// Offset of the checksum in the TCP header.
const TCP_SUM_AT: u32 = 16;
/// The longest frame for segmentation: an IPv4 packet and its Ethernet header.
const FRAME_MAX: usize = 65_535 + 14;

/// The sender of a pair of queues.
pub struct FrameSender {
    ring: VirtQueue,
    doorbell: QueueDoorbell,
    buffers: NonNull<u8>,
    offload: DeviceOffload,
    /// The first `free_len` entries are free descriptors.
    free: [u16; LEN_MAX],
    free_len: usize,
    /// For each descriptor: the next one of its frame, or itself for the last.
    next_in_chain: [u16; LEN_MAX],
    /// For each descriptor: whether it begins a frame that the device has.
    is_frame_start: [bool; LEN_MAX],
    consumed: u16,
    offered: u16,
    published: u16,
    /// Frames given to the device.
    pub frames: u64,
    /// Dropped frames: the queue was full, or they were too long.
    pub dropped: u64,
    /// Invalid values from the device.
    pub invalid_values: u64,
}

impl FrameSender {
    /// Creates the queue of pair number `pair`.
    pub fn open(
        device: &dyn VirtioTransport,
        pair: u16,
        has_events: bool,
        offload: DeviceOffload,
    ) -> Result<FrameSender, VirtioError> {
        let queue = 2 * pair + 1;
        let len = queue_len(device, queue, LEN_MAX as u16);
        if len < 2 {
            return Err("the device has no transmit queue");
        }
        let mut ring = VirtQueue::new(len, has_events).ok_or("no memory for a queue")?;
        let buffers = heap::pages(usize::from(len) * BUFFER_LEN).ok_or("no memory for buffers")?;
        ring.suppress_interrupts(0);
        let doorbell = device
            .open_queue(queue, &ring, None)
            .ok_or("the device rejects the transmit queue")?;
        Ok(FrameSender {
            ring,
            doorbell,
            buffers,
            offload,
            // Taken from the end, so that descriptor 0 is first.
            free: core::array::from_fn(|n| len.wrapping_sub(1).wrapping_sub(n as u16)),
            free_len: usize::from(len),
            next_in_chain: [0; LEN_MAX],
            is_frame_start: [false; LEN_MAX],
            consumed: 0,
            offered: 0,
            published: 0,
            frames: 0,
            dropped: 0,
            invalid_values: 0,
        })
    }

    /// Publishes the sent frames, and notifies the device if it has requested that.
    pub fn flush(&mut self) {
        if self.published != self.offered {
            if self.ring.publish(self.published, self.offered) {
                self.doorbell.ring();
            }
            self.published = self.offered;
        }
    }

    /// Reclaims the descriptors of frames that the device has sent.
    fn reap(&mut self) {
        let to = self.ring.used_position();
        while self.consumed != to {
            let (first, _) = self.ring.used(self.consumed);
            self.consumed = self.consumed.wrapping_add(1);
            let mut n = first as u16;
            // An invalid id would add descriptors that the device still uses to the free list.
            if first >= u32::from(self.ring.len()) || !self.is_frame_start[usize::from(n) & MASK] {
                self.invalid_values += 1;
                continue;
            }
            self.is_frame_start[usize::from(n) & MASK] = false;
            loop {
                self.free[self.free_len & MASK] = n;
                self.free_len += 1;
                let next = self.next_in_chain[usize::from(n) & MASK];
                if next == n {
                    break;
                }
                n = next;
            }
        }
        // Used descriptors are polled, so no interrupts are wanted.
        self.ring.suppress_interrupts(self.consumed);
    }

    /// Takes a free descriptor; there must be one.
    fn take_free(&mut self) -> u16 {
        self.free_len -= 1;
        self.free[self.free_len & MASK]
    }

    fn address(&self, n: u16) -> *mut u8 {
        // SAFETY: descriptor numbers are below the number of buffers.
        unsafe { self.buffers.as_ptr().add(usize::from(n) * BUFFER_LEN) }
    }

    /// Copies as much of `part` as fits into the buffer of `n` from offset `at` on; the device must not have the
    /// buffer. Returns the end of the copied bytes, and the rest of `part`.
    fn fill<'p>(&mut self, n: u16, at: usize, part: &'p [u8]) -> (usize, &'p [u8]) {
        let (now, later) = part.split_at(part.len().min(BUFFER_LEN - at));
        // SAFETY: within the buffer.
        unsafe {
            self.address(n)
                .add(at)
                .copy_from_nonoverlapping(now.as_ptr(), now.len())
        }
        (at + now.len(), later)
    }

    fn link(&mut self, n: u16, next: u16, address: u64, len: usize) {
        self.next_in_chain[usize::from(n) & MASK] = next;
        self.ring.describe(
            n,
            address,
            len as u32,
            if next == n { 0 } else { NEXT },
            next,
        );
    }

    /// Ends a chain in the buffer of `n`, or with a descriptor for the static payload.
    fn end(&mut self, n: u16, filled: usize, static_bytes: &'static [u8]) {
        let address = self.address(n) as u64;
        if static_bytes.is_empty() {
            self.link(n, n, address, filled);
        } else {
            let last = self.take_free();
            self.link(n, last, address, filled);
            self.link(last, last, static_bytes.as_ptr() as u64, static_bytes.len());
        }
    }

    /// Copies a frame that exceeds one buffer into a chain of buffers that begins with that of `n`. There must be
    /// enough descriptors.
    #[cold]
    fn chain(&mut self, mut n: u16, frame: &OutgoingFrame<'_>) {
        let mut at = HEAD_LEN;
        for mut part in [frame.head, frame.copied] {
            loop {
                (at, part) = self.fill(n, at, part);
                if part.is_empty() {
                    break;
                }
                let next = self.take_free();
                self.link(n, next, self.address(n) as u64, at);
                (n, at) = (next, 0);
            }
        }
        self.end(n, at, frame.static_bytes);
    }
}

impl LinkDevice for FrameSender {
    fn send(&mut self, frame: &OutgoingFrame<'_>) {
        let copied_len = HEAD_LEN + frame.head.len() + frame.copied.len();
        let needed = copied_len / BUFFER_LEN + 2;
        if self.free_len < needed {
            self.reap();
        }
        if self.free_len < needed || copied_len - HEAD_LEN + frame.static_bytes.len() > FRAME_MAX {
            self.dropped += 1;
            return;
        }
        let first = self.take_free();
        let (buffer, (low, high)) = (self.address(first), head(frame));
        // SAFETY: the first bytes of a buffer that the device does not have; buffers are aligned to 2048.
        unsafe {
            buffer.cast::<u64>().write(low);
            buffer.add(8).cast::<u32>().write(high);
        }
        if copied_len <= BUFFER_LEN {
            // SAFETY: both parts fit the buffer.
            unsafe {
                let target = buffer.add(HEAD_LEN);
                target.copy_from_nonoverlapping(frame.head.as_ptr(), frame.head.len());
                if !frame.copied.is_empty() {
                    let target = target.add(frame.head.len());
                    target.copy_from_nonoverlapping(frame.copied.as_ptr(), frame.copied.len());
                }
            }
            self.end(first, copied_len, frame.static_bytes);
        } else {
            self.chain(first, frame);
        }
        self.is_frame_start[usize::from(first) & MASK] = true;
        self.ring.offer(self.offered, first);
        self.offered = self.offered.wrapping_add(1);
        self.frames += 1;
    }

    fn offload(&self) -> DeviceOffload {
        self.offload
    }
}

/// The virtio header of a frame (VIRTIO 1.2, 5.1.6): flags, segmentation type, length of the headers, length of a
/// segment, start of the checksum; then the offset of the checksum field, and zero buffers.
fn head(frame: &OutgoingFrame<'_>) -> (u64, u32) {
    let Some(tcp_at) = frame.partial_sum else {
        return (0, 0);
    };
    let mut first = NEEDS_SUM | u64::from(tcp_at) << 48;
    if let Some(segment_len) = frame.segment_len {
        let words = frame
            .head
            .get(usize::from(tcp_at) + 12)
            .map_or(5, |offset| offset >> 4);
        let headers_len = u64::from(tcp_at) + u64::from(words) * 4;
        first |= GSO_TCPV4 << 8 | headers_len << 16 | u64::from(segment_len) << 32;
    }
    (first, TCP_SUM_AT)
}
