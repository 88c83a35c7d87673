//! Interception: new connections to a server's port are given to listening sockets of this process, by a program that the
//! kernel asks when it looks for a listener (BPF `sk_lookup`). It knows nothing of who serves them. Read
//! Documentation/bpf/prog_sk_lookup.rst.
//!
//! Nothing is pinned: program, map and link end with the process, however that ends, and the kernel takes a socket out
//! of the map when it is closed. Then connections go to the server, as if nothing had been there.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder};
use lowroad_wire::width::index;

use crate::error::Error;
use crate::layout as level_layout;
use crate::level::clients::{Prefix, prefix_key};

use super::calls::owned;
use super::load::{Aligned, last_lines, messages};

#[allow(
    missing_docs,
    non_camel_case_types,
    unreachable_pub,
    clippy::all,
    clippy::pedantic
)]
mod layout {
    include!(concat!(env!("OUT_DIR"), "/taken.rs"));
}

static OBJECT: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/lookup.bpf.o")));

/// What the program is called in the kernel, where names have 15 bytes.
pub const PROGRAM: &str = "lowroad_lookup";

const KEY_LEN: usize = size_of::<layout::taken>();

/// An address that is taken: where clients ask, and who serves them.
#[derive(Debug)]
pub struct Taken<'s> {
    /// Where the server that is intercepted is asked.
    pub asked: SocketAddr,
    /// A socket that listens, one of those that share its port.
    pub socket: BorrowedFd<'s>,
}

/// A program that intercepts, until the value is dropped.
#[derive(Debug)]
pub struct Interception {
    /// Closed, it is off.
    _link: OwnedFd,
}

impl Interception {
    /// Intercepts new connections to these addresses in the network namespace of the thread, except those of clients
    /// with these prefixes (IPv4 as `::ffff:a.b.c.d`): denied ones, then allowed ones. The longest matching prefix
    /// decides, and a denial wins between equal ones.
    ///
    /// # Errors
    /// [`Error::Verifier`] with its last lines; [`Error::Usage`] when there are too many; [`Error::System`] when the
    /// kernel can't, or the process may not (CAP_BPF and CAP_NET_ADMIN).
    pub fn start(
        all: &[Taken<'_>],
        (denied, allowed): (&[Prefix], &[Prefix]),
    ) -> Result<Interception, Error> {
        if all.len() > index(layout::TAKEN_MAX) {
            let (count, max) = (all.len(), layout::TAKEN_MAX);
            return Err(Error::Usage(format!(
                "{count} addresses can't be intercepted, {max} can"
            )));
        }
        let object = load()?;
        let mut maps = object.maps();
        let takers = maps.find(|map| map.name() == "takers");
        let takers = takers.expect("the object has it");
        for taken in all {
            let socket = u64::try_from(taken.socket.as_raw_fd()).unwrap_or(u64::MAX);
            takers
                .update(&key(taken.asked), &socket.to_ne_bytes(), MapFlags::ANY)
                .map_err(Error::bpf(format!("intercepting {}", taken.asked)))?;
        }
        let clients = maps.find(|map| map.name() == "denied");
        let clients = clients.expect("the object has it");
        for (prefixes, says) in [
            (allowed, level_layout::PREFIX_ALLOWED),
            (denied, level_layout::PREFIX_DENIED),
        ] {
            for prefix in prefixes {
                clients
                    .update(&prefix_key(prefix), &says.to_ne_bytes(), MapFlags::ANY)
                    .map_err(Error::bpf("a prefix of clients"))?;
            }
        }
        // The link keeps the program alive, and the program its maps.
        attach(&object).map(|link| Interception { _link: link })
    }
}

/// How many programs choose who gets a connection, in the network namespace of this file; whoever attached them.
///
/// # Errors
/// When the kernel does not tell.
pub fn attached(namespace: &File) -> Result<u32, Error> {
    let mut count = 0;
    // SAFETY: the descriptor is open; no numbers are asked for, so none are written.
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
    super::calls::checked(status).map_err(Error::system("asking for programs"))?;
    Ok(count)
}

/// Whether this kernel can intercept; an error if it does not tell.
///
/// # Errors
/// With why: mostly that the process may not load programs.
pub fn is_available() -> Result<bool, Error> {
    // SAFETY: no options; the call loads a program of two instructions and closes it again.
    let status = unsafe {
        libbpf_sys::libbpf_probe_bpf_prog_type(
            libbpf_sys::BPF_PROG_TYPE_SK_LOOKUP,
            std::ptr::null(),
        )
    };
    super::calls::checked(status).map_err(Error::system("trying a program"))?;
    Ok(status == 1)
}

fn load() -> Result<Object, Error> {
    let said = messages();
    let open = ObjectBuilder::default()
        .open_memory(&OBJECT.0)
        .map_err(Error::bpf("opening the program that intercepts"))?;
    open.load().map_err(|error| {
        let lines = said
            .lock()
            .map_or_else(|_| String::new(), |said| last_lines(&said));
        match lines.is_empty() {
            true => Error::bpf("loading the program that intercepts")(error),
            false => Error::Verifier(lines),
        }
    })
}

fn attach(object: &Object) -> Result<OwnedFd, Error> {
    let namespace =
        File::open("/proc/thread-self/ns/net").map_err(Error::system("the network namespace"))?;
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
    .map_err(Error::system("intercepting connections (sk_lookup)"))
}

/// `struct taken`.
fn key(asked: SocketAddr) -> [u8; KEY_LEN] {
    let address = match asked.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let mut key = [0; KEY_LEN];
    let (begin, end) = key.split_at_mut(16);
    begin.copy_from_slice(&address.octets());
    end.copy_from_slice(&u32::from(asked.port()).to_ne_bytes());
    key
}
