//! The control queue: one command, sent when the device has begun and waited for. Nothing else uses it, so it is forgotten
//! afterwards; its memory stays the device's.
//!
//! Read first: VIRTIO 1.2, 5.1.6.5.

use super::queue::{NEXT, Ring, WRITE};
use super::transport::{Doorbell, Error, Transport, queue_len};
use crate::cpu::{Registers, in8};
use crate::heap;

/// Descriptors at most: a command takes two.
const LEN_MAX: u16 = 4;
/// Of multiple queues (5.1.6.5.5): the class, and the command that says how many pairs are used.
const MULTIPLE: u8 = 4;
const PAIRS: u8 = 0;
/// Class, command, number of pairs; the device's answer follows.
const COMMAND_LEN: usize = 4;
const DONE: u8 = 0;
/// What the device has not written yet.
const NO_ANSWER: u8 = 0xff;
/// Reads of a port, which take about a microsecond at least.
const POLLS_MAX: u32 = 1_000_000;

/// See the head of this file.
pub struct Control {
    ring: Ring,
    doorbell: Doorbell,
    memory: Registers,
}

impl Control {
    /// Makes the queue, before the device begins.
    pub fn open(device: &dyn Transport, queue: u16, has_events: bool) -> Result<Control, Error> {
        let len = queue_len(device, queue, LEN_MAX);
        if len < 2 {
            return Err("the device has no control queue");
        }
        let mut ring = Ring::new(len, has_events).ok_or("no memory for a queue")?;
        let memory = heap::pages(COMMAND_LEN + 1).ok_or("no memory for a command")?;
        ring.keep_quiet(0);
        let doorbell = device
            .open_queue(queue, &ring, None)
            .ok_or("the device takes no control queue")?;
        Ok(Control {
            ring,
            doorbell,
            // SAFETY: memory that is left to the device for good; nobody else knows of it.
            memory: unsafe { Registers::new(memory.as_ptr() as u64) },
        })
    }

    /// Tells the device, which has begun, how many pairs of queues are used.
    pub fn set_pairs(mut self, count: u16) -> Result<(), Error> {
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
            let _ = in8(0x61);
            self.ring.used_to() == 1
        };
        if !(0..POLLS_MAX).any(is_used) {
            return Err("the device does not answer the command for more queues");
        }
        match self.memory.read::<u8>(COMMAND_LEN) {
            DONE => Ok(()),
            _ => Err("the device refuses more queues"),
        }
    }
}
