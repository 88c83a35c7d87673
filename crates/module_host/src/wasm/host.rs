//! Host functions: the functions of `lowroad.h`, imported by WebAssembly modules from `lowroad`. Each one checks the
//! call's number and all pointers, and returns -1 if they are invalid. `CallHost`, which all kinds of modules share,
//! implements the behaviour.

use lowroad_module::{CallHost, HostValue, MessageLevel};
use wasmtime::{Caller, Linker, Result, bail};

use super::guest::GuestState;
use super::memory::{bytes, part, part_mut};

/// The module name for imports.
const LOWROAD: &str = "lowroad";
/// The maximum length of a log line in bytes.
pub(super) const LOG_LEN_MAX: usize = 4 * 1024;
/// The maximum number of bytes that one invocation of a host function copies, to bound its time.
const COPY_LEN_MAX: u32 = 1 << 20;
const REFUSED: i32 = -1;

/// Adds the host functions to a linker.
pub(super) fn define(linker: &mut Linker<GuestState>) -> Result<()> {
    linker
        .func_wrap(LOWROAD, "get", get)?
        .func_wrap(LOWROAD, "read", read)?
        .func_wrap(LOWROAD, "left", left)?
        .func_wrap(LOWROAD, "status", status)?
        .func_wrap(LOWROAD, "field", field)?
        .func_wrap(LOWROAD, "send", send)?
        .func_wrap(LOWROAD, "send_stored", send_stored)?
        .func_wrap(LOWROAD, "flush", flush)?
        .func_wrap(LOWROAD, "timer", timer)?
        .func_wrap(LOWROAD, "fetch", fetch)?
        .func_wrap(LOWROAD, "fetched", fetched)?
        .func_wrap(LOWROAD, "memory", memory)?
        .func_wrap(LOWROAD, "set_memory", set_memory)?
        .func_wrap(LOWROAD, "ticket", ticket)?
        .func_wrap(LOWROAD, "continue", resume)?
        .func_wrap(LOWROAD, "log", log)?
        .func_wrap(LOWROAD, "now_ms", now_ms)?
        .func_wrap("env", "abort", abort)?;
    Ok(())
}

type GuestCaller<'a> = Caller<'a, GuestState>;

/// Runs `function` with the instance's memory and the call with this number. If `function` returns `None`, for example
/// for a pointer outside the memory, returns `refused`.
fn with<T>(
    caller: &mut GuestCaller<'_>,
    call: u32,
    refused: T,
    function: impl FnOnce(&mut [u8], &mut dyn CallHost) -> Option<T>,
) -> T {
    let Some(memory) = caller.data().memory else {
        return refused;
    };
    // Memory and state are borrowed together, so that arguments need not be copied.
    let (memory_bytes, guest) = memory.data_and_store_mut(caller);
    let Some(host) = guest.host(call) else {
        return refused;
    };
    match function(memory_bytes, host) {
        Some(done) => done,
        None => {
            guest.bad_pointer();
            refused
        }
    }
}

fn result_code(is_done: bool) -> i32 {
    if is_done { 0 } else { REFUSED }
}

fn get(
    mut caller: GuestCaller<'_>,
    call: u32,
    kind: u32,
    name: u32,
    name_len: u32,
    buffer: u32,
    buffer_len: u32,
) -> i64 {
    with(&mut caller, call, -1, |memory_bytes, host| {
        let Some(kind) = HostValue::from_number(kind) else {
            return Some(-1);
        };
        let Some(value) = host.get(kind, part(memory_bytes, name, name_len)?) else {
            return Some(-1);
        };
        // The full length is returned even if the buffer is too small, so that the module can retry with a larger one.
        let len = value.len().min(buffer_len as usize);
        // The whole buffer is checked even if the value is shorter, so that a wrong length is always detected.
        part_mut(memory_bytes, buffer, buffer_len)?[..len].copy_from_slice(&value[..len]);
        Some(i64::try_from(value.len()).unwrap_or(i64::MAX))
    })
}

fn read(mut caller: GuestCaller<'_>, call: u32, from: u32, buffer: u32, buffer_len: u32) -> i64 {
    with(&mut caller, call, -1, |memory_bytes, host| {
        // A module can read the rest with further calls; each one must be short, since it blocks the worker.
        let buffer = part_mut(memory_bytes, buffer, buffer_len.min(COPY_LEN_MAX))?;
        Some(i64::try_from(host.read(from, buffer)).unwrap_or(-1))
    })
}

