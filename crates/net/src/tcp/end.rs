//! Removes connections from the table.

use crate::api::{End, Link, Service};
use crate::context::{Context, Core};

/// Removes a connection and informs the service.
pub(crate) fn end<L: Link, S: Service>(
    cx: &mut Context<'_, L>,
    service: &mut S,
    index: u32,
    end: End,
) {
    let id = cx.core.table.id(index);
    if !remove(cx.core, index) {
        return;
    }
    let counters = &mut cx.core.counters;
    match end {
        End::Closed => counters.ended_closed += 1,
        End::Reset => counters.ended_reset += 1,
        End::TimedOut => counters.ended_timed_out += 1,
    }
    service.ended(cx, id, end);
}

/// Removes a connection. Returns whether there was one.
pub(crate) fn remove(core: &mut Core, index: u32) -> bool {
    let Some(mut it) = core.table.remove(index) else {
        return false;
    };
    it.release(&mut core.pool);
    core.wheel.leave(index);
    true
}
