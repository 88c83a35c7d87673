//! The deadlines of a connection: delayed ACKs, retransmission timeouts, and the idle timeout.

use super::connection::{HandshakeState, MSS_MIN, NEVER};
use super::end::end;
use crate::context::StackContext;
use crate::stack_api::{ConnectionEnd, LinkDevice, TcpService};

/// The number of consecutive timeouts after which the peer is considered unreachable.
const RETRIES_MAX: u8 = 10;
/// The same number for a SYN.
const SYN_RETRIES_MAX: u8 = 5;
/// The number of timeouts after which the MAC address of the next hop is resolved again.
const MAC_REFRESH_RETRIES: u8 = 2;
/// The number of timeouts after which the path is assumed to drop long segments (black hole detection, RFC 4821).
const MSS_REDUCTION_RETRIES: u8 = 4;
/// An MSS that every path supports.
const MSS_SAFE: u16 = 536;

/// Handles the due deadlines of a connection.
pub(crate) fn check_deadlines<L: LinkDevice, S: TcpService>(
    cx: &mut StackContext<'_, L>,
    service: &mut S,
    index: u32,
) {
    let now_us = cx.core.now_us;
    let idle_timeout_us = cx.core.idle_timeout_us;
    let Some(connection) = cx.core.table.at(index) else {
        return;
    };
    // The idle timeout is checked first: a connection that ends needs no ACK.
    if now_us >= connection.last_received_us.saturating_add(idle_timeout_us) {
        return give_up(cx, service, index);
    }
    if now_us >= connection.ack_at_us {
        cx.core.counters.acks_delayed += 1;
        cx.send_ack(index);
    }
    let is_failed = match cx.core.table.at(index) {
        Some(connection) if now_us >= connection.resend_at_us => resend(cx, index),
        _ => false,
    };
    if is_failed {
        return give_up(cx, service, index);
    }
    if let Some(connection) = cx.core.table.at(index) {
        let idle_at_us = connection.last_received_us.saturating_add(idle_timeout_us);
        // Each connection has one wheel entry, at its earliest deadline.
        let at_us = connection
            .ack_at_us
            .min(connection.resend_at_us)
            .min(idle_at_us);
        cx.core.wheel.schedule(index, at_us);
    }
}

fn give_up<L: LinkDevice, S: TcpService>(
    cx: &mut StackContext<'_, L>,
    service: &mut S,
    index: u32,
) {
    cx.reset(index);
    end(cx, service, index, ConnectionEnd::TimedOut);
}

/// Handles a retransmission timeout. Returns whether the connection is to be ended.
fn resend<L: LinkDevice>(cx: &mut StackContext<'_, L>, index: u32) -> bool {
    let now_us = cx.core.now_us;
    let idle_timeout_us = cx.core.idle_timeout_us;
    let Some(connection) = cx.core.table.at_mut(index) else {
        return false;
    };
    connection.resend_at_us = NEVER;
    // If everything was acknowledged in the meantime, nothing is retransmitted.
    if connection.flight() == 0
        && connection.unsent() == 0
        && connection.state == HandshakeState::Open
    {
        return false;
    }
    connection.rtt.back_off();
    // Karn's algorithm: retransmitted segments give no RTT samples (RFC 6298 §3).
    connection.rtt.forget();
    let timeout_us = connection.rtt.timeout_us();
    if connection.state != HandshakeState::Open {
        return resend_syn(cx, index, timeout_us);
    }
    connection.resend_at_us = now_us + timeout_us;
    // A closed window is probed for as long as an idle connection is kept open.
    if connection.snd_wnd == 0 && connection.since_progress_us(now_us) >= idle_timeout_us {
        return true;
    }
    if connection.flight() == 0 {
        cx.probe(index);
        return false;
    }
    let (una, nxt) = (connection.snd_una, connection.snd_nxt);
    // RFC 2018 §8: SACK information is dropped after a timeout, since the receiver may have discarded the data.
    connection.board.clear();
    if connection.snd_wnd == 0 {
        // The data is not lost: the peer has no room. Its replies to the probes keep the connection open.
        connection.congestion.send_again(una, nxt);
        cx.core.counters.window_probes += 1;
        cx.output(index);
        return false;
    }
    cx.core.counters.timeouts += 1;
    connection.retries += 1;
    if connection.retries > RETRIES_MAX {
        return true;
    }
    if connection.retries == MSS_REDUCTION_RETRIES {
        // Path MTU discovery may have failed silently, if ICMP messages are filtered (RFC 2923 §2.1).
        connection.mss = connection.mss.min(MSS_SAFE.max(MSS_MIN));
    }
    connection.congestion.enter_loss(una, nxt, connection.mss);
    if connection.retries >= MAC_REFRESH_RETRIES {
        refresh_mac(cx, index);
    }
    cx.output(index);
    false
}

fn resend_syn<L: LinkDevice>(cx: &mut StackContext<'_, L>, index: u32, timeout_us: u64) -> bool {
    let now_us = cx.core.now_us;
    let Some(connection) = cx.core.table.at_mut(index) else {
        return false;
    };
    connection.retries += 1;
    if connection.retries > SYN_RETRIES_MAX {
        return true;
    }
    if connection.flight() == 0 {
        cx.output(index);
        return false;
    }
    // The retransmission timeout of a SYN is doubled, like that of data.
    connection.resend_at_us = now_us + timeout_us;
    cx.core.counters.retransmitted += 1;
    cx.send_syn(index);
    false
}

/// Resolves the MAC address of the next hop again, since it may have changed.
fn refresh_mac<L: LinkDevice>(cx: &mut StackContext<'_, L>, index: u32) {
    let Some(connection) = cx.core.table.at(index) else {
        return;
    };
    if let Some(mac) = cx.resolve(connection.key.remote())
        && let Some(connection) = cx.core.table.at_mut(index)
    {
        connection.template[..6].copy_from_slice(&mac);
    }
}
