//! Virtio over memory-mapped registers, as in hypervisors without PCI.
//!
//! Read first: VIRTIO 1.2, 4.2.

use lowroad_kernel::command_line;

use super::queue::VirtQueue;
use super::transport::{QueueDoorbell, VirtioError, VirtioTransport};
use crate::cpu::DeviceRegisters;
use crate::mapping;

const MAGIC: usize = 0;
const VERSION: usize = 4;
const KIND: usize = 8;
const DEVICE_FEATURES: usize = 0x10;
const DEVICE_FEATURES_SELECT: usize = 0x14;
const DRIVER_FEATURES: usize = 0x20;
const DRIVER_FEATURES_SELECT: usize = 0x24;
const QUEUE_SELECT: usize = 0x30;
const QUEUE_LEN_MAX: usize = 0x34;
const QUEUE_LEN: usize = 0x38;
const QUEUE_READY: usize = 0x44;
const DOORBELL: usize = 0x50;
const ACKNOWLEDGEMENT: usize = 0x64;
const STATUS: usize = 0x70;
const QUEUE_ADDRESSES: usize = 0x80;
const OWN: usize = 0x100;

/// A virtio-mmio device.
pub struct MmioTransport {
    registers: DeviceRegisters,
}

/// The device's id, 0 for an empty slot.
pub fn kind(device: command_line::VirtioMmioDevice) -> Result<(u32, MmioTransport), VirtioError> {
    if !mapping::map(device.address, 0x200) {
        return Err("no memory to map it");
    }
    // SAFETY: the hypervisor listed a device there; mapped.
    let registers = unsafe { DeviceRegisters::new(device.address) };
    if registers.read::<u32>(MAGIC) != 0x7472_6976 {
        return Err("not a virtio device");
    }
    match registers.read(KIND) {
        0 => Ok((0, MmioTransport { registers })),
        kind if registers.read::<u32>(VERSION) == 2 => Ok((kind, MmioTransport { registers })),
        _ => Err(
            "the device supports only legacy virtio (QEMU: -global virtio-mmio.force-legacy=off)",
        ),
    }
}

impl VirtioTransport for MmioTransport {
    fn offered_features(&self) -> u64 {
        let half = |n: u32| {
            self.registers.write(DEVICE_FEATURES_SELECT, n);
            u64::from(self.registers.read::<u32>(DEVICE_FEATURES))
        };
        half(0) | half(1) << 32
    }

    fn set_features(&self, features: u64) {
        for (n, half) in [(0_u32, features as u32), (1, (features >> 32) as u32)] {
            self.registers.write(DRIVER_FEATURES_SELECT, n);
            self.registers.write(DRIVER_FEATURES, half);
        }
    }

    fn status(&self) -> u8 {
        self.registers.read::<u32>(STATUS) as u8
    }

    fn set_status(&self, status: u8) {
        self.registers.write(STATUS, u32::from(status));
    }

    fn queue_len_max(&self, queue: u16) -> u16 {
        self.registers.write(QUEUE_SELECT, u32::from(queue));
        self.registers
            .read::<u32>(QUEUE_LEN_MAX)
            .try_into()
            .unwrap_or(1 << 15)
    }

    fn open_queue(
        &self,
        queue: u16,
        ring: &VirtQueue,
        _wakes: Option<u16>,
    ) -> Option<QueueDoorbell> {
        self.registers.write(QUEUE_SELECT, u32::from(queue));
        self.registers.write(QUEUE_LEN, u32::from(ring.len()));
        for (n, address) in ring.addresses().into_iter().enumerate() {
            self.registers
                .write(QUEUE_ADDRESSES + n * 16, address as u32);
            self.registers
                .write(QUEUE_ADDRESSES + n * 16 + 4, (address >> 32) as u32);
        }
        self.registers.write(QUEUE_READY, 1_u32);
        let is_ready = self.registers.read::<u32>(QUEUE_READY) == 1;
        is_ready.then_some(QueueDoorbell {
            register: self.registers.at(DOORBELL),
            queue,
            is_long: true,
        })
    }

    fn messages_max(&self) -> u16 {
        1
    }

    fn device_config(&self) -> DeviceRegisters {
        self.registers.at(OWN)
    }

    fn acknowledgement(&self) -> Option<DeviceRegisters> {
        Some(self.registers.at(ACKNOWLEDGEMENT))
    }
}
