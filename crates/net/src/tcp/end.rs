//! Removes connections from the table.

use crate::context::{StackContext, StackCore};
use crate::stack_api::{ConnectionEnd, LinkDevice, TcpService};

/// Removes a connection and notifies the service.
pub(crate) fn end<L: LinkDevice, S: TcpService>(
    cx: &mut StackContext<'_, L>,
    service: &mut S,
    index: u32,
    end: ConnectionEnd,
) {
    let id = cx.core.table.id(index);
    if !remove(cx.core, index) {
        return;
    }
    let counters = &mut cx.core.counters;
    match end {
        ConnectionEnd::Closed => counters.ended_closed += 1,
        ConnectionEnd::Reset => counters.ended_reset += 1,
        ConnectionEnd::TimedOut => counters.ended_timed_out += 1,
    }
    service.ended(cx, id, end);
}

/// Removes a connection. Returns whether it existed.
pub(crate) fn remove(core: &mut StackCore, index: u32) -> bool {
    let Some(mut connection) = core.table.remove(index) else {
        return false;
    };
    connection.release(&mut core.pool);
    core.wheel.remove(index);
    true
}
