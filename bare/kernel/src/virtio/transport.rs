//! The way to a device, whichever bus it is on, and how driver and device agree.

use super::queue::Ring;
use crate::cpu::Registers;

const ACKNOWLEDGE: u8 = 1;
const DRIVER: u8 = 2;
const DRIVER_OK: u8 = 4;
const FEATURES_OK: u8 = 8;

/// The device follows the standard.
const VERSION_1: u64 = 1 << 32;
/// Interrupts and doorbells are asked for by position.
pub const EVENT_IDX: u64 = 1 << 29;
/// The device's addresses are the machine's, or translated so that ours are right.
const ACCESS_PLATFORM: u64 = 1 << 33;

/// What went wrong, for the operator.
pub type Error = &'static str;

/// The kind of a network device.
pub const NET: u32 = 1;

/// The way to a device's registers.
pub trait Transport {
    /// What the device offers.
    fn offered(&self) -> u64;
    /// What the driver takes of it.
    fn take(&self, features: u64);
    /// How far both have come.
    fn status(&self) -> u8;
    /// Says how far the driver has come; 0 begins anew.
    fn set_status(&self, status: u8);
    /// How long a queue may be.
    fn queue_len_max(&self, queue: u16) -> u16;
    /// Shows a queue to the device; its interrupts have this number (that of a message, where they are messages), or there
    /// are none. None: the device does not take it.
    fn open_queue(&self, queue: u16, ring: &Ring, wakes: Option<u16>) -> Option<Doorbell>;
    /// How many queues can have an interrupt of their own.
    fn messages_max(&self) -> u16;
    /// The device's own registers.
    fn own(&self) -> Registers;
    /// Where an interrupt is acknowledged, if it must be.
    fn acknowledgement(&self) -> Option<Registers>;
}

/// Where a device is told of new buffers.
#[derive(Clone, Copy)]
pub struct Doorbell {
    pub(super) register: Registers,
    pub(super) queue: u16,
    pub(super) is_long: bool,
}

impl Doorbell {
    /// Tells it.
    pub fn ring(self) {
        if self.is_long {
            self.register.write(0, u32::from(self.queue));
        } else {
            self.register.write(0, self.queue);
        }
    }
}

/// How long a queue is made: as long as the device lets it be, up to `max`; a power of two, or 0 where there is no queue.
pub fn queue_len(device: &dyn Transport, queue: u16, max: u16) -> u16 {
    let len = device.queue_len_max(queue).min(max);
    if len.is_power_of_two() {
        len
    } else {
        len.next_power_of_two() / 2
    }
}

/// Begins anew and agrees on features: those that the device offers and that `wanted` says for what is offered.
pub fn agree(device: &dyn Transport, wanted: impl FnOnce(u64) -> u64) -> Result<u64, Error> {
    device.set_status(0);
    if !(0..1_000_000).any(|_| device.status() == 0) {
        return Err("the device does not reset");
    }
    device.set_status(ACKNOWLEDGE);
    device.set_status(ACKNOWLEDGE | DRIVER);
    let offered = device.offered();
    if offered & VERSION_1 == 0 {
        return Err("the device knows only the old virtio");
    }
    let features = offered & (wanted(offered) | VERSION_1 | ACCESS_PLATFORM);
    device.take(features);
    device.set_status(ACKNOWLEDGE | DRIVER | FEATURES_OK);
    if device.status() & FEATURES_OK == 0 {
        return Err("the device refuses the features it has offered");
    }
    Ok(features)
}

/// The queues are there; the device may begin.
pub fn begin(device: &dyn Transport) {
    device.set_status(ACKNOWLEDGE | DRIVER | FEATURES_OK | DRIVER_OK);
}
