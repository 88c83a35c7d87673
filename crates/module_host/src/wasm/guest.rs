//! The server's data for one instance: its current call, its memory, and its remaining compute time. It is the data of
//! wasmtime's store. This module is independent of the order of events.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lowroad_module::CallHost;
use wasmtime::{Memory, Result, Store, StoreContextMut, UpdateDeadline};

use super::counts::WasmCounters;
use super::counts::increment;
use super::memory_share::MemoryShare;
use super::ticker::TICK_MS;
use super::trap::ComputeTimeout;
use crate::module::{HostedCall, StartContext};

/// The number of ticks until an instance is interrupted for the first time. The first tick can come immediately, so a
/// value of 1 could interrupt a short call.
const FIRST_TICKS: u64 = 2;

/// The server's data for one instance.
pub(super) struct GuestState {
    /// The instance's memory; set once it is instantiated.
    pub(super) memory: Option<Memory>,
    pub(super) counts: Arc<WasmCounters>,
    /// The `CallHost` while the module starts; afterwards `None`, and `call` is used.
    pub(super) start_context: Option<StartContext>,
    /// The current call.
    pub(super) call: Option<HostedCall>,
    /// The number by which the instance refers to the current call.
    pub(super) number: u32,
    /// Whether the instance has used random bytes or the time, so that a snapshot of it must not be reused.
    pub(super) has_unique_state: bool,
    pub(super) share: MemoryShare,
    compute_ms_max: u64,
    ticks_remaining: u64,
    clock_start: Option<Instant>,
}

impl GuestState {
    /// The state of a new instance, without memory and without a call.
    pub(super) fn new(
        counts: Arc<WasmCounters>,
        share: MemoryShare,
        compute_ms_max: u64,
    ) -> GuestState {
        GuestState {
            memory: None,
            counts,
            start_context: None,
            call: None,
            number: 1,
            has_unique_state: false,
            share,
            compute_ms_max,
            ticks_remaining: 0,
            clock_start: None,
        }
    }

    /// The `CallHost` for the call with this number; `None` if that is not the current call.
    pub(super) fn host(&mut self, number: u32) -> Option<&mut dyn CallHost> {
        // In a retained instance, the number of an earlier call must not give access to the current call.
        if number != self.number {
            return None;
        }
        // While the module starts, a call may already be set, which the module must not access yet.
        match (&mut self.start_context, &mut self.call) {
            (Some(start_context), _) => Some(start_context),
            (None, Some(call)) => Some(call),
            (None, None) => None,
        }
    }

    /// Counts an argument that points outside the instance's memory.
    pub(super) fn bad_pointer(&self) {
        increment(&self.counts.pointers);
    }

    /// Restarts the instance's monotonic clock, as in a new instance.
    pub(super) fn reset_clock(&mut self) {
        self.clock_start = None;
    }

    /// The time since the instance first used the monotonic clock.
    pub(super) fn age(&mut self) -> Duration {
        self.clock_start.get_or_insert_with(Instant::now).elapsed()
    }
}

/// Gives the instance its full compute limit again.
pub(super) fn reset_compute_limit(store: &mut Store<GuestState>) {
    let guest = store.data_mut();
    guest.ticks_remaining = guest.compute_ms_max.div_ceil(TICK_MS);
    store.set_epoch_deadline(FIRST_TICKS);
}

/// Handles a tick while an instance computes: yields to other tasks, or traps if the limit has been reached.
pub(super) fn on_tick(mut store: StoreContextMut<'_, GuestState>) -> Result<UpdateDeadline> {
    let guest = store.data_mut();
    match guest.ticks_remaining.checked_sub(1) {
        Some(remaining) => {
            guest.ticks_remaining = remaining;
            // The next tick interrupts again.
            Ok(UpdateDeadline::Yield(1))
        }
        None => Err(ComputeTimeout {
            compute_ms_max: guest.compute_ms_max,
        }
        .into()),
    }
}
