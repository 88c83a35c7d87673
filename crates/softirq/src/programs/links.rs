//! Attaches programs to interfaces by BPF links. The links are pinned by name in a folder, so that they outlive the
//! process, and their programs can be replaced atomically.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use lowroad_wire::width::index;

use crate::error::LevelError;
use crate::layout::{KEPT_PARTS_MAX_TC, PARTS_MAX};
use crate::machine::interfaces::NetworkInterface;
use crate::programs::calls::{checked, owned};
use crate::programs::fan_out;
use crate::programs::loader::{LoadedPrograms, ProgramTier};

/// Prefixes of the names of pinned links; the interface's name follows.
pub const PREFIXES: [&str; 4] = ["xdp-", "behind-", "tc-", "out-"];

/// Attaches the programs of a tier to an interface, or replaces those that are attached. The egress program comes
/// first, so that the old sockets of reclaimed connections can't reach the client; then the program behind XDP, so that
/// none of XDP's marks goes unprocessed. Neither of these two has an effect without the answering program, so they may
/// remain after an error.
///
/// # Errors
/// The kernel's error: `EOPNOTSUPP` if the driver lacks XDP, `EBUSY` if another XDP program is attached.
pub fn attach(
    loaded: &LoadedPrograms,
    interface: &NetworkInterface,
    folder: &Path,
) -> Result<(), LevelError> {
    let name = &interface.name;
    let out = folder.join(format!("out-{name}"));
    attach_program(loaded.out(), interface, AttachHook::TcEgress, &out)?;
    let after_xdp_path = folder.join(format!("behind-{name}"));
    let attach_answering = || match (loaded.tier(), loaded.after_xdp()) {
        (ProgramTier::Xdp, Some(program)) => {
            attach_program(program, interface, AttachHook::TcIngress, &after_xdp_path)?;
            let xdp = folder.join(format!("xdp-{name}"));
            // If XDP can't be attached, the program behind it is removed, since it would have nothing to do.
            attach_program(loaded.answering(), interface, AttachHook::XdpDriver, &xdp)
                .inspect_err(|_| {
                    let _ = fs::remove_file(&after_xdp_path);
                })?;
            // Some drivers report only after attachment whether they transmit redirected frames.
            fan_out::create_maps_if_supported(loaded, interface.index, folder);
            Ok(())
        }
        _ => {
            let tc = folder.join(format!("tc-{name}"));
            attach_program(loaded.answering(), interface, AttachHook::TcIngress, &tc)
        }
    };
    attach_answering().inspect_err(|_| {
        // The egress program stays if programs of an earlier attachment need it.
        if !is_attached(name, folder) {
            let _ = fs::remove_file(&out);
        }
    })
}

/// Whether the answering program of any tier is attached to the interface.
fn is_attached(interface_name: &str, folder: &Path) -> bool {
    let exists = |prefix| folder.join(format!("{prefix}{interface_name}")).exists();
    exists("xdp-") || exists("tc-")
}

/// Detaches the programs of one tier from an interface.
///
/// # Errors
/// If a link can't be removed.
pub fn remove(interface_name: &str, tier: ProgramTier, folder: &Path) -> Result<(), LevelError> {
    let prefixes = match tier {
        ProgramTier::Xdp => ["xdp-", "behind-"].as_slice(),
        ProgramTier::Tc => &["tc-"],
    };
    let remove_link = |prefix: &str| {
        let path = folder.join(format!("{prefix}{interface_name}"));
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(LevelError::system(path.display().to_string())(error))
            }
            _ => Ok(()),
        }
    };
    prefixes.iter().try_for_each(|prefix| remove_link(prefix))?;
    // Both tiers share the egress program.
    match is_attached(interface_name, folder) {
        true => Ok(()),
        false => remove_link("out-"),
    }
}

/// The interfaces with attached programs, and their tiers.
#[must_use]
pub fn attached(folder: &Path) -> Vec<(String, ProgramTier)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(interface) = name.strip_prefix("xdp-") {
            found.push((interface.to_owned(), ProgramTier::Xdp));
        } else if let Some(interface) = name.strip_prefix("tc-") {
            found.push((interface.to_owned(), ProgramTier::Tc));
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// Maximum number of segments of a response on connections that stay open, over all interfaces.
#[must_use]
pub fn keep_alive_parts_max(folder: &Path) -> usize {
    let is_native = attached(folder)
        .iter()
        .any(|(_, tier)| *tier == ProgramTier::Xdp);
    let max = if is_native && fan_out::has_maps(folder) {
        PARTS_MAX
    } else {
        KEPT_PARTS_MAX_TC
    };
    index(max)
}

#[derive(Clone, Copy)]
enum AttachHook {
    XdpDriver,
    TcIngress,
    TcEgress,
}

fn attach_program(
    program: BorrowedFd<'_>,
    interface: &NetworkInterface,
    hook: AttachHook,
    path: &Path,
) -> Result<(), LevelError> {
    let description = || format!("{} on {}", hook.name(), interface.name);
    let pinned = CString::new(path.as_os_str().as_bytes()).expect("no zero in a path");
    if path.exists() {
        // SAFETY: the path is a C string that outlives the call.
        let link = owned(unsafe { libbpf_sys::bpf_obj_get(pinned.as_ptr()) })
            .map_err(LevelError::system(description()))?;
        // SAFETY: both descriptors are open; no options.
        let status = unsafe {
            libbpf_sys::bpf_link_update(link.as_raw_fd(), program.as_raw_fd(), std::ptr::null())
        };
        match checked(status) {
            // The link's interface no longer exists, and another one has its name.
            Err(error) if error.raw_os_error() == Some(libc::ENOLINK) => {
                fs::remove_file(path).map_err(LevelError::system(path.display().to_string()))?;
            }
            other => return other.map_err(LevelError::system(description())),
        }
    }
    let mut options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    options.flags = hook.flags();
    // SAFETY: the program's descriptor is open; the options contain their size.
    let link = owned(unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), interface.index, hook.kind(), &options)
    })
    .map_err(LevelError::system(description()))?;
    // SAFETY: the link's descriptor is open; the path is a C string.
    checked(unsafe { libbpf_sys::bpf_obj_pin(link.as_raw_fd(), pinned.as_ptr()) })
        .map_err(LevelError::system(format!("pinning {}", path.display())))
}

impl AttachHook {
    fn name(self) -> &'static str {
        match self {
            AttachHook::XdpDriver => "native XDP",
            AttachHook::TcIngress => "TC ingress",
            AttachHook::TcEgress => "TC egress",
        }
    }

    fn kind(self) -> libbpf_sys::bpf_attach_type {
        match self {
            AttachHook::XdpDriver => libbpf_sys::BPF_XDP,
            AttachHook::TcIngress => libbpf_sys::BPF_TCX_INGRESS,
            AttachHook::TcEgress => libbpf_sys::BPF_TCX_EGRESS,
        }
    }

    fn flags(self) -> u32 {
        match self {
            // Never generic XDP: TC does the same without generic XDP's copies and limits.
            AttachHook::XdpDriver => libbpf_sys::XDP_FLAGS_DRV_MODE,
            AttachHook::TcIngress | AttachHook::TcEgress => 0,
        }
    }
}
