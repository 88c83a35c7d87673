//! The kernel command line: `ip=`, and the devices that a hypervisor lists.

use core::net::Ipv4Addr;

use lowroad_net::AddressSource;

/// A virtio-mmio device, as listed by Firecracker and QEMU's microvm: `virtio_mmio.device=4K@0xd0000000:5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtioMmioDevice {
    /// Physical address.
    pub address: u64,
    /// Its interrupt line at the I/O APICs.
    pub line: u32,
}

/// Maximum number of devices that are used.
pub const DEVICES_MAX: usize = 16;

/// An option on the command line.
pub enum KernelOption<'l> {
    /// `ip=dhcp`, or `ip=192.0.2.2/24,192.0.2.1`; the gateway is optional.
    Address(AddressSource),
    /// `virtio_mmio.device=`.
    Device(VirtioMmioDevice),
    /// An unknown option, or an invalid `ip=`.
    Unknown(&'l str),
}

/// The options on a command line.
pub fn words(line: &str) -> impl Iterator<Item = KernelOption<'_>> {
    line.split_ascii_whitespace().map(|word| {
        let option = match word.split_once('=') {
            Some(("ip", value)) => address(value).map(KernelOption::Address),
            Some(("virtio_mmio.device", value)) => device(value).map(KernelOption::Device),
            _ => None,
        };
        option.unwrap_or(KernelOption::Unknown(word))
    })
}

fn address(value: &str) -> Option<AddressSource> {
    if value == "dhcp" {
        return Some(AddressSource::Dhcp);
    }
    let (cidr, gateway) = match value.split_once(',') {
        Some((cidr, gateway)) => (cidr, Some(gateway.parse::<Ipv4Addr>().ok()?)),
        None => (value, None),
    };
    let (address, prefix_len) = cidr.split_once('/')?;
    let prefix_len = prefix_len.parse().ok().filter(|len| *len <= 32)?;
    Some(AddressSource::Static {
        address: address.parse().ok()?,
        prefix_len,
        gateway,
    })
}

/// Parses a device. The length (`512`, `4K`) is ignored, since the virtio standard defines the registers.
fn device(value: &str) -> Option<VirtioMmioDevice> {
    let (_len, location) = value.split_once('@')?;
    let mut parts = location.split(':');
    let address = number(parts.next()?)?;
    let line = number(parts.next()?)?.try_into().ok()?;
    Some(VirtioMmioDevice { address, line })
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_and_virtio_mmio_devices_are_parsed() {
        let line = "ip=192.0.2.2/24,192.0.2.1 virtio_mmio.device=512@0xfeb00e00:12 reboot=t virtio_mmio.device=4K@4096:5:0";
        let mut words = words(line);
        assert!(
            matches!(words.next(), Some(KernelOption::Address(AddressSource::Static { address, prefix_len: 24, gateway: Some(gateway) }))
            if address == Ipv4Addr::new(192, 0, 2, 2) && gateway == Ipv4Addr::new(192, 0, 2, 1))
        );
        assert!(matches!(
            words.next(),
            Some(KernelOption::Device(VirtioMmioDevice {
                address: 0xfeb0_0e00,
                line: 12
            }))
        ));
        assert!(matches!(
            words.next(),
            Some(KernelOption::Unknown("reboot=t"))
        ));
        assert!(matches!(
            words.next(),
            Some(KernelOption::Device(VirtioMmioDevice {
                address: 4096,
                line: 5
            }))
        ));
        assert!(words.next().is_none());
    }

    #[test]
    fn invalid_address_is_an_unknown_option() {
        for line in [
            "ip=",
            "ip=1.2.3.4",
            "ip=1.2.3.4/33",
            "ip=1.2.3/8",
            "ip=1.2.3.4/8,",
            "ip=DHCP",
        ] {
            assert!(
                matches!(words(line).next(), Some(KernelOption::Unknown(word)) if word == line),
                "{line}"
            );
        }
        assert!(matches!(
            words("ip=1.2.3.4/8").next(),
            Some(KernelOption::Address(AddressSource::Static {
                gateway: None,
                ..
            }))
        ));
    }
}
