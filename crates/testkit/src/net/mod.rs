//! Networks for tests: namespaces connected by veth pairs, a link that mangles frames, a server with generated files,
//! and a client that verifies responses.
//!
//! ```text
//! client (eth0) --veth-- (up0) mangler (down0) --veth-- (eth0) server
//! ```
//!
//! The tests do not depend on which level answers: the server's process or the fast path.

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

pub use lane::{LaneCounts, ManglingRule};
pub use mangler::{LinkMangler, LinkMangling};
pub use namespace::{CableEnd, NamespaceProgram, NetError, NetNamespace, pair};
pub use servers::WebServer;
pub use site::{TestPage, TestSite};
pub use wirecheck::{CheckReport, WireCheck};
pub use xdp_verdict::{FrameVerdict, XdpVerdict};

/// The client's addresses on a `TestPath`.
pub const CLIENT: (Ipv4Addr, Ipv6Addr) = addresses(1);

/// The server's addresses on a `TestPath`.
pub const SERVER: (Ipv4Addr, Ipv6Addr) = addresses(2);

/// The device of the client and of the server, each in its namespace.
pub const DEVICE: &str = "eth0";

const fn addresses(host: u8) -> (Ipv4Addr, Ipv6Addr) {
    let v6 = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, host as u16);
    (Ipv4Addr::new(10, 77, 0, host), v6)
}

/// The reason why tests with namespaces can't run on this system, for [`crate::skip`]; `None` if they can.
pub fn missing_requirement() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("network namespaces need root".to_owned());
    }
    let missing = ["ip", "ethtool"]
        .into_iter()
        .find(|name| !is_installed(name));
    if let Some(name) = missing {
        return Some(format!("there is no `{name}`"));
    }
    // In some containers root can't create namespaces, so this tries it.
    NetNamespace::new("probe")
        .err()
        .map(|error| error.to_string())
}

/// Whether a program is installed: it can be started, regardless of its exit status.
pub fn is_installed(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok()
}

/// A client and a server in separate namespaces, and the mangled link between them.
pub struct TestPath {
    /// Declared first, so that it is dropped before the namespaces.
    pub mangler: LinkMangler,
    /// The client's namespace, with [`CLIENT`].
    pub client: NetNamespace,
    /// The server's namespace, with [`SERVER`].
    pub server: NetNamespace,
    /// The mangler's namespace, which has no addresses.
    pub middle: NetNamespace,
    /// The programs in `middle` that are needed for XDP_TX at both ends.
    _pass_programs: [XdpVerdict; 2],
}

impl TestPath {
    /// A path with this MTU. Offloads are disabled, so frames have complete checksums and do not exceed the MTU. XDP
    /// programs at both ends may use XDP_TX.
    pub fn new(manglings: &LinkMangling, mtu: u16) -> Result<TestPath, NetError> {
        let client = NetNamespace::new("client")?;
        let server = NetNamespace::new("server")?;
        let middle = NetNamespace::new("middle")?;
        let ends = [(&client, "up0", CLIENT), (&server, "down0", SERVER)];
        for (namespace, inner, addresses) in ends {
            let outer_end = CableEnd {
                namespace,
                device: DEVICE,
                addresses: Some(addresses),
            };
            let inner_end = CableEnd {
                namespace: &middle,
                device: inner,
                addresses: None,
            };
            pair(&outer_end, &inner_end, mtu)?;
            namespace.offload_off(DEVICE)?;
            middle.offload_off(inner)?;
        }
        // On veth, frames sent with XDP_TX arrive only if the peer device has an XDP program too; see `xdp_verdict`.
        let pass_programs = [middle.accept_xdp("up0")?, middle.accept_xdp("down0")?];
        let mangler = LinkMangler::start(&middle, ["up0", "down0"], manglings, mtu)?;
        Ok(TestPath {
            mangler,
            client,
            server,
            middle,
            _pass_programs: pass_programs,
        })
    }
}
