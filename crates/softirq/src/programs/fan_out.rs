//! Fan-out for native XDP, which sends one frame per received frame: DEVMAPs that list an interface several times, with
//! the program that turns the copies into parts of a response (bpf/parts.h).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use crate::error::LevelError;
use crate::layout::{FAN_OUT_SHIFT, PARTS_MAX};
use crate::machine::interfaces;
use crate::programs::calls::checked;
use crate::programs::loader::LoadedPrograms;

/// The driver can transmit redirected frames (include/uapi/linux/netdev.h, NETDEV_XDP_ACT_NDO_XMIT).
const SENDS_FRAMES_OF_OTHERS: u64 = 1 << 2;

/// Creates the maps of an interface if its driver transmits redirected frames, and removes those of interfaces that are
/// gone. Errors are ignored: without the maps, the program at TC sends long responses.
pub fn fill(loaded: &LoadedPrograms, interface: i32, folder: &Path) {
    let Ok(outer_map) = MapHandle::from_pinned_path(folder.join("fan_out")) else {
        return;
    };
    // Earlier maps refer to the program of an earlier attachment.
    remove_of(&outer_map, interface);
    if supports_redirect(interface) && fill_anyway(loaded, interface, folder).is_err() {
        remove_of(&outer_map, interface);
    }
}

/// Creates the maps regardless of the driver's features.
///
/// # Errors
/// When the kernel refuses a map.
pub fn fill_anyway(
    loaded: &LoadedPrograms,
    interface: i32,
    folder: &Path,
) -> Result<(), LevelError> {
    let Some(program) = loaded.parts() else {
        return Ok(());
    };
    let outer_map = MapHandle::from_pinned_path(folder.join("fan_out"));
    let outer_map = outer_map.map_err(LevelError::bpf("maps for copies of frames"))?;
    fill_with(&outer_map, program, interface)
}

/// Enters the maps through which `program` makes parts on an interface into `outer_map`.
pub(crate) fn fill_with(
    outer_map: &MapHandle,
    program: BorrowedFd<'_>,
    interface: i32,
) -> Result<(), LevelError> {
    let failed = || LevelError::bpf("maps for copies of frames");
    // struct bpf_devmap_val: interface index, program.
    let mut value = interface.to_ne_bytes().to_vec();
    value.extend(program.as_raw_fd().to_ne_bytes());
    for count in 2..=PARTS_MAX {
        let copies = copies(count, &value).map_err(failed())?;
        let fd = copies.as_fd().as_raw_fd().to_ne_bytes();
        outer_map
            .update(&key(interface, count), &fd, MapFlags::ANY)
            .map_err(failed())?;
    }
    Ok(())
}

/// Removes the maps of this interface, and of interfaces that are gone.
fn remove_of(outer_map: &MapHandle, interface: i32) {
    // Without the list of interfaces, none is known to be gone.
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

/// Whether any interface has such maps.
pub(crate) fn is_filled(folder: &Path) -> bool {
    let outer_map = MapHandle::from_pinned_path(folder.join("fan_out"));
    outer_map.is_ok_and(|outer_map| outer_map.keys().next().is_some())
}

fn copies(count: u32, value: &[u8]) -> libbpf_rs::Result<MapHandle> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    // Key: a position; value: struct bpf_devmap_val, an interface and a program.
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
    // SAFETY: the options have their size in them, and outlive the call.
    let status = unsafe { libbpf_sys::bpf_xdp_query(interface, 0, &mut options) };
    checked(status).is_ok() && options.feature_flags & SENDS_FRAMES_OF_OTHERS != 0
}
