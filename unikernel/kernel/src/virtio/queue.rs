//! A split virtqueue: descriptors, available ring and used ring in shared memory. Values written by the device are
//! read once and checked by the caller.
//!
//! Read first: VIRTIO 1.2, 2.7.

use core::ptr::NonNull;
use core::sync::atomic::{Ordering, fence};

use crate::heap;

/// Flag: another descriptor follows.
pub const NEXT: u16 = 1;
/// Flag: the device writes to the buffer.
pub const WRITE: u16 = 2;

const NO_INTERRUPT: u16 = 1;
const NO_DOORBELL: u16 = 1;

/// A virtqueue's memory. Positions wrap at 65,536; a ring's index is the position modulo the length. The addresses of
/// the parts are precomputed, since this is the hottest code of the machine.
pub struct VirtQueue {
    descriptors: NonNull<u8>,
    available: NonNull<u8>,
    used: NonNull<u8>,
    /// The fields for the position at which the driver requests an interrupt, and for that at which the device requests
    /// a notification.
    wake_event: NonNull<u8>,
    doorbell_event: NonNull<u8>,
    /// The length minus one.
    mask: u16,
    has_events: bool,
}

impl VirtQueue {
    /// Creates a queue of `len` entries, a power of two of at most 32,768. Returns `None` if there is no memory.
    pub fn new(len: u16, has_events: bool) -> Option<VirtQueue> {
        if !len.is_power_of_two() {
            return None;
        }
        let entries = usize::from(len);
        let available_at = 16 * entries;
        // The entries of 8 bytes begin behind 4 bytes; they are aligned to 8, so that none crosses a cache line.
        let used_at = (available_at + 6 + 2 * entries).next_multiple_of(64) + 4;
        let base = heap::pages(used_at + 6 + 8 * entries)?;
        // SAFETY: all offsets are within the memory just allocated.
        let at = |offset| unsafe { base.add(offset) };
        Some(VirtQueue {
            descriptors: base,
            available: at(available_at),
            used: at(used_at),
            wake_event: at(available_at + 4 + 2 * entries),
            doorbell_event: at(used_at + 4 + 8 * entries),
            mask: len - 1,
            has_events,
        })
    }

    /// The number of entries.
    pub fn len(&self) -> u16 {
        self.mask + 1
    }

    /// Whether interrupts are requested by position (EVENT_IDX).
    pub fn has_events(&self) -> bool {
        self.has_events
    }

    /// The addresses of the three parts.
    pub fn addresses(&self) -> [u64; 3] {
        [self.descriptors, self.available, self.used].map(|part| part.as_ptr() as u64)
    }

    fn slot(&self, position: u16) -> usize {
        usize::from(position & self.mask)
    }

    /// Writes a descriptor.
    pub fn describe(&mut self, n: u16, address: u64, len: u32, flags: u16, next: u16) {
        let at = self.slot(n) * 16;
        write(self.descriptors, at, address);
        write(
            self.descriptors,
            at + 8,
            u64::from(next) << 48 | u64::from(flags) << 32 | u64::from(len),
        );
    }

    /// Puts a descriptor into the available ring; `VirtQueue::publish` makes it visible.
    pub fn offer(&mut self, position: u16, n: u16) {
        write(self.available, 4 + 2 * self.slot(position), n);
    }

    /// Publishes the entries up to `to`. Returns true if the device requests a notification; `from` is the previous
    /// `to`.
    pub fn publish(&mut self, from: u16, to: u16) -> bool {
        // The entries must be visible before the index.
        fence(Ordering::Release);
        write(self.available, 2, to);
        // The index must be visible before the device's request is read, or both sides could wait.
        fence(Ordering::SeqCst);
        if self.has_events {
            let event: u16 = read(self.doorbell_event, 0);
            // Whether the position for which the device requested a notification was passed (2.7.10).
            to.wrapping_sub(event).wrapping_sub(1) < to.wrapping_sub(from)
        } else {
            read::<u16>(self.used, 0) & NO_DOORBELL == 0
        }
    }

    /// The position up to which the device has returned buffers.
    pub fn used_position(&self) -> u16 {
        let position = read(self.used, 2);
        fence(Ordering::Acquire);
        position
    }

    /// The used entry at a position: first descriptor and written bytes, both unchecked.
    pub fn used(&self, position: u16) -> (u32, u32) {
        let entry: u64 = read(self.used, 4 + 8 * self.slot(position));
        (entry as u32, (entry >> 32) as u32)
    }

    /// Requests an interrupt for the time when the device returns the buffer at `position`. Returns true if the device
    /// has already returned it.
    pub fn wake_at(&mut self, position: u16) -> bool {
        if self.has_events {
            write(self.wake_event, 0, position);
        } else {
            write(self.available, 0, 0_u16);
        }
        fence(Ordering::SeqCst);
        self.used_position() != position
    }

    /// Suppresses interrupts, as far as possible; `position` is the driver's.
    pub fn suppress_interrupts(&mut self, position: u16) {
        if self.has_events {
            write(self.wake_event, 0, position.wrapping_sub(1));
        } else {
            write(self.available, 0, NO_INTERRUPT);
        }
    }
}

/// Reads memory that the device may write at any time.
fn read<T: Copy>(part: NonNull<u8>, offset: usize) -> T {
    // SAFETY: called in this module only, with aligned offsets within the part; the access is volatile because the
    // device may write concurrently.
    unsafe { part.as_ptr().add(offset).cast::<T>().read_volatile() }
}

/// Writes memory that the device may read at any time.
fn write<T: Copy>(part: NonNull<u8>, offset: usize, value: T) {
    // SAFETY: as in `read`.
    unsafe { part.as_ptr().add(offset).cast::<T>().write_volatile(value) }
}
