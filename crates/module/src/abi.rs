//! The interface (ABI) for shared libraries and WebAssembly modules, in Rust: the counterpart of `include/lowroad.h`.
//!
//! [`export!`](crate::export) defines the functions that a module exports; they call the functions of this file.

use std::borrow::Cow;
use std::ffi::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};

use crate::{
    step, CallEvent, CallHost, CallStep, HostValue, MessageLevel, Module, ModuleSettings,
    ResumeTicket, SendStatus,
};

#[cfg(not(target_arch = "wasm32"))]
#[path = "abi/library.rs"]
mod sys;
#[cfg(target_arch = "wasm32")]
#[path = "abi/wasm.rs"]
mod sys;

#[cfg(not(target_arch = "wasm32"))]
pub use sys::{load, HostTable};

/// The version of the interface.
pub const ABI: u32 = 1;

/// The server's handle of a call; opaque to modules.
pub type CallPointer = *mut c_void;

/// A call in the server, reached through the ABI.
struct ForeignCall(CallPointer);

impl CallHost for ForeignCall {
    fn get(&self, kind: HostValue, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        const GUESS: usize = 128;
        // Most values fit the first buffer. `get` returns the full length, so a longer value needs one more function
        // call.
        let mut value = vec![0; GUESS];
        let mut len = usize::try_from(sys::get(self.0, kind as u32, name, &mut value)).ok()?;
        if len > value.len() {
            value.resize(len, 0);
            len = usize::try_from(sys::get(self.0, kind as u32, name, &mut value)).ok()?;
        }
        value.truncate(len);
        Some(Cow::Owned(value))
    }

    fn read(&mut self, from: u32, buf: &mut [u8]) -> usize {
        usize::try_from(sys::read(self.0, from, buf)).unwrap_or(0)
    }

    fn left(&self, from: u32) -> usize {
        usize::try_from(sys::left(self.0, from)).unwrap_or(0)
    }

    fn status(&mut self, status: u32) -> bool {
        sys::status(self.0, status) >= 0
    }

    fn field(&mut self, name: &[u8], value: &[u8]) -> bool {
        sys::field(self.0, name, value) >= 0
    }

    fn send(&mut self, bytes: &[u8]) -> SendStatus {
        SendStatus::from_number(sys::send(self.0, bytes))
    }

    fn send_stored(&mut self, path: &[u8]) -> bool {
        sys::send_stored(self.0, path) >= 0
    }

    fn flush(&mut self) -> bool {
        sys::flush(self.0) >= 0
    }

    fn timer(&mut self, after_ms: u32) {
        sys::timer(self.0, after_ms);
    }

    fn fetch(&mut self, target: &[u8]) -> Option<u32> {
        u32::try_from(sys::fetch(self.0, target)).ok()
    }

    fn fetched(&self, number: u32) -> Option<u16> {
        u16::try_from(sys::fetched(self.0, number)).ok()
    }

    fn ticket(&mut self) -> ResumeTicket {
        ResumeTicket::new(sys::ticket(self.0), |number| sys::go_on(number) >= 0)
    }

    fn log(&self, level: MessageLevel, text: &str) {
        sys::log(self.0, level as u32, text.as_bytes());
    }

    fn now_ms(&self) -> u64 {
        sys::now_ms()
    }

    fn memory(&self) -> u64 {
        sys::memory(self.0)
    }

    fn set_memory(&mut self, memory: u64) {
        sys::set_memory(self.0, memory);
    }
}

/// `lowroad_start`: returns null if the module cannot start.
pub fn start<M: Module>(worker: CallPointer) -> *mut c_void {
    let mut host = ForeignCall(worker);
    // The server can reset an instance to its state after the start only if its memory has not grown since. Therefore
    // the allocator is made to get its first page now; the length of the vector is not constant, so the compiler cannot
    // remove the allocation.
    #[cfg(target_arch = "wasm32")]
    drop(vec![0u8; usize::from(host.now_ms() != 0)]);
    let started = catch_unwind(AssertUnwindSafe(|| {
        M::start(&mut ModuleSettings::new(&mut host))
    }));
    let started =
        started.unwrap_or_else(|_| Err("the module panicked in its start function".to_string()));
    match started {
        Ok(module) => Box::into_raw(Box::new(module)).cast(),
        Err(problem) => {
            host.log(MessageLevel::Error, &problem);
            std::ptr::null_mut()
        }
    }
}

