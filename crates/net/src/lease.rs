//! Applies DHCP to the stack: sends and receives its messages, and changes the local address when a lease is obtained
//! or lost.

use crate::context::StackContext;
use crate::dhcp::message::{self, MESSAGE_LEN};
use crate::dhcp::{CLIENT_PORT, DhcpAction, DhcpEvent, SERVER_PORT};
use crate::ipv4::Ipv4Packet;
use crate::local::LocalAddress;
use crate::stack_api::{ConnectionEnd, LinkDevice, TcpService};
use crate::tcp::end::end;
use crate::udp::{self, DatagramPath, PAYLOAD_AT};

const BROADCAST_MAC: [u8; 6] = [0xff; 6];
const BROADCAST: u32 = u32::MAX;

/// Performs the due action of the DHCP client.
pub(crate) fn tick<L: LinkDevice, S: TcpService>(cx: &mut StackContext<'_, L>, service: &mut S) {
    let now_us = cx.core.now_us;
    let action = cx
        .core
        .dhcp
        .as_mut()
        .and_then(|dhcp| dhcp.due_action(now_us));
    match action {
        Some(DhcpAction::Send { request, to }) => send(cx, request, to),
        Some(DhcpAction::Lost) => lose_lease(cx, service),
        None => {}
    }
}

fn send<L: LinkDevice>(
    cx: &mut StackContext<'_, L>,
    request: message::DhcpRequest,
    to: Option<u32>,
) {
    let now_us = cx.core.now_us;
    let to_mac = match to {
        None => Some(BROADCAST_MAC),
        Some(server) => cx.resolve(server),
    };
    let mac = cx.core.mac;
    let Some(dhcp) = &mut cx.core.dhcp else {
        return;
    };
    let Some(to_mac) = to_mac else {
        // The server's MAC address is being resolved by ARP.
        return dhcp.retry_soon(now_us);
    };
    let mut text = [0; MESSAGE_LEN];
    message::write(request, dhcp.xid, dhcp.secs(now_us), mac, &mut text);
    let mut frame = [0; PAYLOAD_AT + MESSAGE_LEN];
    frame[PAYLOAD_AT..].copy_from_slice(&text);
    let path = DatagramPath {
        mac,
        to_mac,
        from: cx.core.local.map_or(0, |local| local.address),
        to: to.unwrap_or(BROADCAST),
        from_port: CLIENT_PORT,
        to_port: SERVER_PORT,
    };
    udp::wrap(&mut frame, &path);
    cx.core.counters.dhcp_sent += 1;
    cx.send_whole(&frame);
}

/// Processes a datagram. Its destination address may not be configured yet.
pub(crate) fn datagram<L: LinkDevice, S: TcpService>(
    cx: &mut StackContext<'_, L>,
    service: &mut S,
    packet: &Ipv4Packet<'_>,
    sum_is_good: bool,
) {
    let Some(datagram) = udp::parse(packet) else {
        cx.core.counters.frames_malformed += 1;
        return;
    };
    if (datagram.from_port, datagram.port) != (SERVER_PORT, CLIENT_PORT) {
        cx.core.counters.packets_unserved += 1;
        return;
    }
    if !datagram.has_right_sum && !sum_is_good {
        cx.core.counters.sums_wrong += 1;
        return;
    }
    let (now_us, mac) = (cx.core.now_us, cx.core.mac);
    let event = cx.core.dhcp.as_mut().and_then(|dhcp| {
        let answer = message::parse(datagram.payload, dhcp.xid, mac)?;
        Some(dhcp.received(now_us, &answer))
    });
    match event {
        None | Some(DhcpEvent::None) => cx.core.counters.dhcp_ignored += 1,
        Some(DhcpEvent::SendNow) => tick(cx, service),
        Some(DhcpEvent::Bound(local)) => bind(cx, service, local),
        Some(DhcpEvent::Lost) => lose_lease(cx, service),
    }
}

fn bind<L: LinkDevice, S: TcpService>(
    cx: &mut StackContext<'_, L>,
    service: &mut S,
    local: LocalAddress,
) {
    cx.core.counters.dhcp_bound += 1;
    set(cx, service, Some(local));
}

fn lose_lease<L: LinkDevice, S: TcpService>(cx: &mut StackContext<'_, L>, service: &mut S) {
    cx.core.counters.dhcp_lost += 1;
    set(cx, service, None);
}

/// Sets or removes the local address. Connections of another address end; connections of the same address continue.
pub(crate) fn set<L: LinkDevice, S: TcpService>(
    cx: &mut StackContext<'_, L>,
    service: &mut S,
    local: Option<LocalAddress>,
) {
    let to_address = |local: Option<LocalAddress>| local.map(|local| local.address);
    if cx.core.local.is_some() && to_address(cx.core.local) != to_address(local) {
        cx.core.set_local(None);
        end_all(cx, service);
    }
    cx.core.set_local(local);
}

/// Ends all connections, since their peers can't be reached from the old address.
fn end_all<L: LinkDevice, S: TcpService>(cx: &mut StackContext<'_, L>, service: &mut S) {
    for index in 0..cx.core.table.capacity() {
        end(cx, service, index as u32, ConnectionEnd::TimedOut);
    }
}
