//! Virtio over PCI.
//!
//! Read first: VIRTIO 1.2, 4.1.

use super::queue::VirtQueue;
use super::transport::{QueueDoorbell, VirtioTransport};
use crate::cpu::DeviceRegisters;
use crate::pci::PciFunction;

const VENDOR: u16 = 0x1af4;
/// No interrupt vector.
const NO_VECTOR: u16 = 0xffff;

/// Offsets in the common configuration.
const DEVICE_FEATURE_SELECT: usize = 0;
const DEVICE_FEATURE: usize = 4;
const DRIVER_FEATURE_SELECT: usize = 8;
const DRIVER_FEATURE: usize = 12;
const CONFIG_VECTOR: usize = 16;
const STATUS: usize = 20;
const QUEUE_SELECT: usize = 22;
const QUEUE_LEN: usize = 24;
const QUEUE_VECTOR: usize = 26;
const QUEUE_ENABLE: usize = 28;
const QUEUE_NOTIFY: usize = 30;
const QUEUE_ADDRESSES: usize = 32;

/// A virtio-pci device.
pub struct PciTransport {
    common: DeviceRegisters,
    device_config: DeviceRegisters,
    doorbells: DeviceRegisters,
    doorbell_step: u32,
    doorbells_len: u32,
    messages_max: u16,
}

/// The id of a virtio device; `None` for another device.
pub fn kind(function: PciFunction) -> Option<u32> {
    match function.identity() {
        (VENDOR, device @ 0x1040..=0x107f) => Some(u32::from(device) - 0x1040),
        // Transitional devices have the id in the subsystem id.
        (VENDOR, 0x1000..=0x103f) => Some(function.read32(0x2c) >> 16),
        _ => None,
    }
}

/// Maps the registers. Returns `None` for a legacy device, or if the firmware assigned no address.
pub fn open(function: PciFunction) -> Option<PciTransport> {
    function.enable();
    let (mut common, mut device_config, mut doorbells) = (None, None, None);
    for at in function.capabilities(9) {
        let (bar, offset, len) = (
            function.read8(at + 4),
            function.read32(at + 8),
            function.read32(at + 12),
        );
        let memory = || function.memory(bar, offset, len);
        match function.read8(at + 3) {
            1 if common.is_none() && len >= 56 => common = memory(),
            2 if doorbells.is_none() => {
                doorbells = memory().map(|memory| (memory, function.read32(at + 16), len))
            }
            4 if device_config.is_none() && len >= 12 => device_config = memory(),
            _ => {}
        }
    }
    let (doorbells, doorbell_step, doorbells_len) = doorbells?;
    let device = PciTransport {
        common: common?,
        device_config: device_config?,
        doorbells,
        doorbell_step,
        doorbells_len,
        messages_max: function.messages_max(),
    };
    // Configuration changes cause no interrupt.
    device.common.write(CONFIG_VECTOR, NO_VECTOR);
    Some(device)
}

impl VirtioTransport for PciTransport {
    fn offered_features(&self) -> u64 {
        let half = |n: u32| {
            self.common.write(DEVICE_FEATURE_SELECT, n);
            u64::from(self.common.read::<u32>(DEVICE_FEATURE))
        };
        half(0) | half(1) << 32
    }

    fn set_features(&self, features: u64) {
        for (n, half) in [(0_u32, features as u32), (1, (features >> 32) as u32)] {
            self.common.write(DRIVER_FEATURE_SELECT, n);
            self.common.write(DRIVER_FEATURE, half);
        }
    }

    fn status(&self) -> u8 {
        self.common.read(STATUS)
    }

    fn set_status(&self, status: u8) {
        self.common.write(STATUS, status);
    }

    fn queue_len_max(&self, queue: u16) -> u16 {
        self.common.write(QUEUE_SELECT, queue);
        self.common.read(QUEUE_LEN)
    }

    fn open_queue(
        &self,
        queue: u16,
        ring: &VirtQueue,
        wakes: Option<u16>,
    ) -> Option<QueueDoorbell> {
        self.common.write(QUEUE_SELECT, queue);
        self.common.write(QUEUE_LEN, ring.len());
        let vector = wakes.unwrap_or(NO_VECTOR);
        self.common.write(QUEUE_VECTOR, vector);
        // The device reads back `NO_VECTOR` if it can't use the vector (4.1.5.1.2).
        if self.common.read::<u16>(QUEUE_VECTOR) != vector {
            return None;
        }
        for (n, address) in ring.addresses().into_iter().enumerate() {
            self.common.write(QUEUE_ADDRESSES + n * 8, address as u32);
            self.common
                .write(QUEUE_ADDRESSES + n * 8 + 4, (address >> 32) as u32);
        }
        let offset =
            u32::from(self.common.read::<u16>(QUEUE_NOTIFY)).checked_mul(self.doorbell_step)?;
        // A register outside the capability's range is not mapped.
        if offset.checked_add(2)? > self.doorbells_len {
            return None;
        }
        self.common.write(QUEUE_ENABLE, 1_u16);
        Some(QueueDoorbell {
            register: self.doorbells.at(offset as usize),
            queue,
            is_long: false,
        })
    }

    fn messages_max(&self) -> u16 {
        self.messages_max
    }

    fn device_config(&self) -> DeviceRegisters {
        self.device_config
    }

    fn acknowledgement(&self) -> Option<DeviceRegisters> {
        None
    }
}
