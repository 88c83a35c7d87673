//! An instance's memory, looked at from outside: every access is checked against its length. Where
//! something points outside there is nothing, and it is counted. Knows nothing of what is in it.

use wasmtime::Caller;

use super::guest::Guest;

/// Some bytes.
pub(super) fn bytes<'a>(caller: &'a Caller<'_, Guest>, at: u32, len: u32) -> Option<&'a [u8]> {
    let memory = caller.data().memory?;
    let found = part(memory.data(caller), at, len);
    if found.is_none() {
        caller.data().bad_pointer();
    }
    found
}

/// Some bytes to write to.
pub(super) fn bytes_mut<'a>(
    caller: &'a mut Caller<'_, Guest>,
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

/// Some of all bytes.
pub(super) fn part(all: &[u8], at: u32, len: u32) -> Option<&[u8]> {
    let at = at as usize;
    all.get(at..at.checked_add(len as usize)?)
}

/// Some of all bytes, to write to.
pub(super) fn part_mut(all: &mut [u8], at: u32, len: u32) -> Option<&mut [u8]> {
    let at = at as usize;
    all.get_mut(at..at.checked_add(len as usize)?)
}

/// The number at a place.
pub(super) fn u32_at(caller: &Caller<'_, Guest>, at: u32) -> Option<u32> {
    let found = bytes(caller, at, 4)?;
    Some(u32::from_le_bytes(found.try_into().expect("4 bytes")))
}

/// Writes a number.
pub(super) fn put_u32(caller: &mut Caller<'_, Guest>, at: u32, value: u32) -> Option<()> {
    bytes_mut(caller, at, 4)?.copy_from_slice(&value.to_le_bytes());
    Some(())
}

/// Writes a number.
pub(super) fn put_u64(caller: &mut Caller<'_, Guest>, at: u32, value: u64) -> Option<()> {
    bytes_mut(caller, at, 8)?.copy_from_slice(&value.to_le_bytes());
    Some(())
}
