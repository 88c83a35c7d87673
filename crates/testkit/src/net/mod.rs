//! Networks for tests: namespaces with cables between them, a link that mangles what passes, a
//! server with files whose content is known, and a client that verifies every byte.
//!
//! ```text
//! client (eth0) --veth-- (up0) mangler (down0) --veth-- (eth0) server
//! ```
//!
//! Knows nothing of what answers: a server's process, or something below it.

pub mod draws;
pub mod frame;
pub mod lane;
pub mod mangler;
pub mod namespace;
pub mod packet_socket;
pub mod servers;
pub mod site;
pub mod wirecheck;
pub mod xdp_verdict;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};

pub use lane::{Counts, Mangling};
pub use mangler::{Mangler, Manglings};
pub use namespace::{End, Namespace, NetError, Program, pair};
pub use servers::WebServer;
pub use site::{Page, Site};
pub use wirecheck::{Check, Report};
pub use xdp_verdict::{Verdict, XdpVerdict};

/// The client's addresses on a [`Path`].
pub const CLIENT: (Ipv4Addr, Ipv6Addr) = addresses(1);

/// The server's addresses on a [`Path`].
pub const SERVER: (Ipv4Addr, Ipv6Addr) = addresses(2);

/// The device of the client, and that of the server, in its namespace.
pub const DEVICE: &str = "eth0";

const fn addresses(host: u8) -> (Ipv4Addr, Ipv6Addr) {
    let v6 = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, host as u16);
    (Ipv4Addr::new(10, 77, 0, host), v6)
}

/// What this machine lacks for tests with namespaces, for [`crate::skip`]; `None` if nothing.
pub fn lacks() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("network namespaces need root".to_owned());
    }
    let missing = ["ip", "ethtool"].into_iter().find(|name| !starts(name));
    if let Some(name) = missing {
        return Some(format!("there is no `{name}`"));
    }
    Namespace::new("probe").err().map(|error| error.to_string())
}

/// Whether a program is there: whether it starts, whatever it says then.
pub fn starts(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok()
}

/// A client and a server, each with a namespace of its own, and what lies between them.
pub struct Path {
    /// Stops first.
    pub mangler: Mangler,
    /// Where the client is, at [`CLIENT`].
    pub client: Namespace,
    /// Where the server is, at [`SERVER`].
    pub server: Namespace,
    /// Where the mangler is; without addresses.
    pub middle: Namespace,
    /// What lets programs at both ends send frames back.
    _passing: [XdpVerdict; 2],
}

impl Path {
    /// A path with this MTU. All frames on it are complete: checksummed, and no longer than that.
    /// XDP programs at both ends may send frames back.
    pub fn new(manglings: &Manglings, mtu: u16) -> Result<Path, NetError> {
        let client = Namespace::new("client")?;
        let server = Namespace::new("server")?;
        let middle = Namespace::new("middle")?;
        let ends = [(&client, "up0", CLIENT), (&server, "down0", SERVER)];
        for (namespace, inner, addresses) in ends {
            let outer_end = End {
                namespace,
                device: DEVICE,
                addresses: Some(addresses),
            };
            let inner_end = End {
                namespace: &middle,
                device: inner,
                addresses: None,
            };
            pair(&outer_end, &inner_end, mtu)?;
            namespace.offload_off(DEVICE)?;
            middle.offload_off(inner)?;
        }
        let passing = [middle.accept_xdp("up0")?, middle.accept_xdp("down0")?];
        let mangler = Mangler::start(&middle, ["up0", "down0"], manglings, mtu)?;
        Ok(Path {
            mangler,
            client,
            server,
            middle,
            _passing: passing,
        })
    }
}
