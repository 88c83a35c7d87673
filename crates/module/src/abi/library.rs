//! The server's functions, as called by a shared library: through a table that the server passes when it loads the
//! library.

use std::os::raw::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::{CallPointer, ABI};

/// `struct lowroad_host`. Each pointer argument is followed by the number of bytes for which it is valid.
#[repr(C)]
#[allow(missing_docs)] // lowroad.h describes each function.
pub struct HostTable {
    pub abi: u32,
    pub size: u32,
    pub get:
        unsafe extern "C" fn(CallPointer, u32, *const c_char, usize, *mut c_char, usize) -> i64,
    pub read: unsafe extern "C" fn(CallPointer, u32, *mut c_void, usize) -> i64,
    pub left: unsafe extern "C" fn(CallPointer, u32) -> i64,
    pub status: unsafe extern "C" fn(CallPointer, u32) -> c_int,
    pub field:
        unsafe extern "C" fn(CallPointer, *const c_char, usize, *const c_char, usize) -> c_int,
    pub send: unsafe extern "C" fn(CallPointer, *const c_void, usize) -> c_int,
    pub send_stored: unsafe extern "C" fn(CallPointer, *const c_char, usize) -> c_int,
    pub flush: unsafe extern "C" fn(CallPointer) -> c_int,
    pub timer: unsafe extern "C" fn(CallPointer, u32) -> c_int,
    pub fetch: unsafe extern "C" fn(CallPointer, *const c_char, usize) -> c_int,
    pub fetched: unsafe extern "C" fn(CallPointer, u32) -> c_int,
    pub memory: unsafe extern "C" fn(CallPointer) -> u64,
    pub set_memory: unsafe extern "C" fn(CallPointer, u64) -> c_int,
    pub ticket: unsafe extern "C" fn(CallPointer) -> u64,
    pub go_on: unsafe extern "C" fn(u64) -> c_int,
    pub log: unsafe extern "C" fn(CallPointer, u32, *const c_char, usize) -> c_int,
    pub now_ms: unsafe extern "C" fn() -> u64,
}

static TABLE: AtomicPtr<HostTable> = AtomicPtr::new(null_mut());

/// `lowroad_load`: stores the table of the server's functions. Returns -1 if the table lacks functions of this version.
///
/// # Safety
/// `table` begins with `abi` and `size`, has `size` bytes, and is never moved or freed.
pub unsafe fn load(table: *const HostTable) -> i32 {
    // SAFETY: by this function's contract, these two fields exist in every version.
    let (abi, size) = unsafe { ((*table).abi, (*table).size) };
    if abi != ABI || (size as usize) < std::mem::size_of::<HostTable>() {
        return -1;
    }
    TABLE.store(table as *mut HostTable, Ordering::Release);
    0
}

fn table() -> &'static HostTable {
    let table = TABLE.load(Ordering::Acquire);
    assert!(!table.is_null(), "the server loads before it calls");
    // SAFETY: `load` stored the pointer after it checked the size; by its contract, the table is never freed.
    unsafe { &*table }
}

macro_rules! wrap {
    ($($name:ident($($arg:ident: $type:ty as $($raw:expr),+);*) -> $result:ty;)*) => {
        $(pub(super) fn $name(call: CallPointer, $($arg: $type),*) -> $result {
            // SAFETY: `call` is the server's handle; the other pointers come from slices that outlive this function
            // call, and are passed with their lengths.
            unsafe { (table().$name)(call, $($($raw),+),*) }
        })*
    };
}

wrap! {
    get(what: u32 as what; name: &[u8] as name.as_ptr().cast(), name.len();
        buf: &mut [u8] as buf.as_mut_ptr().cast(), buf.len()) -> i64;
    read(from: u32 as from; buf: &mut [u8] as buf.as_mut_ptr().cast(), buf.len()) -> i64;
    left(from: u32 as from) -> i64;
    status(status: u32 as status) -> i32;
    field(name: &[u8] as name.as_ptr().cast(), name.len();
        value: &[u8] as value.as_ptr().cast(), value.len()) -> i32;
    send(bytes: &[u8] as bytes.as_ptr().cast(), bytes.len()) -> i32;
    send_stored(path: &[u8] as path.as_ptr().cast(), path.len()) -> i32;
    flush() -> i32;
    timer(after_ms: u32 as after_ms) -> i32;
    fetch(target: &[u8] as target.as_ptr().cast(), target.len()) -> i32;
    fetched(number: u32 as number) -> i32;
    memory() -> u64;
    set_memory(memory: u64 as memory) -> i32;
    ticket() -> u64;
    log(level: u32 as level; text: &[u8] as text.as_ptr().cast(), text.len()) -> i32;
}

pub(super) fn go_on(ticket: u64) -> i32 {
    // SAFETY: the function accepts any number.
    unsafe { (table().go_on)(ticket) }
}

pub(super) fn now_ms() -> u64 {
    // SAFETY: the function has no arguments.
    unsafe { (table().now_ms)() }
}
