//! Access to an instance's memory. Every access is checked against the memory's length; an access that is out of bounds
//! returns `None` and is counted.

use wasmtime::Caller;

use super::guest::GuestState;

/// The `len` bytes at `address`.
pub(super) fn bytes<'a>(
    caller: &'a Caller<'_, GuestState>,
    address: u32,
    len: u32,
) -> Option<&'a [u8]> {
    let memory = caller.data().memory?;
    let found = part(memory.data(caller), address, len);
    if found.is_none() {
        caller.data().bad_pointer();
    }
    found
}

/// The `len` bytes at `address`, writable.
pub(super) fn bytes_mut<'a>(
    caller: &'a mut Caller<'_, GuestState>,
    address: u32,
    len: u32,
) -> Option<&'a mut [u8]> {
    let memory = caller.data().memory?;
    let (memory_bytes, guest) = memory.data_and_store_mut(caller);
    let found = part_mut(memory_bytes, address, len);
    if found.is_none() {
        guest.bad_pointer();
    }
    found
}

/// The `len` bytes at `address`, after a bounds check.
pub(super) fn part(memory_bytes: &[u8], address: u32, len: u32) -> Option<&[u8]> {
    let address = address as usize;
    // Computed in usize, since `address + len` may exceed 32 bits.
    memory_bytes.get(address..address.checked_add(len as usize)?)
}

/// The `len` bytes at `address`, writable, after a bounds check.
pub(super) fn part_mut(memory_bytes: &mut [u8], address: u32, len: u32) -> Option<&mut [u8]> {
    let address = address as usize;
    memory_bytes.get_mut(address..address.checked_add(len as usize)?)
}

/// Reads the little-endian number at `address`.
pub(super) fn u32_at(caller: &Caller<'_, GuestState>, address: u32) -> Option<u32> {
    let found = bytes(caller, address, 4)?;
    Some(u32::from_le_bytes(found.try_into().expect("4 bytes")))
}

/// Writes a little-endian number of 4 bytes at `address`.
pub(super) fn write_u32(
    caller: &mut Caller<'_, GuestState>,
    address: u32,
    value: u32,
) -> Option<()> {
    bytes_mut(caller, address, 4)?.copy_from_slice(&value.to_le_bytes());
    Some(())
}

/// Writes a little-endian number of 8 bytes at `address`.
pub(super) fn write_u64(
    caller: &mut Caller<'_, GuestState>,
    address: u32,
    value: u64,
) -> Option<()> {
    bytes_mut(caller, address, 8)?.copy_from_slice(&value.to_le_bytes());
    Some(())
}
