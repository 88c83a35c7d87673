//! A network namespace connected by a veth pair: 10.77.N.1 is the address outside, 10.77.N.2 the one inside.
//!
//! Everything is configured by the `ip` program. The interface name of the pair claims the number N on this machine,
//! and the pair is created by one command, so two labs never use the same number.

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

/// A namespace of the lab; [`NetworkNamespace::remove`] removes it.
pub struct NetworkNamespace {
    number: u8,
    name: String,
}

impl NetworkNamespace {
    /// Creates a namespace.
    ///
    /// # Errors
    /// With a text for the user.
    pub fn make() -> Result<NetworkNamespace, String> {
        if !rustix::process::geteuid().is_root() {
            return Err(
                "a network namespace needs root: run the lab as root, or without it".into(),
            );
        }
        let mut last = String::new();
        // The number is a byte of the addresses 10.77.N.1 and 10.77.N.2.
        for number in 1..=250 {
            match NetworkNamespace::create(number) {
                Ok(namespace) => return Ok(namespace),
                // Another lab has this number.
                Err(text) if text.contains("exists") => last = text,
                Err(text) => return Err(format!("cannot make a network namespace: {text}")),
            }
        }
        Err(format!("no number is left for a network namespace: {last}"))
    }

    fn create(number: u8) -> Result<NetworkNamespace, String> {
        let name = format!("lab-{}-{number}", std::process::id());
        ip(&format!("netns add {name}"))?;
        let namespace = NetworkNamespace { number, name };
        let result = namespace.connect();
        // The namespace exists already, and would outlive the lab.
        if result.is_err() {
            let _ = ip(&format!("netns del {}", namespace.name));
        }
        result.map(|()| namespace)
    }

    fn connect(&self) -> Result<(), String> {
        let (number, name) = (self.number, &self.name);
        ip(&format!(
            "link add lab{number}h type veth peer name lab{number}p netns {name}"
        ))?;
        ip(&format!("addr add {}/30 dev lab{number}h", outer(number)))?;
        ip(&format!("link set lab{number}h up"))?;
        ip(&format!(
            "-n {name} addr add {}/30 dev lab{number}p",
            inner(number)
        ))?;
        ip(&format!("-n {name} link set lab{number}p up"))?;
        // The loopback device of a new namespace is down, but servers need it to reach their backends.
        ip(&format!("-n {name} link set lo up"))
    }

    /// The namespace's number N.
    pub fn number(&self) -> u8 {
        self.number
    }

    /// The prefix of a command that runs inside.
    pub fn prefix(&self) -> Vec<String> {
        ["ip", "netns", "exec", &self.name]
            .map(String::from)
            .to_vec()
    }

    /// Removes the namespace. The pair is removed first, since deleting the namespace would release it only later.
    pub fn remove(&self) {
        let _ = ip(&format!("link del lab{}h", self.number));
        let _ = ip(&format!("netns del {}", self.name));
    }
}

/// The address of the lab's end.
pub fn outer(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, number, 1)
}

/// The address of the peer's end.
pub fn inner(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, number, 2)
}

fn ip(arguments: &str) -> Result<(), String> {
    let mut command = Command::new("ip");
    command.args(arguments.split(' ')).stdin(Stdio::null());
    let output = command
        .output()
        .map_err(|error| format!("can't run ip (package iproute2): {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(format!("ip {arguments}: {}", text.trim()))
}
