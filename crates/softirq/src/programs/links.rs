//! Which program runs on which interface: links of the kernel, kept by their names in a folder, so that
//! they outlive the process and are replaced in one step.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use lowroad_wire::width::index;

use crate::error::Error;
use crate::layout::{KEPT_PARTS_MAX_TC, PARTS_MAX};
use crate::machine::interfaces::Interface;
use crate::programs::calls::{checked, owned};
use crate::programs::fan_out;
use crate::programs::load::{Loaded, Tier};

/// Beginnings of the names under which links are kept; the interface's name follows.
pub const PREFIXES: [&str; 4] = ["xdp-", "behind-", "tc-", "out-"];

/// Attaches the programs of a tier to an interface, or puts them in the place of those that are there.
/// The one behind comes before that, so that nothing is marked in vain; that at egress first of all, so
/// that no connection is taken back whose old socket is heard. Alone neither does anything, so it
/// does not matter if they can't be removed after an error.
///
/// # Errors
/// With the kernel's: `EOPNOTSUPP` where the driver can't, `EBUSY` where another XDP program runs.
pub fn attach(loaded: &Loaded, interface: &Interface, folder: &Path) -> Result<(), Error> {
    let name = &interface.name;
    let out = folder.join(format!("out-{name}"));
    place(loaded.out(), interface, Hook::TcEgress, &out)?;
    let behind = folder.join(format!("behind-{name}"));
    let answering = || match (loaded.tier(), loaded.behind()) {
        (Tier::Xdp, Some(program)) => {
            place(program, interface, Hook::TcIngress, &behind)?;
            let xdp = folder.join(format!("xdp-{name}"));
            place(loaded.answering(), interface, Hook::XdpDriver, &xdp).inspect_err(|_| {
                let _ = fs::remove_file(&behind);
            })?;
            // Only now the driver says whether it sends frames of others.
            fan_out::fill(loaded, interface.index, folder);
            Ok(())
        }
        _ => {
            let tc = folder.join(format!("tc-{name}"));
            place(loaded.answering(), interface, Hook::TcIngress, &tc)
        }
    };
    answering().inspect_err(|_| {
        if !is_attached(name, folder) {
            let _ = fs::remove_file(&out);
        }
    })
}

/// Whether a program of either tier is there.
fn is_attached(interface_name: &str, folder: &Path) -> bool {
    let is_there = |prefix| folder.join(format!("{prefix}{interface_name}")).exists();
    is_there("xdp-") || is_there("tc-")
}

/// Takes the programs of one tier off an interface.
///
/// # Errors
/// When a link can't be removed.
pub fn remove(interface_name: &str, tier: Tier, folder: &Path) -> Result<(), Error> {
    let prefixes = match tier {
        Tier::Xdp => ["xdp-", "behind-"].as_slice(),
        Tier::Tc => &["tc-"],
    };
    let gone = |prefix: &str| {
        let path = folder.join(format!("{prefix}{interface_name}"));
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::system(path.display().to_string())(error))
            }
            _ => Ok(()),
        }
    };
    prefixes.iter().try_for_each(|prefix| gone(prefix))?;
    // Both tiers need what is at egress.
    match is_attached(interface_name, folder) {
        true => Ok(()),
        false => gone("out-"),
    }
}

/// The interfaces that have something attached, with their tiers.
#[must_use]
pub fn attached(folder: &Path) -> Vec<(String, Tier)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(interface) = name.strip_prefix("xdp-") {
            found.push((interface.to_owned(), Tier::Xdp));
        } else if let Some(interface) = name.strip_prefix("tc-") {
            found.push((interface.to_owned(), Tier::Tc));
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// Segments of an answer at most where the connection stays open, on any of the interfaces.
#[must_use]
pub fn kept_parts_max(folder: &Path) -> usize {
    let is_native = attached(folder).iter().any(|(_, tier)| *tier == Tier::Xdp);
    let max = if is_native && fan_out::is_filled(folder) {
        PARTS_MAX
    } else {
        KEPT_PARTS_MAX_TC
    };
    index(max)
}

#[derive(Clone, Copy)]
enum Hook {
    XdpDriver,
    TcIngress,
    TcEgress,
}

fn place(
    program: BorrowedFd<'_>,
    interface: &Interface,
    hook: Hook,
    path: &Path,
) -> Result<(), Error> {
    let what = || format!("{} on {}", hook.name(), interface.name);
    let pinned = CString::new(path.as_os_str().as_bytes()).expect("no zero in a path");
    if path.exists() {
        // SAFETY: the path is a C string that lives until after the call.
        let link = owned(unsafe { libbpf_sys::bpf_obj_get(pinned.as_ptr()) })
            .map_err(Error::system(what()))?;
        // SAFETY: both descriptors are open; no options.
        let status = unsafe {
            libbpf_sys::bpf_link_update(link.as_raw_fd(), program.as_raw_fd(), std::ptr::null())
        };
        match checked(status) {
            // Its interface has gone; another has the name now.
            Err(error) if error.raw_os_error() == Some(libc::ENOLINK) => {
                fs::remove_file(path).map_err(Error::system(path.display().to_string()))?;
            }
            other => return other.map_err(Error::system(what())),
        }
    }
    let mut options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    options.flags = hook.flags();
    // SAFETY: the program's descriptor is open, and the options have their size in them.
    let link = owned(unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), interface.index, hook.kind(), &options)
    })
    .map_err(Error::system(what()))?;
    // SAFETY: the link's descriptor is open; the path is a C string.
    checked(unsafe { libbpf_sys::bpf_obj_pin(link.as_raw_fd(), pinned.as_ptr()) })
        .map_err(Error::system(format!("pinning {}", path.display())))
}

impl Hook {
    fn name(self) -> &'static str {
        match self {
            Hook::XdpDriver => "native XDP",
            Hook::TcIngress => "TC ingress",
            Hook::TcEgress => "TC egress",
        }
    }

    fn kind(self) -> libbpf_sys::bpf_attach_type {
        match self {
            Hook::XdpDriver => libbpf_sys::BPF_XDP,
            Hook::TcIngress => libbpf_sys::BPF_TCX_INGRESS,
            Hook::TcEgress => libbpf_sys::BPF_TCX_EGRESS,
        }
    }

    fn flags(self) -> u32 {
        match self {
            // Never the generic mode: TC does the same with fewer surprises.
            Hook::XdpDriver => libbpf_sys::XDP_FLAGS_DRV_MODE,
            Hook::TcIngress | Hook::TcEgress => 0,
        }
    }
}
