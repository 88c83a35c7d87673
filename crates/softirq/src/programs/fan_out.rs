//! Fan-out for native XDP, which can send only one frame per received frame: DEVMAPs that list an interface several
//! times, with the program that turns the copies into segments of a response (bpf/parts.h).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use crate::error::LevelError;
use crate::layout::{FAN_OUT_SHIFT, PARTS_MAX};
use crate::machine::interfaces;
use crate::programs::calls::checked;
use crate::programs::loader::LoadedPrograms;

/// `NETDEV_XDP_ACT_NDO_XMIT` of linux/netdev.h: the driver can transmit frames that are redirected to it.
const NETDEV_XDP_ACT_NDO_XMIT: u64 = 1 << 2;

/// Creates the maps of an interface if its driver transmits redirected frames, and removes those of interfaces that no
/// longer exist. Errors are ignored: without the maps, the program at TC sends long responses.
pub fn create_maps_if_supported(loaded: &LoadedPrograms, interface: i32, folder: &Path) {
    let Ok(outer_map) = MapHandle::from_pinned_path(folder.join("fan_out")) else {
        return;
    };
    // Maps of an earlier attachment refer to its program.
    remove_maps_of(&outer_map, interface);
    if supports_redirect(interface) && create_maps(loaded, interface, folder).is_err() {
        remove_maps_of(&outer_map, interface);
    }
}

/// Creates the maps regardless of the driver's features.
///
/// # Errors
/// If the kernel refuses a map.
pub fn create_maps(
    loaded: &LoadedPrograms,
    interface: i32,
    folder: &Path,
) -> Result<(), LevelError> {
    let Some(program) = loaded.parts() else {
        return Ok(());
    };
    let outer_map = MapHandle::from_pinned_path(folder.join("fan_out"));
    let outer_map = outer_map.map_err(LevelError::bpf("maps for copies of frames"))?;
    enter_maps(&outer_map, program, interface)
}

/// Enters the maps of an interface, with `program`, into `outer_map`.
pub(crate) fn enter_maps(
    outer_map: &MapHandle,
    program: BorrowedFd<'_>,
    interface: i32,
) -> Result<(), LevelError> {
    let failed = || LevelError::bpf("maps for copies of frames");
    // struct bpf_devmap_val: interface index, program.
    let mut value = interface.to_ne_bytes().to_vec();
    value.extend(program.as_raw_fd().to_ne_bytes());
    for count in 2..=PARTS_MAX {
        let copies = create_devmap(count, &value).map_err(failed())?;
        let fd = copies.as_fd().as_raw_fd().to_ne_bytes();
        outer_map
            .update(&key(interface, count), &fd, MapFlags::ANY)
            .map_err(failed())?;
    }
    Ok(())
}

/// Removes the maps of this interface, and of interfaces that no longer exist.
fn remove_maps_of(outer_map: &MapHandle, interface: i32) {
    // If the interfaces can't be listed, none is known to have disappeared.
    let existing = interfaces::all().unwrap_or_default();
    let exists = |index: u64| {
        let mut indices = existing
            .iter()
            .map(|details| details.interface.index.unsigned_abs());
        existing.is_empty() || indices.any(|existing_index| u64::from(existing_index) == index)
    };
    for key in outer_map.keys() {
        let Ok(number) = <[u8; 8]>::try_from(key.as_slice()) else {
            continue;
        };
        let index = u64::from_ne_bytes(number) >> FAN_OUT_SHIFT;
        if index == u64::from(interface.unsigned_abs()) || !exists(index) {
            // A remaining entry is harmless until the interface index is reused.
            let _ = outer_map.delete(&key);
        }
    }
}

/// Whether any interface has fan-out maps.
pub(crate) fn has_maps(folder: &Path) -> bool {
    let outer_map = MapHandle::from_pinned_path(folder.join("fan_out"));
    outer_map.is_ok_and(|outer_map| outer_map.keys().next().is_some())
}

fn create_devmap(count: u32, value: &[u8]) -> libbpf_rs::Result<MapHandle> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    // The key is a position; the value is a struct bpf_devmap_val: an interface and a program.
    let map = MapHandle::create(MapType::Devmap, Some("copies"), 4, 8, count, &options)?;
    for at in 0..count {
        map.update(&at.to_ne_bytes(), value, MapFlags::ANY)?;
    }
    Ok(map)
}

fn key(interface: i32, count: u32) -> [u8; 8] {
    let interface = u64::from(interface.unsigned_abs());
    (interface << FAN_OUT_SHIFT | u64::from(count)).to_ne_bytes()
}

fn supports_redirect(interface: i32) -> bool {
    let mut options = libbpf_sys::bpf_xdp_query_opts {
        sz: size_of::<libbpf_sys::bpf_xdp_query_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    // SAFETY: the options contain their size, and outlive the call.
    let status = unsafe { libbpf_sys::bpf_xdp_query(interface, 0, &mut options) };
    checked(status).is_ok() && options.feature_flags & NETDEV_XDP_ACT_NDO_XMIT != 0
}
