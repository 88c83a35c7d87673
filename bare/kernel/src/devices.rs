//! Finds the network device: on PCI, or where the command line says. The first one is taken.

use lowroad_kernel::command_line::Device;

use crate::apic::{Controllers, Local};
use crate::serial::say;
use crate::virtio::net::{self, Net};
use crate::virtio::{self, mmio, pci as over_pci};
use crate::{interrupts, pci};

/// See the head of this file; what can't be used is said on the console.
pub fn net(devices: &[Device], local: &Local, controllers: &Controllers) -> Option<Net> {
    devices
        .iter()
        .find_map(|device| by_mmio(*device, controllers))
        .or_else(|| pci::find(|function| by_pci(function, local)))
}

fn by_mmio(device: Device, controllers: &Controllers) -> Option<Net> {
    let net = match mmio::kind(device) {
        Ok((virtio::NET, transport)) => net::open(&transport),
        Ok(_) => return None,
        Err(error) => Err(error),
    };
    let place = device.address;
    match net {
        Ok(net) => {
            controllers.open_line(device.line, interrupts::DEVICE);
            say!(
                "lowroad: network device at {place:#x}, line {}",
                device.line
            );
            Some(net)
        }
        Err(error) => {
            say!("lowroad: device at {place:#x}: {error}");
            None
        }
    }
}

fn by_pci(function: pci::Function, local: &Local) -> Option<Net> {
    if over_pci::kind(function) != Some(virtio::NET) {
        return None;
    }
    let (bus, device, number) = function.place();
    let net = over_pci::open(function)
        .ok_or("its registers can't be reached")
        .and_then(|transport| {
            function
                .open_message(local.message_address(), interrupts::DEVICE)
                .ok_or("it sends no messages (MSI-X)")?;
            net::open(&transport)
        });
    match net {
        Ok(net) => {
            say!("lowroad: network device at PCI {bus:02x}:{device:02x}.{number}");
            Some(net)
        }
        Err(error) => {
            say!("lowroad: network device at PCI {bus:02x}:{device:02x}.{number}: {error}");
            None
        }
    }
}
