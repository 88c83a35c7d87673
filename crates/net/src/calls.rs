//! The operations that a service can call, and the work deferred until its callbacks return.

use alloc::vec::Vec;
use core::net::SocketAddrV4;

use crate::context::{StackContext, StackCore};
use crate::stack_api::{
    ConnectionId, LinkDevice, SendPiece, SendQueueFull, StackCalls, TcpService,
};
use crate::tcp::connection::{HandshakeState, TcpConnection};
use crate::tcp::queue::QueueRefusal;
use crate::tcp::segment::ConnectionKey;
use crate::tcp::{end, output, receive_data};

/// The first ephemeral port (RFC 6335 §6).
const PORT_FIRST: u16 = 49_152;
/// Ports tried for one connection, times the number of cores: replies to a port arrive at this core with a probability
/// of one in the number of cores. With 16 cores, the probability that none of the 1,024 ports is usable is 10^-28.
const PORT_TRIES: usize = 64;

impl<L: LinkDevice> StackCalls for StackContext<'_, L> {
    fn now_us(&self) -> u64 {
        self.core.now_us
    }

    fn send(&mut self, id: ConnectionId, piece: SendPiece<'_>) -> Result<(), SendQueueFull> {
        let core = &mut *self.core;
        let Some(connection) = core.table.get_mut(id) else {
            return Err(SendQueueFull);
        };
        // A FIN ends the queue: data after it could never be sent.
        if connection.is_closing {
            return Err(SendQueueFull);
        }
        connection.record_progress(core.now_us);
        let pushed = connection.queue.push(&mut core.pool, piece);
        if !connection.is_pending {
            core.mark(id.index);
        }
        match pushed {
            Ok(()) => return Ok(()),
            Err(QueueRefusal::Queue) => core.counters.send_queue_full += 1,
            Err(QueueRefusal::Buffer) => core.counters.send_no_buffer += 1,
        }
        Err(SendQueueFull)
    }

    fn unsent_len(&self, id: ConnectionId) -> usize {
        self.core
            .table
            .get(id)
            .map_or(0, |connection| connection.queue.len())
    }

    fn waiting_len(&self, id: ConnectionId) -> usize {
        let connection = self.core.table.get(id);
        let waiting = connection.and_then(|connection| connection.waiting.as_ref());
        waiting.map_or(0, |waiting| waiting.bytes().len())
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.core.counters.each().collect()
    }

    fn close(&mut self, id: ConnectionId) {
        let core = &mut *self.core;
        let Some(connection) = core.table.get_mut(id) else {
            return;
        };
        if connection.state != HandshakeState::Open {
            return self.abort(id);
        }
        connection.is_closing = true;
        if let Some(waiting) = connection.waiting.take() {
            core.pool.release(waiting.buffer);
        }
        // A closed service reads no more input, so the full window can be advertised.
        receive_data::update_window(core, id);
        core.mark(id.index);
    }

    fn abort(&mut self, id: ConnectionId) {
        let Some(connection) = self.core.table.get(id) else {
            return;
        };
        // In SYN-SENT the peer has no connection to reset.
        if connection.state != HandshakeState::SynSent {
            self.reset(id.index);
        }
        self.core.counters.ended_aborted += 1;
        end::remove(self.core, id.index);
    }

    fn resume(&mut self, id: ConnectionId) {
        if let Some(connection) = self.core.table.get_mut(id) {
            connection.wants_input = true;
            self.core.mark(id.index);
        }
    }

    fn connect(&mut self, to: SocketAddrV4) -> Result<ConnectionId, SendQueueFull> {
        let id = connect(self.core, to);
        if id.is_none() {
            self.core.counters.connect_refused += 1;
        }
        id.ok_or(SendQueueFull)
    }
}

fn connect(core: &mut StackCore, to: SocketAddrV4) -> Option<ConnectionId> {
    let local = core.local?;
    let remote = to.ip().to_bits();
    // Such addresses belong to no host, or are the local address.
    if crate::ipv4::is_not_host(remote) || local.is_broadcast(remote) || remote == local.address {
        return None;
    }
    local.next_hop(remote)?;
    let key = free_key(core, remote, to.port())?;
    let mut connection = TcpConnection::new(key, core.local_mss(), core.now_us);
    connection.state = HandshakeState::SynSent;
    connection.is_active_open = true;
    // The next hop is resolved when the SYN is sent.
    connection.needs_mac = true;
    let isn = core.half_open.outgoing_isn(key, core.now_us);
    connection.snd_una = isn;
    connection.snd_nxt = isn;
    output::prepare(&mut connection, core.mac, [0; 6], local.address);
    let id = core.table.insert(connection)?;
    // The idle timeout also bounds the duration of the handshake.
    core.wheel
        .schedule(id.index, core.now_us + core.idle_timeout_us);
    core.mark(id.index);
    Some(id)
}

/// A free local port for a connection to this address; its replies must arrive at this core.
fn free_key(core: &mut StackCore, remote: u32, remote_port: u16) -> Option<ConnectionKey> {
    let cores = core.share.map_or(1, |share| share.steering.count());
    (0..PORT_TRIES * usize::from(cores)).find_map(|_| {
        let port = core.next_port.max(PORT_FIRST);
        core.next_port = port.checked_add(1).unwrap_or(PORT_FIRST);
        let key = ConnectionKey::new(remote, remote_port, port);
        // Replies are steered to a core by a hash that includes the local port.
        if core.share.is_some_and(|share| !share.owns(key)) {
            return None;
        }
        // A connection in TIME_WAIT still occupies its four-tuple (RFC 9293 §3.3.2).
        let is_used = core.table.find(key).is_some()
            || core.time_wait.find(key, core.now_us).is_some()
            || core.ports.contains(&port);
        (!is_used).then_some(key)
    })
}

/// Does the deferred work of callbacks: delivers requested input, and sends queued data.
pub(crate) fn flush<L: LinkDevice, S: TcpService>(cx: &mut StackContext<'_, L>, service: &mut S) {
    while let Some(index) = cx.core.pending.pop() {
        let Some(connection) = cx.core.table.at_mut(index) else {
            continue;
        };
        // The slot may have been reused since it was marked; the connection that is now in it is then not pending.
        if !core::mem::take(&mut connection.is_pending) {
            continue;
        }
        if connection.wants_input {
            let id = cx.core.table.id(index);
            receive_data::deliver_unread(cx, service, id);
        }
        cx.output(index);
    }
}