fn left(mut caller: GuestCaller<'_>, call: u32, from: u32) -> i64 {
    with(&mut caller, call, -1, |_, host| {
        i64::try_from(host.left(from)).ok()
    })
}

fn status(mut caller: GuestCaller<'_>, call: u32, status: u32) -> i32 {
    with(&mut caller, call, REFUSED, |_, host| {
        Some(result_code(host.status(status)))
    })
}

fn field(
    mut caller: GuestCaller<'_>,
    call: u32,
    name: u32,
    name_len: u32,
    value: u32,
    value_len: u32,
) -> i32 {
    with(&mut caller, call, REFUSED, |memory_bytes, host| {
        let (name, value) = (
            part(memory_bytes, name, name_len)?,
            part(memory_bytes, value, value_len)?,
        );
        Some(result_code(host.field(name, value)))
    })
}

fn send(mut caller: GuestCaller<'_>, call: u32, from: u32, len: u32) -> i32 {
    with(&mut caller, call, REFUSED, |memory_bytes, host| {
        Some(host.send(part(memory_bytes, from, len)?).to_number())
    })
}

fn send_stored(mut caller: GuestCaller<'_>, call: u32, path: u32, len: u32) -> i32 {
    with(&mut caller, call, REFUSED, |memory_bytes, host| {
        Some(result_code(host.send_stored(part(
            memory_bytes,
            path,
            len,
        )?)))
    })
}

fn flush(mut caller: GuestCaller<'_>, call: u32) -> i32 {
    with(&mut caller, call, REFUSED, |_, host| {
        Some(result_code(host.flush()))
    })
}

fn timer(mut caller: GuestCaller<'_>, call: u32, after_ms: u32) -> i32 {
    with(&mut caller, call, REFUSED, |_, host| {
        host.timer(after_ms);
        Some(0)
    })
}

fn fetch(mut caller: GuestCaller<'_>, call: u32, target: u32, len: u32) -> i32 {
    with(&mut caller, call, REFUSED, |memory_bytes, host| {
        let number = host.fetch(part(memory_bytes, target, len)?);
        Some(
            number
                .and_then(|number| i32::try_from(number).ok())
                .unwrap_or(REFUSED),
        )
    })
}

fn fetched(mut caller: GuestCaller<'_>, call: u32, number: u32) -> i32 {
    with(&mut caller, call, REFUSED, |_, host| {
        Some(host.fetched(number).map_or(REFUSED, i32::from))
    })
}

fn memory(mut caller: GuestCaller<'_>, call: u32) -> u64 {
    with(&mut caller, call, 0, |_, host| Some(host.memory()))
}

fn set_memory(mut caller: GuestCaller<'_>, call: u32, memory: u64) -> i32 {
    with(&mut caller, call, REFUSED, |_, host| {
        host.set_memory(memory);
        Some(0)
    })
}

fn ticket(mut caller: GuestCaller<'_>, call: u32) -> u64 {
    with(&mut caller, call, 0, |_, host| Some(host.ticket().number()))
}

fn resume(ticket: u64) -> i32 {
    result_code(crate::module::resume_call(ticket))
}

fn log(mut caller: GuestCaller<'_>, call: u32, level: u32, text: u32, len: u32) -> i32 {
    with(&mut caller, call, REFUSED, |memory_bytes, host| {
        let text = part(memory_bytes, text, len)?;
        // Truncated at a byte position; an incomplete character at the end is replaced below.
        let text = &text[..text.len().min(LOG_LEN_MAX)];
        host.log(
            MessageLevel::from_number(level),
            &String::from_utf8_lossy(text),
        );
        Some(0)
    })
}

fn now_ms(mut caller: GuestCaller<'_>) -> u64 {
    // With a snapshot, the time read during the start would be the same for all requests.
    caller.data_mut().has_unique_state = true;
    crate::module::now_ms()
}

/// The function that AssemblyScript calls to abort. The pointers refer to its strings: UTF-16, preceded by the length
/// in bytes.
fn abort(caller: GuestCaller<'_>, message: u32, file: u32, line: u32, column: u32) -> Result<()> {
    let text = |address: u32| {
        let len = super::memory::u32_at(&caller, address.checked_sub(4)?)?;
        let units: Vec<u16> = bytes(&caller, address, len.min(1024))?
            .chunks_exact(2)
            .map(|unit| u16::from_le_bytes([unit[0], unit[1]]))
            .collect();
        Some(String::from_utf16_lossy(&units))
    };
    let (message, file) = (text(message), text(file));
    bail!(
        "it aborted at {}:{line}:{column}: {}",
        file.unwrap_or_default(),
        message.unwrap_or_default()
    )
}
