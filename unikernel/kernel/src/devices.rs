//! Finds the network device, on the command line or on PCI. The first usable one is taken.

use alloc::boxed::Box;
use alloc::vec::Vec;

use lowroad_kernel::command_line;

use crate::apic::{self, IoControllers};
use crate::serial::say;
use crate::virtio::net::{NetQueuePair, VirtioNetDevice};
use crate::virtio::transport::{self, VirtioError};
use crate::virtio::{mmio, pci as over_pci};
use crate::{cores, interrupts, pci};

/// A detected device and its kind of interrupts.
pub struct DetectedDevice {
    /// The device.
    pub device: VirtioNetDevice,
    interrupt_mode: InterruptMode,
}

/// The kind of a device's interrupts.
enum InterruptMode {
    /// An interrupt line, which is routed to the first core.
    Line,
    /// Messages (MSI-X), one for each receive queue.
    Messages(pci::PciFunction),
}

/// Finds the device; reports unusable ones on the console. `is_multicore`: whether several cores could use the device.
pub fn find(
    devices: &[command_line::VirtioMmioDevice],
    controllers: &IoControllers,
    is_multicore: bool,
) -> Option<DetectedDevice> {
    devices
        .iter()
        .find_map(|device| by_mmio(*device, controllers))
        .or_else(|| pci::find(|function| by_pci(function, is_multicore)))
}

fn by_mmio(
    config: command_line::VirtioMmioDevice,
    controllers: &IoControllers,
) -> Option<DetectedDevice> {
    let device = match mmio::kind(config) {
        // All queues share one interrupt line.
        Ok((transport::NET, transport)) => VirtioNetDevice::open(Box::new(transport), false),
        Ok(_) => return None,
        Err(error) => Err(error),
    };
    let address = config.address;
    match device {
        Ok(device) => {
            controllers.open_line(config.line, interrupts::DEVICE);
            say!(
                "lowroad: network device at {address:#x}, line {}",
                config.line
            );
            Some(DetectedDevice {
                device,
                interrupt_mode: InterruptMode::Line,
            })
        }
        Err(error) => {
            say!("lowroad: device at {address:#x}: {error}");
            None
        }
    }
}

fn by_pci(function: pci::PciFunction, is_multicore: bool) -> Option<DetectedDevice> {
    if over_pci::kind(function) != Some(transport::NET) {
        return None;
    }
    let (bus, device, number) = function.location();
    let opened = over_pci::open(function)
        .ok_or("its registers can't be reached")
        .and_then(|transport| {
            // One message suffices at first; the messages for other cores follow once these cores have started.
            open_messages(function, 1)?;
            VirtioNetDevice::open(Box::new(transport), is_multicore)
        });
    match opened {
        Ok(opened) => {
            say!("lowroad: network device at PCI {bus:02x}:{device:02x}.{number}");
            Some(DetectedDevice {
                device: opened,
                interrupt_mode: InterruptMode::Messages(function),
            })
        }
        Err(error) => {
            say!("lowroad: network device at PCI {bus:02x}:{device:02x}.{number}: {error}");
            None
        }
    }
}

fn open_messages(function: pci::PciFunction, count: u16) -> Result<(), VirtioError> {
    let addresses =
        (0..usize::from(count)).map(|core| apic::message_address(cores::id(core as u16)));
    function
        .open_messages(addresses, interrupts::DEVICE)
        .ok_or("it does not support MSI-X")
}

impl DetectedDevice {
    /// Starts a pair of queues for each of `count` cores, or only one for the first core if the device has no more.
    pub fn begin(&mut self, count: u16) -> Result<Vec<NetQueuePair>, VirtioError> {
        let result = match self.interrupt_mode {
            InterruptMode::Messages(function) if count > 1 => {
                open_messages(function, count).and_then(|()| self.device.begin(count))
            }
            _ => return self.device.begin(1),
        };
        result.or_else(|error| {
            say!("lowroad: the network device has queues for only one core: {error}");
            self.device.begin_single()
        })
    }
}
