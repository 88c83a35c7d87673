//! Socket interception: a BPF `sk_lookup` program assigns new connections to a server's port to listening sockets of
//! this process. See Documentation/bpf/prog_sk_lookup.rst.
//!
//! Nothing is pinned: program, map and link end with the process, however it ends, and the kernel removes closed
//! sockets from the map. From then on, connections reach the server as without interception.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder};
use lowroad_wire::width::index;

use crate::error::LevelError;
use crate::layout as level_layout;
use crate::level::clients::{ClientPrefix, prefix_key};

use super::calls::owned;
use super::loader::{AlignedObject, last_lines, messages};

#[allow(
    missing_docs,
    non_camel_case_types,
    unreachable_pub,
    clippy::all,
    clippy::pedantic
)]
mod layout {
    include!(concat!(env!("OUT_DIR"), "/intercepted.rs"));
}

static OBJECT: &AlignedObject<[u8]> =
    &AlignedObject(*include_bytes!(concat!(env!("OUT_DIR"), "/lookup.bpf.o")));

/// The program's name in the kernel, which limits names to 15 bytes.
pub const PROGRAM: &str = "lowroad_lookup";

const KEY_LEN: usize = size_of::<layout::intercepted_address>();

/// An intercepted address, and the socket that gets its connections.
#[derive(Debug)]
pub struct InterceptAddress<'s> {
    /// The address of the intercepted server.
    pub address: SocketAddr,
    /// A listening socket. If several sockets share a port, any one of them.
    pub socket: BorrowedFd<'s>,
}

/// An attached program; dropping the value detaches it.
#[derive(Debug)]
pub struct SocketInterception {
    /// Closing the link detaches the program.
    _link: OwnedFd,
}

impl SocketInterception {
    /// Intercepts new connections to these addresses in the thread's network namespace, except from clients with denied
    /// prefixes (IPv4 as `::ffff:a.b.c.d`). The longest matching prefix of both lists decides; a prefix in both lists
    /// is denied.
    ///
    /// Returns `LevelError::Verifier` with the last lines of the verifier's log; `LevelError::Usage` if there are too
    /// many addresses; `LevelError::System` if the kernel lacks support, or the process lacks CAP_BPF or CAP_NET_ADMIN.
    pub fn start(
        intercepted: &[InterceptAddress<'_>],
        denied: &[ClientPrefix],
        allowed: &[ClientPrefix],
    ) -> Result<SocketInterception, LevelError> {
        if intercepted.len() > index(layout::INTERCEPTED_MAX) {
            let (count, max) = (intercepted.len(), layout::INTERCEPTED_MAX);
            return Err(LevelError::Usage(format!(
                "can't intercept {count} addresses; the maximum is {max}"
            )));
        }
        let object = load()?;
        let mut maps = object.maps();
        let sockets = maps.find(|map| map.name() == "listen_sockets");
        let sockets = sockets.expect("the object has it");
        for entry in intercepted {
            // A SOCKHASH is written with descriptors, and stores the sockets.
            let socket = u64::try_from(entry.socket.as_raw_fd()).unwrap_or(u64::MAX);
            sockets
                .update(&key(entry.address), &socket.to_ne_bytes(), MapFlags::ANY)
                .map_err(LevelError::bpf(format!("intercepting {}", entry.address)))?;
        }
        let clients = maps.find(|map| map.name() == "denied_clients");
        let clients = clients.expect("the object has it");
        // Denials are written last, so that they overwrite equal prefixes.
        for (prefixes, access) in [
            (allowed, level_layout::PREFIX_ALLOWED),
            (denied, level_layout::PREFIX_DENIED),
        ] {
            for prefix in prefixes {
                clients
                    .update(&prefix_key(prefix), &access.to_ne_bytes(), MapFlags::ANY)
                    .map_err(LevelError::bpf("a prefix of clients"))?;
            }
        }
        // The link keeps the program alive, and the program its maps.
        attach(&object).map(|link| SocketInterception { _link: link })
    }
}

/// The number of sk_lookup programs attached to this network namespace, by any process.
///
/// # Errors
/// If the kernel does not report it.
pub fn attached(namespace: &File) -> Result<u32, LevelError> {
    let mut count = 0;
    // SAFETY: the descriptor is open; no program ids are requested, so none are written.
    let status = unsafe {
        libbpf_sys::bpf_prog_query(
            namespace.as_raw_fd(),
            libbpf_sys::BPF_SK_LOOKUP,
            0,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            &raw mut count,
        )
    };
    super::calls::checked(status).map_err(LevelError::system("listing programs"))?;
    Ok(count)
}

/// Whether this kernel supports interception.
///
/// # Errors
/// If that can't be determined, usually because the process may not load programs.
pub fn is_available() -> Result<bool, LevelError> {
    // SAFETY: no options; the call loads a program of two instructions and closes it again.
    let status = unsafe {
        libbpf_sys::libbpf_probe_bpf_prog_type(
            libbpf_sys::BPF_PROG_TYPE_SK_LOOKUP,
            std::ptr::null(),
        )
    };
    super::calls::checked(status).map_err(LevelError::system("trying a program"))?;
    Ok(status == 1)
}

fn load() -> Result<Object, LevelError> {
    // libbpf prints the verifier's log while it loads.
    let log = messages();
    let open = ObjectBuilder::default()
        .open_memory(&OBJECT.0)
        .map_err(LevelError::bpf("opening the program that intercepts"))?;
    open.load().map_err(|error| {
        let lines = log
            .lock()
            .map_or_else(|_| String::new(), |text| last_lines(&text));
        match lines.is_empty() {
            true => LevelError::bpf("loading the program that intercepts")(error),
            false => LevelError::Verifier(lines),
        }
    })
}

fn attach(object: &Object) -> Result<OwnedFd, LevelError> {
    let namespace = File::open("/proc/thread-self/ns/net")
        .map_err(LevelError::system("the network namespace"))?;
    let mut programs = object.progs();
    let program = programs.find(|program| program.name() == PROGRAM);
    let program = program.expect("the object has it");
    // SAFETY: both descriptors are open; no options.
    owned(unsafe {
        libbpf_sys::bpf_link_create(
            program.as_fd().as_raw_fd(),
            namespace.as_raw_fd(),
            libbpf_sys::BPF_SK_LOOKUP,
            std::ptr::null(),
        )
    })
    .map_err(LevelError::system("intercepting connections (sk_lookup)"))
}

/// The map's key, a `struct intercepted_address`.
fn key(intercepted: SocketAddr) -> [u8; KEY_LEN] {
    let address = match intercepted.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let mut key = [0; KEY_LEN];
    let (start, end) = key.split_at_mut(16);
    start.copy_from_slice(&address.octets());
    end.copy_from_slice(&u32::from(intercepted.port()).to_ne_bytes());
    key
}
