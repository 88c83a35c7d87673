//! The part of WASI preview 1 that the start-up code of compilers uses: text output to the log, clocks, random bytes;
//! no arguments, environment or files. All other WASI functions return ENOSYS.
//!
//! `wasmtime-wasi` is not used: its files and sockets would block a worker, and it depends on a hundred crates. A
//! module can read files with `fetch`, which does not block.

use std::time::{SystemTime, UNIX_EPOCH};

use lowroad_module::MessageLevel;
use wasmtime::{Caller, Linker, Module, Result, Val, bail};

use super::guest::GuestState;
use super::memory::{bytes, bytes_mut, u32_at, write_u32, write_u64};

/// The module name for imports.
pub(super) const WASI: &str = "wasi_snapshot_preview1";

const OK: i32 = 0;
const BADF: i32 = 8;
const FAULT: i32 = 21;
const INVAL: i32 = 28;
const NOSYS: i32 = 52;

/// The maximum number of buffers in one `fd_write`.
const VECTORS_MAX: u32 = 64;
/// The maximum number of bytes in one `random_get`.
const RANDOM_LEN_MAX: u32 = 64 * 1024;
/// The file type reported for standard output, so that C libraries flush after each line.
const CHARACTER_DEVICE: u32 = 2;
const REALTIME: i32 = 0;
const MONOTONIC: i32 = 1;

/// Adds the WASI functions to a linker.
pub(super) fn define(linker: &mut Linker<GuestState>) -> Result<()> {
    linker
        .func_wrap(WASI, "args_sizes_get", write_zero_sizes)?
        .func_wrap(WASI, "environ_sizes_get", write_zero_sizes)?
        .func_wrap(WASI, "args_get", |_: i32, _: i32| OK)?
        .func_wrap(WASI, "environ_get", |_: i32, _: i32| OK)?
        .func_wrap(WASI, "clock_time_get", clock_time_get)?
        .func_wrap(WASI, "random_get", random_get)?
        .func_wrap(WASI, "fd_write", fd_write)?
        .func_wrap(WASI, "fd_fdstat_get", fd_fdstat_get)?
        .func_wrap(WASI, "fd_prestat_get", |_: i32, _: i32| BADF)?
        .func_wrap(WASI, "fd_close", |_: i32| BADF)?
        .func_wrap(WASI, "sched_yield", || OK)?
        .func_wrap(WASI, "proc_exit", proc_exit)?;
    Ok(())
}

/// Adds the WASI functions that a module imports and that [`define`] has not added; they return ENOSYS.
pub(super) fn define_missing(linker: &mut Linker<GuestState>, module: &Module) {
    for import in module.imports().filter(|import| import.module() == WASI) {
        let Some(kind) = import.ty().func().cloned() else {
            continue;
        };
        // This fails for functions that `define` has added; those remain.
        let _ = linker.func_new(WASI, import.name(), kind, |_, _, results| {
            results.fill(Val::I32(NOSYS));
            Ok(())
        });
    }
}

fn write_zero_sizes(mut caller: Caller<'_, GuestState>, count: u32, len: u32) -> i32 {
    let written = write_u32(&mut caller, count, 0).and_then(|()| write_u32(&mut caller, len, 0));
    errno(written)
}

fn clock_time_get(
    mut caller: Caller<'_, GuestState>,
    clock: i32,
    _precision: i64,
    result_address: u32,
) -> i32 {
    // The result differs in each call, so a snapshot of this instance must not be reused.
    caller.data_mut().has_unique_state = true;
    let elapsed = match clock {
        REALTIME => SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default(),
        MONOTONIC => caller.data_mut().age(),
        _ => return INVAL,
    };
    let time_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
    errno(write_u64(&mut caller, result_address, time_ns))
}

fn random_get(mut caller: Caller<'_, GuestState>, result_address: u32, len: u32) -> i32 {
    // The limit bounds the duration, since this function blocks the worker.
    if len > RANDOM_LEN_MAX {
        return INVAL;
    }
    caller.data_mut().has_unique_state = true;
    let Some(buffer) = bytes_mut(&mut caller, result_address, len) else {
        return FAULT;
    };
    getrandom::fill(buffer).map_or(NOSYS, |()| OK)
}

fn fd_write(
    mut caller: Caller<'_, GuestState>,
    fd: i32,
    vectors: u32,
    count: u32,
    result_address: u32,
) -> i32 {
    // Only standard output and standard error exist, since there are no files.
    if fd != 1 && fd != 2 {
        return BADF;
    }
    // The limit bounds the loop in `gather`.
    if count > VECTORS_MAX {
        return INVAL;
    }
    let Some(text) = gather(&mut caller, vectors, count) else {
        return FAULT;
    };
    let len = u32::try_from(text.len()).unwrap_or(u32::MAX);
    let guest = caller.data_mut();
    let number = guest.number;
    if let Some(host) = guest.host(number) {
        host.log(MessageLevel::Info, &String::from_utf8_lossy(&text));
    }
    errno(write_u32(&mut caller, result_address, len))
}

fn gather(caller: &mut Caller<'_, GuestState>, vectors: u32, count: u32) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    for number in 0..count {
        // An iovec consists of a pointer and a length, 4 bytes each.
        let vector = vectors.checked_add(number * 8)?;
        let (address, len) = (
            u32_at(caller, vector)?,
            u32_at(caller, vector.checked_add(4)?)?,
        );
        let part = bytes(caller, address, len)?;
        // The whole buffer counts as written, but only its first bytes are logged.
        let remaining = super::host::LOG_LEN_MAX.saturating_sub(text.len());
        text.extend_from_slice(&part[..part.len().min(remaining)]);
    }
    Some(text)
}

fn fd_fdstat_get(mut caller: Caller<'_, GuestState>, fd: i32, result_address: u32) -> i32 {
    if !(0..=2).contains(&fd) {
        return BADF;
    }
    let Some(stat) = bytes_mut(&mut caller, result_address, 24) else {
        return FAULT;
    };
    // The flags and rights are 0; the first byte is the file type.
    stat.fill(0);
    errno(write_u32(&mut caller, result_address, CHARACTER_DEVICE))
}

fn proc_exit(code: i32) -> Result<()> {
    bail!("the module exited with code {code}; return from lowroad_handle instead")
}

fn errno(result: Option<()>) -> i32 {
    result.map_or(FAULT, |()| OK)
}
