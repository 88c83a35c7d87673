//! The options of `lowroad image`, and the types of their values.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::address::ImageAddress;
use super::database::ImageDatabase;

/// `lowroad image build`.
#[derive(Args)]
pub struct BuildArgs {
    /// The site's folder: files, and SQL pages (*.lrp)
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// The image to write: an ELF file for QEMU, Firecracker and Cloud Hypervisor
    #[arg(short, long, value_name = "FILE", default_value = "site.img")]
    pub output: PathBuf,
    /// Also write a disk that boots on a PC or in a virtual machine, by BIOS or UEFI
    #[arg(long, value_name = "FILE")]
    pub disk: Option<PathBuf>,
    /// The address of a machine with that disk: dhcp, ADDRESS/PREFIX or ADDRESS/PREFIX,GATEWAY
    #[arg(long, value_name = "WHERE", value_parser = ImageAddress::parse, default_value = "dhcp", requires = "disk")]
    pub ip: ImageAddress,
    /// The settings of the site
    #[command(flatten)]
    pub settings: ImageSettings,
}

/// The settings of a site that are stored in its image.
#[derive(Args)]
pub struct ImageSettings {
    /// The database of SQL pages: mysql://USER:PASSWORD@ADDRESS/NAME
    #[arg(long, value_name = "URL", value_parser = ImageDatabase::parse)]
    pub database: Option<ImageDatabase>,
    /// Clients that may read the image's status and log: an IPv4 address, or a network like 10.0.0.0/8
    #[arg(long, value_name = "NETWORK", value_parser = Ipv4Network::parse)]
    pub status_from: Vec<Ipv4Network>,
}

/// `lowroad image run`.
#[derive(Args)]
pub struct RunArgs {
    /// The image, or a site's folder
    #[arg(value_name = "IMAGE|DIR")]
    pub image: PathBuf,
    /// Run as a process of this system on this tap device, not in QEMU
    #[arg(long, value_name = "TAP", conflicts_with = "tap")]
    pub hosted: Option<String>,
    /// The address: dhcp, ADDRESS/PREFIX or ADDRESS/PREFIX,GATEWAY
    #[arg(long, value_name = "WHERE", value_parser = ImageAddress::parse, default_value = "dhcp")]
    pub ip: ImageAddress,
    /// Connect QEMU to this tap device
    #[arg(long, value_name = "TAP", conflicts_with = "port")]
    pub tap: Option<String>,
    /// Without a tap device: the listener on this machine that forwards to the image, as ADDR:PORT or PORT
    #[arg(long, value_name = "PORT", value_parser = value_address, default_value = "8080")]
    pub port: SocketAddr,
    /// Memory, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 128, value_parser = clap::value_parser!(u32).range(32..=1 << 20))]
    pub memory: u32,
    /// Cores: up to 16 processors, several only with --tap; with --hosted, threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=i64::from(lowroad_unikernel::CoreSet::COUNT_MAX)))]
    pub cores: u16,
    /// Additional words for the image's command line
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub append: String,
    /// The machine that QEMU emulates
    #[arg(long, value_enum, default_value = "q35")]
    pub machine: QemuBoard,
    /// QEMU's accelerator [default: kvm where it works, else tcg]
    #[arg(long, value_name = "NAME")]
    pub accel: Option<String>,
    /// The settings of the site, for a folder
    #[command(flatten)]
    pub settings: ImageSettings,
}

/// A machine that QEMU emulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum QemuBoard {
    /// A PC with PCI.
    Q35,
    /// Only what a guest needs, as in Firecracker.
    Microvm,
}

fn value_address(text: &str) -> Result<SocketAddr, String> {
    lowroad_config::value::address(text).map_err(|allowed| format!("allowed: {allowed}"))
}

/// An IPv4 network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Network {
    /// The network's first address.
    pub address: Ipv4Addr,
    /// The prefix length, 0 to 32.
    pub prefix_len: u8,
}

impl Ipv4Network {
    /// Parses a network like `10.0.0.0/8`; an address is a network with one host.
    ///
    /// # Errors
    /// A message with the allowed forms.
    pub fn parse(text: &str) -> Result<Ipv4Network, String> {
        let allowed = || "an IPv4 address or a network like 10.0.0.0/8".to_string();
        let (address, prefix_len) = text.split_once('/').unwrap_or((text, "32"));
        let address: Ipv4Addr = address.parse().map_err(|_| allowed())?;
        let prefix_len: u8 = prefix_len.parse().map_err(|_| allowed())?;
        let host_bits = 32u32.checked_sub(prefix_len.into()).ok_or_else(allowed)?;
        // A prefix of length 0 shifts by 32 bits, for which `<<` would panic.
        let mask = u32::MAX.checked_shl(host_bits).unwrap_or(0);
        let first = Ipv4Addr::from(u32::from(address) & mask);
        match first == address {
            true => Ok(Ipv4Network {
                address,
                prefix_len,
            }),
            false => Err(format!(
                "the network's first address is {first}: {first}/{prefix_len}"
            )),
        }
    }
}

impl std::fmt::Display for Ipv4Network {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.address, self.prefix_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_parsed_to_address_and_length() {
        for (text, want) in [
            ("10.0.0.0/8", Some("10.0.0.0/8")),
            ("192.0.2.7", Some("192.0.2.7/32")),
            ("0.0.0.0/0", Some("0.0.0.0/0")),
            ("10.0.0.1/8", None),
            ("10.0.0.0/33", None),
            ("10.0.0/8", None),
            ("::1", None),
            ("", None),
        ] {
            let got = Ipv4Network::parse(text)
                .ok()
                .map(|network| network.to_string());
            assert_eq!(got.as_deref(), want, "{text}");
        }
    }
}
