//! The server's functions, as called by a WebAssembly module: the functions that the module imports from `lowroad`.

use super::CallPointer;

mod raw {
    use super::CallPointer;

    #[link(wasm_import_module = "lowroad")]
    extern "C" {
        pub fn get(
            c: CallPointer,
            what: u32,
            n: *const u8,
            nl: usize,
            b: *mut u8,
            bl: usize,
        ) -> i64;
        pub fn read(c: CallPointer, from: u32, b: *mut u8, bl: usize) -> i64;
        pub fn left(c: CallPointer, from: u32) -> i64;
        pub fn status(c: CallPointer, status: u32) -> i32;
        pub fn field(c: CallPointer, n: *const u8, nl: usize, v: *const u8, vl: usize) -> i32;
        pub fn send(c: CallPointer, b: *const u8, bl: usize) -> i32;
        pub fn send_stored(c: CallPointer, p: *const u8, pl: usize) -> i32;
        pub fn flush(c: CallPointer) -> i32;
        pub fn timer(c: CallPointer, after_ms: u32) -> i32;
        pub fn fetch(c: CallPointer, t: *const u8, tl: usize) -> i32;
        pub fn fetched(c: CallPointer, number: u32) -> i32;
        pub fn memory(c: CallPointer) -> u64;
        pub fn set_memory(c: CallPointer, memory: u64) -> i32;
        pub fn ticket(c: CallPointer) -> u64;
        #[link_name = "continue"]
        pub fn go_on(ticket: u64) -> i32;
        pub fn log(c: CallPointer, level: u32, t: *const u8, tl: usize) -> i32;
        pub fn now_ms() -> u64;
    }
}

macro_rules! wrap {
    ($($name:ident($($arg:ident: $type:ty as $($raw:expr),+);*) -> $result:ty;)*) => {
        $(pub(super) fn $name(call: CallPointer, $($arg: $type),*) -> $result {
            // SAFETY: `call` is the server's handle; the other pointers come from slices that outlive this function
            // call, and are passed with their lengths.
            unsafe { raw::$name(call, $($($raw),+),*) }
        })*
    };
}

wrap! {
    get(what: u32 as what; name: &[u8] as name.as_ptr(), name.len();
        buf: &mut [u8] as buf.as_mut_ptr(), buf.len()) -> i64;
    read(from: u32 as from; buf: &mut [u8] as buf.as_mut_ptr(), buf.len()) -> i64;
    left(from: u32 as from) -> i64;
    status(status: u32 as status) -> i32;
    field(name: &[u8] as name.as_ptr(), name.len();
        value: &[u8] as value.as_ptr(), value.len()) -> i32;
    send(bytes: &[u8] as bytes.as_ptr(), bytes.len()) -> i32;
    send_stored(path: &[u8] as path.as_ptr(), path.len()) -> i32;
    flush() -> i32;
    timer(after_ms: u32 as after_ms) -> i32;
    fetch(target: &[u8] as target.as_ptr(), target.len()) -> i32;
    fetched(number: u32 as number) -> i32;
    memory() -> u64;
    set_memory(memory: u64 as memory) -> i32;
    ticket() -> u64;
    log(level: u32 as level; text: &[u8] as text.as_ptr(), text.len()) -> i32;
}

pub(super) fn go_on(ticket: u64) -> i32 {
    // SAFETY: the function accepts any number.
    unsafe { raw::go_on(ticket) }
}

pub(super) fn now_ms() -> u64 {
    // SAFETY: the function has no arguments.
    unsafe { raw::now_ms() }
}
