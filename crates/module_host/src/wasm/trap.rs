//! The failures of instances, and the messages about them for the operator.

use lowroad_handler::HandlerFailure;
use lowroad_http::status::StatusCode;
use lowroad_limits::RefusalReason;
use wasmtime::{Error, PoolConcurrencyLimitError, Trap, WasmBacktrace};

use super::counts::{WasmCounters, increment};

/// The error of an instance that has computed for too long.
#[derive(Clone, Copy, Debug)]
pub(super) struct ComputeTimeout {
    pub(super) compute_ms_max: u64,
}

impl std::fmt::Display for ComputeTimeout {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            to,
            "it computed for more than {} ms without a pause (limit compute)",
            self.compute_ms_max
        )
    }
}

impl std::error::Error for ComputeTimeout {}

/// Counts a failure, and returns it with a message for the operator.
pub(super) fn failure(counts: &WasmCounters, module: &str, error: &Error) -> HandlerFailure {
    if error.is::<PoolConcurrencyLimitError>() {
        increment(&counts.full);
        let detail = format!("module {module}: no instance is free ({error})");
        return HandlerFailure::new(StatusCode::SERVICE_UNAVAILABLE, detail)
            .with_reason(RefusalReason::Concurrency);
    }
    increment(if error.is::<ComputeTimeout>() {
        &counts.deadlines
    } else {
        &counts.traps
    });
    let mut detail = format!("module {module}: {}", reason(error));
    if let Some(trace) = error.downcast_ref::<WasmBacktrace>() {
        detail.push_str(&frames(trace));
    }
    HandlerFailure::new(StatusCode::INTERNAL_ERROR, detail)
}

fn reason(error: &Error) -> String {
    if let Some(timeout) = error.downcast_ref::<ComputeTimeout>() {
        return timeout.to_string();
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::StackOverflow) => {
            "it trapped: stack overflow; check for endless recursion".into()
        }
        Some(trap) => format!("it trapped: {trap}"),
        // The root cause is the error itself, without wasmtime's context.
        None => error.root_cause().to_string(),
    }
}

fn frames(trace: &WasmBacktrace) -> String {
    let mut text = String::new();
    for (number, frame) in trace.frames().iter().enumerate() {
        let name = match frame.func_name() {
            Some(name) => name.to_string(),
            None => format!("function {}", frame.func_index()),
        };
        text.push_str(if number == 0 { ", in " } else { ", called by " });
        text.push_str(&name);
    }
    text
}
