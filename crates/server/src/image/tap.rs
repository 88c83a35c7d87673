//! The tap device of an image. If the device does not exist, the `ip` program creates it, and later removes it again.
//! This module sends no packets.

use std::io::ErrorKind;
use std::process::{Command, Stdio};

use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};

use super::address::ImageAddress;
use crate::terminal_output;

/// Maximum length of a device's name.
const NAME_LEN_MAX: usize = 15;

/// A tap device. If this process created it, dropping it removes the device.
pub struct HostTap {
    name: String,
    is_owned: bool,
    /// The requested number of queues.
    queues: u32,
}

impl HostTap {
    /// Uses an existing device, or creates a new one that is removed when this value is dropped. A new device gets the
    /// gateway's address, so that this host can reach the image. An existing device is not changed. It is refused if
    /// another program has opened a queue of it: the kernel would distribute frames between both programs.
    ///
    /// # Errors
    /// A message for the operator, with a remedy.
    pub fn prepare(name: &str, ip: ImageAddress, queues: u32) -> Result<HostTap, String> {
        // The name becomes an argument of `ip`, and part of QEMU's option lists, which are separated by commas.
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > NAME_LEN_MAX || !name.chars().all(is_name) {
            return Err(format!("{name}: not the name of a network device"));
        }
        let is_owned = !device_exists(name);
        let device = HostTap {
            name: name.to_string(),
            is_owned,
            queues,
        };
        if is_owned {
            let result = device.create(ip);
            result.map_err(|reason| advice(name, ip, queues, &reason))?;
        } else if has_open_queue(&describe_device(name).unwrap_or_default()) {
            // If two programs use a multi-queue device, each gets only some of the frames, without an error.
            return Err(format!(
                "the tap device {name} is in use: another program has its queues"
            ));
        }
        Ok(device)
    }

    /// The number of queues to open, at least 1. A multi-queue device can't be opened without the flag for several
    /// queues, and a device with one queue can't be opened with it.
    pub fn queues(&self) -> u32 {
        match self.is_owned {
            true => self.queues,
            false => usable_queues(&self.name, self.queues),
        }
    }

    fn create(&self, ip: ImageAddress) -> Result<(), String> {
        let name = self.name.as_str();
        let command = format!("tuntap add dev {name} mode tap{}", kind(self.queues));
        run(&command.split(' ').collect::<Vec<_>>())?;
        if let Some(address) = host_address(ip) {
            run(&["address", "add", &address, "dev", name])?;
        } else {
            terminal_output::note(format_args!(
                "{name} has no address: give it one, or add it to a bridge, to reach the image"
            ));
        }
        run(&["link", "set", name, "up"]).map(|_| ())
    }
}

impl Drop for HostTap {
    fn drop(&mut self) {
        if self.is_owned {
            _ = run(&["link", "delete", &self.name]);
        }
    }
}

/// Whether the device exists in this process's network namespace; `/sys` may show another one.
fn device_exists(name: &str) -> bool {
    // SIOCGIFINDEX works with any kind of socket (netdevice(7)).
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None);
    socket.is_ok_and(|socket| name_to_index(socket, name).is_ok())
}

/// The keyword of `ip tuntap` for a multi-queue device.
fn kind(queues: u32) -> &'static str {
    match queues {
        0..=1 => "",
        _ => " multi_queue",
    }
}

/// The output of `ip` about a device.
fn describe_device(name: &str) -> Result<String, String> {
    run(&["-details", "link", "show", "dev", name])
}

/// Whether any queue of a multi-queue device is open, according to the output of `ip`. The kernel itself refuses to
/// open a single-queue device twice.
fn has_open_queue(output: &str) -> bool {
    ["numqueues", "numdisabled"].into_iter().any(|name| {
        let mut words = output.split_whitespace();
        words.find(|word| *word == name);
        words.next().is_some_and(|count| count != "0")
    })
}

/// The number of an existing device's queues to open if `queues` were requested.
fn usable_queues(name: &str, queues: u32) -> u32 {
    // If `ip` fails, the device is assumed to support the request.
    let has_several =
        describe_device(name).map_or(queues > 1, |output| output.contains(" multi_queue "));
    if queues > 1 && !has_several {
        terminal_output::note(format_args!(
            "{name} has one queue, for one core; create one with several: ip tuntap add dev \
             {name} mode tap multi_queue"
        ));
    }
    match has_several {
        true => queues.max(2),
        false => 1,
    }
}

/// This host's address on the image's network, which is the image's gateway.
fn host_address(ip: ImageAddress) -> Option<String> {
    match ip {
        ImageAddress::Static {
            gateway: Some(gateway),
            prefix_len,
            ..
        } => Some(format!("{gateway}/{prefix_len}")),
        _ => None,
    }
}

fn advice(name: &str, ip: ImageAddress, queues: u32, reason: &str) -> String {
    let address = host_address(ip).unwrap_or_else(|| "ADDRESS/PREFIX".to_string());
    let kind = kind(queues);
    format!(
        "the tap device {name} does not exist and can't be created ({reason}); as root:\n  ip tuntap \
         add dev {name} mode tap{kind} user USER\n  ip address add {address} dev {name}\n  ip \
         link set {name} up"
    )
}

/// Runs `ip` and returns its output.
fn run(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("ip")
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    let output = output.map_err(|error| match error.kind() {
        ErrorKind::NotFound => "the program ip is missing: install iproute2".to_string(),
        _ => format!("ip: {error}"),
    })?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_device_names_are_refused() {
        for name in ["", "a b", "a/b", "sixteen-letters-", "x;y"] {
            assert!(
                HostTap::prepare(name, ImageAddress::Dhcp, 1).is_err(),
                "{name}"
            );
        }
    }

    #[test]
    fn open_queues_are_found_in_ip_output() {
        let ip_output = |queues, disabled| {
            format!(
                "2: t: <BROADCAST> mtu 1500 qdisc mq\n    tun type tap pi off vnet_hdr on multi_queue \
                 numqueues {queues} numdisabled {disabled} persist on"
            )
        };
        assert!(has_open_queue(&ip_output(2, 0)) && has_open_queue(&ip_output(0, 1)));
        assert!(!has_open_queue(&ip_output(0, 0)));
        assert!(
            !has_open_queue("tun type tap pi off vnet_hdr on persist on") && !has_open_queue("")
        );
    }

    #[test]
    fn advice_is_a_complete_command() {
        let ip = ImageAddress::parse("192.0.2.2/24,192.0.2.1").expect("an address");
        let several = advice("tap0", ip, 2, "no");
        assert!(several.contains("mode tap multi_queue user"), "{several}");
        let text = advice("tap0", ip, 1, "no");
        assert!(
            text.contains("ip address add 192.0.2.1/24 dev tap0"),
            "{text}"
        );
    }
}
