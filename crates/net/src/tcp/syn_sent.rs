//! Outgoing connections before they are open (RFC 9293 §3.10.7.3).

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
    let Some(it) = cx.core.table.get_mut(id) else {
        return;
    };
    let is_acked = segment.flags & ACK != 0;
    let is_right = it.flight() > 0 && segment.ack == it.snd_nxt;
    if is_acked && !is_right {
        return cx.refuse(segment);
    }
    if segment.flags & RST != 0 {
        // Without an ACK of the SYN a reset may be forged; it is ignored (RFC 9293 §3.10.7.3).
        if is_acked {
            end(cx, service, id.index, ConnectionEnd::Reset);
        }
        return;
    }
    if segment.flags & SYN == 0 {
        return;
    }
    let can = TcpOptions::read_well_formed(segment.options);
    let own_mss = cx.core.own_mss();
    let Some(it) = cx.core.table.get_mut(id) else {
        return;
    };
    it.mss = agreed_mss(&can, own_mss);
    // The initial window depends on the MSS, which is known only now.
    it.congestion = CongestionControl::new(it.mss);
    it.has_sack = can.sack;
    it.scale = can.scale.unwrap_or(0);
    it.rcv_nxt = segment.seq.wrapping_add(1);
    if is_acked {
        opened(cx, service, id, segment);
        if let Some(it) = cx.core.table.get_mut(id) {
            // The third step of the handshake, unless the callback sends data with it.
            it.ack_now = true;
            cx.core.mark(id.index);
        }
        return;
    }
    // Simultaneous open: both sides sent a SYN.
    it.state = HandshakeState::SynReceived;
    it.snd_nxt = it.snd_una.wrapping_add(1);
    cx.send_syn(id.index);
}

/// Whether the segment completes a simultaneous open: both SYNs arrived.
pub(crate) fn completes(it: &TcpConnection, segment: &TcpSegment<'_>) -> bool {
    let is_syn = segment.flags & SYN != 0;
    segment.flags & (ACK | RST) == ACK
        && segment.ack == it.snd_una.wrapping_add(1)
        && segment.seq.wrapping_add(is_syn.into()) == it.rcv_nxt
}

/// An outgoing connection is open.
pub(crate) fn opened<L: LinkDevice, S: TcpService>(
    cx: &mut StackContext<'_, L>,
    service: &mut S,
    id: ConnectionId,
    segment: &TcpSegment<'_>,
) {
    let now_us = cx.core.now_us;
    let Some(it) = cx.core.table.get_mut(id) else {
        return;
    };
    it.state = HandshakeState::Open;
    it.is_told = true;
    it.retries = 0;
    it.heard_us = now_us;
    it.rtt.acked(segment.ack, now_us);
    it.snd_una = segment.ack;
    it.snd_nxt = segment.ack;
    it.resend_at_us = NEVER;
    // The window of a SYN is never scaled (RFC 7323 §2.2).
    let scale = if segment.flags & SYN != 0 {
        0
    } else {
        it.scale
    };
    it.snd_wnd = u32::from(segment.window) << scale;
    it.snd_wnd_max = it.snd_wnd;
    it.snd_wl1 = segment.seq;
    it.snd_wl2 = segment.ack;
    cx.core.counters.opened_active += 1;
    let key = it.key;
    let opened = ConnectionInitiator {
        peer: SocketAddrV4::new(address_of(key.remote()), key.remote_port()),
        port: key.port(),
        by_us: true,
    };
    service.opened(cx, id, opened);
}
