//! The memory that driver and device share for a queue: descriptors, what is available, what is used. Everything in it
//! that the device writes is read once and checked by who reads it. Knows nothing of what the buffers hold.
//!
//! Read first: VIRTIO 1.2, 2.7.

use core::ptr::NonNull;
use core::sync::atomic::{Ordering, fence};

use crate::heap;

/// There is more behind.
pub const NEXT: u16 = 1;
/// The device writes to it.
pub const WRITE: u16 = 2;

const NO_INTERRUPT: u16 = 1;
const NO_DOORBELL: u16 = 1;

/// A queue's memory. Positions count up and wrap at 65,536; the rings are entered at a position modulo the length. Where
/// the parts are is worked out once: this is what the machine does most.
pub struct Ring {
    descriptors: NonNull<u8>,
    available: NonNull<u8>,
    used: NonNull<u8>,
    /// Where the driver says when it wants to be woken, and the device, when it wants to be told.
    wake_event: NonNull<u8>,
    doorbell_event: NonNull<u8>,
    /// The length less one.
    mask: u16,
    has_events: bool,
}

impl Ring {
    /// Of `len` entries, a power of two of at most 32,768. None: there is no memory for it.
    pub fn new(len: u16, has_events: bool) -> Option<Ring> {
        if !len.is_power_of_two() {
            return None;
        }
        let entries = usize::from(len);
        let available_at = 16 * entries;
        // Its entries of 8 bytes begin 4 bytes behind; they are kept at multiples of 8, which no cache line divides.
        let used_at = (available_at + 6 + 2 * entries).next_multiple_of(64) + 4;
        let base = heap::pages(used_at + 6 + 8 * entries)?;
        // SAFETY: all within the memory that was just taken.
        let at = |offset| unsafe { base.add(offset) };
        Some(Ring {
            descriptors: base,
            available: at(available_at),
            used: at(used_at),
            wake_event: at(available_at + 4 + 2 * entries),
            doorbell_event: at(used_at + 4 + 8 * entries),
            mask: len - 1,
            has_events,
        })
    }

    /// In entries.
    pub fn len(&self) -> u16 {
        self.mask + 1
    }

    /// Whether interrupts are asked for by position.
    pub fn has_events(&self) -> bool {
        self.has_events
    }

    /// Of its three parts.
    pub fn addresses(&self) -> [u64; 3] {
        [self.descriptors, self.available, self.used].map(|part| part.as_ptr() as u64)
    }

    fn place(&self, position: u16) -> usize {
        usize::from(position & self.mask)
    }

    /// Describes a buffer.
    pub fn describe(&mut self, n: u16, address: u64, len: u32, flags: u16, next: u16) {
        let at = self.place(n) * 16;
        write(self.descriptors, at, address);
        write(
            self.descriptors,
            at + 8,
            u64::from(next) << 48 | u64::from(flags) << 32 | u64::from(len),
        );
    }

    /// Makes a descriptor available at a position; [`Ring::publish`] shows it.
    pub fn offer(&mut self, position: u16, n: u16) {
        write(self.available, 4 + 2 * self.place(position), n);
    }

    /// Shows the device everything offered up to `to`. True if it wants to be told; `from` is what it was shown before.
    pub fn publish(&mut self, from: u16, to: u16) -> bool {
        fence(Ordering::Release);
        write(self.available, 2, to);
        fence(Ordering::SeqCst);
        if self.has_events {
            let event: u16 = read(self.doorbell_event, 0);
            to.wrapping_sub(event).wrapping_sub(1) < to.wrapping_sub(from)
        } else {
            read::<u16>(self.used, 0) & NO_DOORBELL == 0
        }
    }

    /// The position up to which the device has used buffers.
    pub fn used_to(&self) -> u16 {
        let position = read(self.used, 2);
        fence(Ordering::Acquire);
        position
    }

    /// What was used at a position: the first descriptor and the bytes written, both as the device says.
    pub fn used(&self, position: u16) -> (u32, u32) {
        let both: u64 = read(self.used, 4 + 8 * self.place(position));
        (both as u32, (both >> 32) as u32)
    }

    /// Asks for an interrupt when the device uses a buffer at `position`. True if it has done so already.
    pub fn wake_at(&mut self, position: u16) -> bool {
        if self.has_events {
            write(self.wake_event, 0, position);
        } else {
            write(self.available, 0, 0_u16);
        }
        fence(Ordering::SeqCst);
        self.used_to() != position
    }

    /// Asks for no interrupts, as far as that can be asked: `position` is where the driver is.
    pub fn keep_quiet(&mut self, position: u16) {
        if self.has_events {
            write(self.wake_event, 0, position.wrapping_sub(1));
        } else {
            write(self.available, 0, NO_INTERRUPT);
        }
    }
}

/// Reads what the device may write at any time.
fn read<T: Copy>(part: NonNull<u8>, offset: usize) -> T {
    // SAFETY: only called here, with offsets within the part and multiples of the type's alignment; volatile access
    // allows for a device that writes.
    unsafe { part.as_ptr().add(offset).cast::<T>().read_volatile() }
}

/// Writes what the device may read at any time.
fn write<T: Copy>(part: NonNull<u8>, offset: usize, value: T) {
    // SAFETY: as in `read`.
    unsafe { part.as_ptr().add(offset).cast::<T>().write_volatile(value) }
}
