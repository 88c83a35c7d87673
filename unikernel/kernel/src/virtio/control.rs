//! The control queue. It is used for one command, once the device has started, and never afterwards; its memory stays
//! the device's.
//!
//! Read first: VIRTIO 1.2, 5.1.6.5.

use super::queue::{NEXT, VirtQueue, WRITE};
use super::transport::{QueueDoorbell, VirtioError, VirtioTransport, queue_len};
use crate::cpu::{DeviceRegisters, in8};
use crate::heap;

/// Maximum number of descriptors; a command takes two.
const LEN_MAX: u16 = 4;
/// Multiqueue (5.1.6.5.5): the command's class, and the command that sets the number of queue pairs.
const MULTIPLE: u8 = 4;
const PAIRS: u8 = 0;
/// Class, command, number of pairs; the device's reply follows.
const COMMAND_LEN: usize = 4;
const DONE: u8 = 0;
/// Placeholder of a reply that the device has not written yet.
const NO_ANSWER: u8 = 0xff;
/// Number of port reads to wait for a reply; each takes at least about a microsecond.
const POLLS_MAX: u32 = 1_000_000;

/// The control queue.
pub struct ControlQueue {
    ring: VirtQueue,
    doorbell: QueueDoorbell,
    memory: DeviceRegisters,
}

impl ControlQueue {
    /// Creates the queue; to be called before the device starts.
    pub fn open(
        device: &dyn VirtioTransport,
        queue: u16,
        has_events: bool,
    ) -> Result<ControlQueue, VirtioError> {
        let len = queue_len(device, queue, LEN_MAX);
        // A command takes two descriptors, for the request and the reply.
        if len < 2 {
            return Err("the device has no control queue");
        }
        let mut ring = VirtQueue::new(len, has_events).ok_or("no memory for a queue")?;
        let memory = heap::pages(COMMAND_LEN + 1).ok_or("no memory for a command")?;
        ring.suppress_interrupts(0);
        let doorbell = device
            .open_queue(queue, &ring, None)
            .ok_or("the device rejects the control queue")?;
        Ok(ControlQueue {
            ring,
            doorbell,
            // SAFETY: memory that belongs to the device permanently; no Rust object is there.
            memory: unsafe { DeviceRegisters::new(memory.as_ptr() as u64) },
        })
    }

    /// Sends the number of queue pairs in use to the device, which must have started.
    pub fn set_pairs(mut self, count: u16) -> Result<(), VirtioError> {
        let [low, high] = count.to_le_bytes();
        for (n, byte) in [MULTIPLE, PAIRS, low, high, NO_ANSWER]
            .into_iter()
            .enumerate()
        {
            self.memory.write(n, byte);
        }
        let address = self.memory.address();
        self.ring.describe(0, address, COMMAND_LEN as u32, NEXT, 1);
        self.ring
            .describe(1, address + COMMAND_LEN as u64, 1, WRITE, 0);
        self.ring.offer(0, 0);
        if self.ring.publish(0, 1) {
            self.doorbell.ring();
        }
        let is_used = |_| {
            // Under a hypervisor, a port read exits to the hypervisor, which lets the device proceed.
            let _ = in8(0x61);
            self.ring.used_position() == 1
        };
        if !(0..POLLS_MAX).any(is_used) {
            return Err("the device does not respond to the command for more queues");
        }
        match self.memory.read::<u8>(COMMAND_LEN) {
            DONE => Ok(()),
            _ => Err("the device refuses more queues"),
        }
    }
}
