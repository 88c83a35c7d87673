//! What the server knows of one instance: the call it works on, its memory, and how long it may
//! still compute. It is the data of wasmtime's store. Knows nothing of how calls go on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lowroad_module::Host;
use wasmtime::{Memory, Result, Store, StoreContextMut, UpdateDeadline};

use super::counts::Counts;
use super::counts::one;
use super::problem::TooLong;
use super::share::Share;
use super::ticker::TICK_MS;
use crate::module::{Call, Starting};

/// Ticks until an instance is interrupted for the first time. The first of them may come at once, so
/// that with one a short call could be interrupted.
const FIRST_TICKS: u64 = 2;

/// An instance's side of the server.
pub(super) struct Guest {
    /// Its memory, once it is there.
    pub(super) memory: Option<Memory>,
    pub(super) counts: Arc<Counts>,
    /// What it starts with; calls count while there is none.
    pub(super) starting: Option<Starting>,
    /// The call that it works on.
    pub(super) call: Option<Call>,
    /// The number by which it knows the call.
    pub(super) number: u32,
    /// It asked for random bytes or the time: another instance would not have become the same.
    pub(super) unlike_others: bool,
    pub(super) share: Share,
    compute_ms_max: u64,
    ticks_left: u64,
    born: Option<Instant>,
}

impl Guest {
    /// Without memory and without a call.
    pub(super) fn new(counts: Arc<Counts>, share: Share, compute_ms_max: u64) -> Guest {
        Guest {
            memory: None,
            counts,
            starting: None,
            call: None,
            number: 1,
            unlike_others: false,
            share,
            compute_ms_max,
            ticks_left: 0,
            born: None,
        }
    }

    /// What the server offers for the call of this number; `None` if it is not the current one.
    pub(super) fn host(&mut self, number: u32) -> Option<&mut dyn Host> {
        if number != self.number {
            return None;
        }
        match (&mut self.starting, &mut self.call) {
            (Some(starting), _) => Some(starting),
            (None, Some(call)) => Some(call),
            (None, None) => None,
        }
    }

    /// Something that it said pointed outside of its memory.
    pub(super) fn bad_pointer(&self) {
        one(&self.counts.pointers);
    }

    /// Its clock begins anew, as that of a new instance.
    pub(super) fn forget_age(&mut self) {
        self.born = None;
    }

    /// The time since its clock was asked first.
    pub(super) fn age(&mut self) -> Duration {
        self.born.get_or_insert_with(Instant::now).elapsed()
    }
}

/// An instance may compute as long as at the beginning.
pub(super) fn wind(store: &mut Store<Guest>) {
    let guest = store.data_mut();
    guest.ticks_left = guest.compute_ms_max.div_ceil(TICK_MS);
    store.set_epoch_deadline(FIRST_TICKS);
}

/// It has computed for a tick: others get their turn, or it is over.
pub(super) fn on_tick(mut store: StoreContextMut<'_, Guest>) -> Result<UpdateDeadline> {
    let guest = store.data_mut();
    match guest.ticks_left.checked_sub(1) {
        Some(left) => {
            guest.ticks_left = left;
            Ok(UpdateDeadline::Yield(1))
        }
        None => Err(TooLong {
            compute_ms_max: guest.compute_ms_max,
        }
        .into()),
    }
}
