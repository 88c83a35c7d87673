//! The access to a device, independent of its bus, and feature negotiation.

use super::queue::VirtQueue;
use crate::cpu::DeviceRegisters;

const ACKNOWLEDGE: u8 = 1;
const DRIVER: u8 = 2;
const DRIVER_OK: u8 = 4;
const FEATURES_OK: u8 = 8;

/// Feature: the device complies with the standard (not legacy).
const VERSION_1: u64 = 1 << 32;
/// Feature: interrupts and notifications are requested by position.
pub const EVENT_IDX: u64 = 1 << 29;
/// Feature: the device uses the machine's addresses, or an IOMMU that maps them identically.
const ACCESS_PLATFORM: u64 = 1 << 33;

/// The reason of a failure, for the operator.
pub type VirtioError = &'static str;

/// The id of a network device.
pub const NET: u32 = 1;

/// Access to a device's registers.
pub trait VirtioTransport {
    /// The features that the device offers.
    fn offered_features(&self) -> u64;
    /// Sets the features that the driver accepts.
    fn set_features(&self, features: u64);
    /// The device status.
    fn status(&self) -> u8;
    /// Sets the device status; 0 resets the device.
    fn set_status(&self, status: u8);
    /// The maximum length of a queue.
    fn queue_len_max(&self, queue: u16) -> u16;
    /// Passes a queue to the device: with this interrupt number (the MSI-X entry, if the device uses messages), or
    /// without interrupts. Returns `None` if the device rejects the queue.
    fn open_queue(&self, queue: u16, ring: &VirtQueue, wakes: Option<u16>)
    -> Option<QueueDoorbell>;
    /// The number of queues that can have an interrupt each.
    fn messages_max(&self) -> u16;
    /// The device-specific configuration.
    fn device_config(&self) -> DeviceRegisters;
    /// The register for acknowledging interrupts, if needed.
    fn acknowledgement(&self) -> Option<DeviceRegisters>;
}

/// The register for notifications of new buffers.
#[derive(Clone, Copy)]
pub struct QueueDoorbell {
    pub(super) register: DeviceRegisters,
    pub(super) queue: u16,
    pub(super) is_long: bool,
}

impl QueueDoorbell {
    /// Notifies the device.
    pub fn ring(self) {
        if self.is_long {
            self.register.write(0, u32::from(self.queue));
        } else {
            self.register.write(0, self.queue);
        }
    }
}

/// The length for a queue: as long as the device permits, up to `max`; a power of two, or 0 without a queue.
pub fn queue_len(device: &dyn VirtioTransport, queue: u16, max: u16) -> u16 {
    let len = device.queue_len_max(queue).min(max);
    if len.is_power_of_two() {
        len
    } else {
        len.next_power_of_two() / 2
    }
}

/// Resets the device and negotiates features: those that the device offers and `select` accepts.
pub fn negotiate_features(
    device: &dyn VirtioTransport,
    select: impl FnOnce(u64) -> u64,
) -> Result<u64, VirtioError> {
    device.set_status(0);
    // A reset is complete when the status reads 0.
    if !(0..1_000_000).any(|_| device.status() == 0) {
        return Err("the device does not reset");
    }
    device.set_status(ACKNOWLEDGE);
    device.set_status(ACKNOWLEDGE | DRIVER);
    let offered = device.offered_features();
    if offered & VERSION_1 == 0 {
        return Err("the device supports only legacy virtio");
    }
    let features = offered & (select(offered) | VERSION_1 | ACCESS_PLATFORM);
    device.set_features(features);
    device.set_status(ACKNOWLEDGE | DRIVER | FEATURES_OK);
    // The device clears the bit if it rejects the selection (3.1.1).
    if device.status() & FEATURES_OK == 0 {
        return Err("the device rejects features that it has offered");
    }
    Ok(features)
}

/// Starts the device, after the queues are set up.
pub fn begin(device: &dyn VirtioTransport) {
    device.set_status(ACKNOWLEDGE | DRIVER | FEATURES_OK | DRIVER_OK);
}
