//! Access to an instance's memory. Every access is checked against its length; an access outside returns `None` and is
//! counted. Independent of the contents.

use wasmtime::Caller;

use super::guest::GuestState;

/// The `len` bytes at `at`.
pub(super) fn bytes<'a>(caller: &'a Caller<'_, GuestState>, at: u32, len: u32) -> Option<&'a [u8]> {
    let memory = caller.data().memory?;
    let found = part(memory.data(caller), at, len);
    if found.is_none() {
        caller.data().bad_pointer();
    }
    found
}

/// The `len` bytes at `at`, writable.
pub(super) fn bytes_mut<'a>(
    caller: &'a mut Caller<'_, GuestState>,
    at: u32,
    len: u32,
) -> Option<&'a mut [u8]> {
    let memory = caller.data().memory?;
    let (all, guest) = memory.data_and_store_mut(caller);
    let found = part_mut(all, at, len);
    if found.is_none() {
        guest.bad_pointer();
    }
    found
}

/// A checked part of a slice.
pub(super) fn part(all: &[u8], at: u32, len: u32) -> Option<&[u8]> {
    let at = at as usize;
    // Checked in usize: `at + len` may exceed 32 bits.
    all.get(at..at.checked_add(len as usize)?)
}

/// A checked part of a slice, writable.
pub(super) fn part_mut(all: &mut [u8], at: u32, len: u32) -> Option<&mut [u8]> {
    let at = at as usize;
    all.get_mut(at..at.checked_add(len as usize)?)
}

/// Reads the little-endian number at `at`.
pub(super) fn u32_at(caller: &Caller<'_, GuestState>, at: u32) -> Option<u32> {
    let found = bytes(caller, at, 4)?;
    Some(u32::from_le_bytes(found.try_into().expect("4 bytes")))
}

/// Writes a little-endian number.
pub(super) fn put_u32(caller: &mut Caller<'_, GuestState>, at: u32, value: u32) -> Option<()> {
    bytes_mut(caller, at, 4)?.copy_from_slice(&value.to_le_bytes());
    Some(())
}

/// Writes a little-endian number.
pub(super) fn put_u64(caller: &mut Caller<'_, GuestState>, at: u32, value: u64) -> Option<()> {
    bytes_mut(caller, at, 8)?.copy_from_slice(&value.to_le_bytes());
    Some(())
}
