//! Outgoing connections until they are established (RFC 9293 §3.10.7.3).

use core::net::SocketAddrV4;

use lowroad_wire::options::TcpOptions;

use super::congestion::CongestionControl;
use super::connection::{HandshakeState, NEVER, TcpConnection, agreed_mss};
use super::end::end;
use super::segment::{ACK, RST, SYN, TcpSegment};
use crate::context::{StackContext, address_of};
use crate::stack_api::{ConnectionEnd, ConnectionId, ConnectionInitiator, LinkDevice, TcpService};

/// Processes a segment in SYN-SENT (RFC 9293 §3.10.7.3).
pub(crate) fn segment<L: LinkDevice, S: TcpService>(
    cx: &mut StackContext<'_, L>,
    service: &mut S,
    id: ConnectionId,
    segment: &TcpSegment<'_>,
) {
    let Some(connection) = cx.core.table.get_mut(id) else {
        return;
    };
    let is_acked = segment.flags & ACK != 0;
    let is_acceptable = connection.flight() > 0 && segment.ack == connection.snd_nxt;
    if is_acked && !is_acceptable {
        return cx.refuse(segment);
    }
    if segment.flags & RST != 0 {
        // A reset without an ACK of the SYN may be forged, so it is ignored (RFC 9293 §3.10.7.3).
        if is_acked {
            end(cx, service, id.index, ConnectionEnd::Reset);
        }
        return;
    }
    if segment.flags & SYN == 0 {
        return;
    }
    let tcp_options = TcpOptions::read_well_formed(segment.options);
    let local_mss = cx.core.local_mss();
    let Some(connection) = cx.core.table.get_mut(id) else {
        return;
    };
    connection.mss = agreed_mss(&tcp_options, local_mss);
    // The initial congestion window depends on the MSS, which is known only now.
    connection.congestion = CongestionControl::new(connection.mss);
    connection.has_sack = tcp_options.sack;
    connection.scale = tcp_options.scale.unwrap_or(0);
    connection.rcv_nxt = segment.seq.wrapping_add(1);
    if is_acked {
        opened(cx, service, id, segment);
        if let Some(connection) = cx.core.table.get_mut(id) {
            // This ACK completes the handshake; if the callback sends data, the data carries the ACK.
            connection.ack_now = true;
            cx.core.mark(id.index);
        }
        return;
    }
    // Simultaneous open: both sides sent a SYN.
    connection.state = HandshakeState::SynReceived;
    connection.snd_nxt = connection.snd_una.wrapping_add(1);
    cx.send_syn(id.index);
}

/// Whether the segment completes a simultaneous open: both SYNs have arrived.
pub(crate) fn completes(connection: &TcpConnection, segment: &TcpSegment<'_>) -> bool {
    let is_syn = segment.flags & SYN != 0;
    segment.flags & (ACK | RST) == ACK
        && segment.ack == connection.snd_una.wrapping_add(1)
        && segment.seq.wrapping_add(is_syn.into()) == connection.rcv_nxt
}

/// Handles the end of the handshake of an outgoing connection.
pub(crate) fn opened<L: LinkDevice, S: TcpService>(
    cx: &mut StackContext<'_, L>,
    service: &mut S,
    id: ConnectionId,
    segment: &TcpSegment<'_>,
) {
    let now_us = cx.core.now_us;
    let Some(connection) = cx.core.table.get_mut(id) else {
        return;
    };
    connection.state = HandshakeState::Open;
    connection.is_service_notified = true;
    connection.retries = 0;
    connection.last_received_us = now_us;
    connection.rtt.acked(segment.ack, now_us);
    connection.snd_una = segment.ack;
    connection.snd_nxt = segment.ack;
    connection.resend_at_us = NEVER;
    // The window of a SYN is never scaled (RFC 7323 §2.2).
    let scale = if segment.flags & SYN != 0 {
        0
    } else {
        connection.scale
    };
    connection.snd_wnd = u32::from(segment.window) << scale;
    connection.snd_wnd_max = connection.snd_wnd;
    connection.snd_wl1 = segment.seq;
    connection.snd_wl2 = segment.ack;
    cx.core.counters.opened_active += 1;
    let key = connection.key;
    let opened = ConnectionInitiator {
        peer: SocketAddrV4::new(address_of(key.remote()), key.remote_port()),
        port: key.port(),
        is_active_open: true,
    };
    service.opened(cx, id, opened);
}
