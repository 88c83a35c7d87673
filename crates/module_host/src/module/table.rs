//! The functions that a library can call (C ABI): the table of `lowroad.h`, implemented by `CallHost`.
//!
//! The functions are inherently unsafe: the library's arguments are trusted to satisfy the header's requirements. A
//! faulty library can corrupt the server anyway, since it runs in the same process.

use std::ffi::{c_char, c_int, c_void};

use lowroad_module::abi::{ABI, CallPointer, HostTable};
use lowroad_module::{CallHost, HostValue, MessageLevel};

use super::{clock, tickets};

const REFUSED: c_int = -1;
const DONE: c_int = 0;

/// The target of a [`CallPointer`]; it is on the stack while the library runs.
pub struct CallPointee<'a> {
    host: &'a mut dyn CallHost,
}

impl<'a> CallPointee<'a> {
    /// A pointee for a call, or for a starting module.
    pub fn new(host: &'a mut dyn CallHost) -> CallPointee<'a> {
        CallPointee { host }
    }

    /// The pointer for the library; valid until `self` is used again.
    pub fn pointer(&mut self) -> CallPointer {
        std::ptr::from_mut(self).cast()
    }
}

/// The table that is passed to every library.
pub static TABLE: HostTable = HostTable {
    abi: ABI,
    #[expect(clippy::cast_possible_truncation, reason = "some hundred bytes")]
    size: size_of::<HostTable>() as u32,
    get,
    read,
    left,
    status,
    field,
    send,
    send_stored,
    flush,
    timer,
    fetch,
    fetched,
    memory,
    set_memory,
    ticket,
    go_on,
    log,
    now_ms,
};

/// The `CallHost` that a pointer refers to; `None` for NULL.
///
/// # Safety
/// `call` is NULL, or the pointer that the server has passed to the library's function that is currently running.
unsafe fn host<'a>(call: CallPointer) -> Option<&'a mut dyn CallHost> {
    // SAFETY: by this function's contract, `call` points to a live `CallPointee`. The server does not use it while the
    // library runs, so there is no other reference.
    let pointee = unsafe { call.cast::<CallPointee<'a>>().as_mut()? };
    Some(&mut *pointee.host)
}

/// The bytes of an argument from a library.
///
/// # Safety
/// `data` is valid for `len` bytes until the library's function continues, or `len` is 0.
unsafe fn bytes<'a>(data: *const c_void, len: usize) -> &'a [u8] {
    if data.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: by this function's contract.
    unsafe { std::slice::from_raw_parts(data.cast(), len) }
}

/// An output buffer of a library. It is zeroed first, since it may be uninitialized.
///
/// # Safety
/// As for [`bytes`]; in addition, the bytes must be writable.
unsafe fn output_buffer<'a>(data: *mut c_void, len: usize) -> &'a mut [u8] {
    if data.is_null() || len == 0 {
        return &mut [];
    }
    // SAFETY: by this function's contract the bytes are writable.
    unsafe {
        // A slice of uninitialized bytes would be undefined behaviour.
        data.cast::<u8>().write_bytes(0, len);
        std::slice::from_raw_parts_mut(data.cast(), len)
    }
}

fn result_code(is_done: bool) -> c_int {
    if is_done { DONE } else { REFUSED }
}

fn len_result(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX)
}

unsafe extern "C" fn get(
    call: CallPointer,
    kind: u32,
    name: *const c_char,
    name_len: usize,
    buffer: *mut c_char,
    buffer_len: usize,
) -> i64 {
    // SAFETY: the library keeps to lowroad.h.
    let (host, name) = unsafe { (host(call), bytes(name.cast(), name_len)) };
    let Some((host, kind)) = host.zip(HostValue::from_number(kind)) else {
        return -1;
    };
    let Some(value) = host.get(kind, name) else {
        return -1;
    };
    let len = value.len().min(buffer_len);
    if len > 0 && !buffer.is_null() {
        // SAFETY: `buffer` is valid for `buffer_len` bytes, which is no less than `len`.
        unsafe { buffer.cast::<u8>().copy_from(value.as_ptr(), len) };
    }
    len_result(value.len())
}

unsafe extern "C" fn read(
    call: CallPointer,
    from: u32,
    buffer: *mut c_void,
    buffer_len: usize,
) -> i64 {
    // SAFETY: the library keeps to lowroad.h.
    let Some(host) = (unsafe { host(call) }) else {
        return -1;
    };
    let len = buffer_len.min(host.left(from));
    // SAFETY: as above; `len` is no more than `buffer_len`.
    len_result(host.read(from, unsafe { output_buffer(buffer, len) }))
}

unsafe extern "C" fn left(call: CallPointer, from: u32) -> i64 {
    // SAFETY: the library keeps to lowroad.h.
    unsafe { host(call) }.map_or(-1, |host| len_result(host.left(from)))
}

unsafe extern "C" fn status(call: CallPointer, status: u32) -> c_int {
    // SAFETY: the library keeps to lowroad.h.
    unsafe { host(call) }.map_or(REFUSED, |host| result_code(host.status(status)))
}

unsafe extern "C" fn field(
    call: CallPointer,
    name: *const c_char,
    name_len: usize,
    value: *const c_char,
    value_len: usize,
) -> c_int {
    // SAFETY: the library keeps to lowroad.h.
    let (host, name, value) = unsafe {
        let name = bytes(name.cast(), name_len);
        (host(call), name, bytes(value.cast(), value_len))
    };
    host.map_or(REFUSED, |host| result_code(host.field(name, value)))
}

unsafe extern "C" fn send(call: CallPointer, data: *const c_void, len: usize) -> c_int {
    // SAFETY: the library keeps to lowroad.h.
    let (host, bytes) = unsafe { (host(call), bytes(data, len)) };
    host.map_or(REFUSED, |host| host.send(bytes).to_number())
}

unsafe extern "C" fn send_stored(call: CallPointer, path: *const c_char, len: usize) -> c_int {
    // SAFETY: the library keeps to lowroad.h.
    let (host, path) = unsafe { (host(call), bytes(path.cast(), len)) };
    host.map_or(REFUSED, |host| result_code(host.send_stored(path)))
}

unsafe extern "C" fn flush(call: CallPointer) -> c_int {
    // SAFETY: the library keeps to lowroad.h.
    unsafe { host(call) }.map_or(REFUSED, |host| result_code(host.flush()))
}

unsafe extern "C" fn timer(call: CallPointer, after_ms: u32) -> c_int {
    // SAFETY: the library keeps to lowroad.h.
    let Some(host) = (unsafe { host(call) }) else {
        return REFUSED;
    };
    host.timer(after_ms);
    DONE
}

unsafe extern "C" fn fetch(call: CallPointer, target: *const c_char, len: usize) -> c_int {
    // SAFETY: the library keeps to lowroad.h.
    let (host, target) = unsafe { (host(call), bytes(target.cast(), len)) };
    let number = host.and_then(|host| host.fetch(target));
    number
        .and_then(|number| c_int::try_from(number).ok())
        .unwrap_or(REFUSED)
}

unsafe extern "C" fn fetched(call: CallPointer, number: u32) -> c_int {
    // SAFETY: the library keeps to lowroad.h.
    let status = unsafe { host(call) }.and_then(|host| host.fetched(number));
    status.map_or(REFUSED, c_int::from)
}

unsafe extern "C" fn memory(call: CallPointer) -> u64 {
    // SAFETY: the library keeps to lowroad.h.
    unsafe { host(call) }.map_or(0, |host| host.memory())
}

unsafe extern "C" fn set_memory(call: CallPointer, memory: u64) -> c_int {
    // SAFETY: the library keeps to lowroad.h.
    let Some(host) = (unsafe { host(call) }) else {
        return REFUSED;
    };
    host.set_memory(memory);
    DONE
}

unsafe extern "C" fn ticket(call: CallPointer) -> u64 {
    // SAFETY: the library keeps to lowroad.h.
    unsafe { host(call) }.map_or(0, |host| host.ticket().number())
}

unsafe extern "C" fn go_on(ticket: u64) -> c_int {
    result_code(tickets::resume_call(ticket))
}

unsafe extern "C" fn log(call: CallPointer, level: u32, text: *const c_char, len: usize) -> c_int {
    // SAFETY: the library keeps to lowroad.h.
    let (host, text) = unsafe { (host(call), bytes(text.cast(), len)) };
    let Some(host) = host else {
        return REFUSED;
    };
    host.log(
        MessageLevel::from_number(level),
        &String::from_utf8_lossy(text),
    );
    DONE
}

unsafe extern "C" fn now_ms() -> u64 {
    clock::now_ms()
}