/// `lowroad_handle`. If the module panics, only the call fails, not the server.
///
/// # Safety
/// `state` was returned by [`start`] for the same `M`, has not been stopped, and is not in use. `call` was passed by
/// the server, and only this function has set its memory.
pub unsafe fn handle<M: Module>(
    state: *mut c_void,
    call: CallPointer,
    event: i32,
    number: u32,
) -> i32 {
    let event = match CallEvent::from_numbers(event, number) {
        Some(event) => event,
        None => return CallStep::Wait.to_number(),
    };
    let mut host = ForeignCall(call);
    let memory = host.memory() as usize as *mut M::Memory;
    // SAFETY: by this function's contract, the memory is 0 or a pointer returned by `Box::into_raw` below. The memory
    // is set to 0 here, so that the box has one owner even if the module panics.
    let mut boxed_memory = (!memory.is_null()).then(|| unsafe { Box::from_raw(memory) });
    if boxed_memory.is_some() {
        host.set_memory(0);
    }
    // SAFETY: by this function's contract, `state` points to a module of this type that has no other users.
    let module = unsafe { &mut *state.cast::<M>() };
    let result = catch_unwind(AssertUnwindSafe(|| {
        step(module, &mut host, &mut boxed_memory, event)
    }));
    match result {
        Ok(next) => {
            if let Some(memory) = boxed_memory {
                host.set_memory(Box::into_raw(memory) as usize as u64);
            }
            next.to_number()
        }
        Err(_) => {
            host.log(MessageLevel::Error, "the module panicked");
            CallStep::Failed.to_number()
        }
    }
}

/// `lowroad_stop`.
///
/// # Safety
/// `state` was returned by [`start`] for the same `M`, and is not used afterwards.
pub unsafe fn stop<M: Module>(state: *mut c_void) {
    // SAFETY: by this function's contract, `state` is the pointer that `start` created from a box.
    let module = unsafe { Box::from_raw(state.cast::<M>()) };
    // A panic must not unwind into the server. The module ends in any case, so the result is ignored.
    let _ = catch_unwind(AssertUnwindSafe(|| module.stop()));
}

/// Defines the functions that a shared library or WebAssembly module exports. Must be used once in a crate with a
/// `crate-type` that includes `cdylib`.
#[macro_export]
macro_rules! export {
    ($module:ty) => {
        #[no_mangle]
        extern "C" fn lowroad_abi() -> u32 {
            $crate::abi::ABI
        }

        $crate::export_load!();

        #[no_mangle]
        extern "C" fn lowroad_start(worker: *mut ::std::ffi::c_void) -> *mut ::std::ffi::c_void {
            $crate::abi::start::<$module>(worker)
        }

        #[no_mangle]
        unsafe extern "C" fn lowroad_handle(
            state: *mut ::std::ffi::c_void,
            call: *mut ::std::ffi::c_void,
            event: i32,
            number: u32,
        ) -> i32 {
            // SAFETY: the server calls this function as lowroad.h specifies.
            unsafe { $crate::abi::handle::<$module>(state, call, event, number) }
        }

        #[no_mangle]
        unsafe extern "C" fn lowroad_stop(state: *mut ::std::ffi::c_void) {
            // SAFETY: the server calls this function as lowroad.h specifies.
            unsafe { $crate::abi::stop::<$module>(state) }
        }
    };
}

/// The export of shared libraries only; used by [`export!`](crate::export).
#[cfg(not(target_arch = "wasm32"))]
#[doc(hidden)]
#[macro_export]
macro_rules! export_load {
    () => {
        #[no_mangle]
        unsafe extern "C" fn lowroad_load(table: *const $crate::abi::HostTable) -> i32 {
            // SAFETY: the server calls this function as lowroad.h specifies.
            unsafe { $crate::abi::load(table) }
        }
    };
}

/// The export of shared libraries only; used by [`export!`](crate::export).
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
#[macro_export]
macro_rules! export_load {
    () => {};
}
