//! The stack: classifies received frames, and handles timers.

use alloc::vec::Vec;
use core::net::Ipv4Addr;

use lowroad_timer_wheel::TimerWheel;

use crate::arp::{self, ArpCache};
use crate::bytes::mac;
use crate::calls::flush;
use crate::context::{ReplyRates, StackContext, StackCore, address_of};
use crate::counters::StackCounters;
use crate::dhcp::DhcpClient;
use crate::ipv4::{self, Ipv4Error, Ipv4Packet};
use crate::lease;
use crate::local::LocalAddress;
use crate::pool::BufferPool;
use crate::rate::RateBucket;
use crate::stack_api::{AddressSource, LinkDevice, ReceivedFrame, StackSettings, TcpService};
use crate::steering::FrameOwner;
use crate::tcp::half_open::HalfOpenTable;
use crate::tcp::segment::TcpSegment;
use crate::tcp::table::FlowTable;
use crate::tcp::time_wait::TimeWaitTable;
use crate::tcp::{input, listener, timers};

const BROADCAST: [u8; 6] = [0xff; 6];
const MTU_MIN: u16 = 576;
const MTU_MAX: u16 = 1500;
const ARP_RATE: u32 = 1000;
const ECHO_RATE: u32 = 1000;
const RESET_RATE: u32 = 1000;
const CHALLENGE_RATE: u32 = 1000;
/// Connections waiting for a MAC address that are woken as soon as it is known; further connections wait for their
/// timers.
const WITHOUT_MAC_MAX: usize = 64;

/// A TCP/IPv4 stack for one device.
pub struct TcpStack {
    core: StackCore,
}

impl TcpStack {
    /// Allocates all memory of the stack.
    #[must_use]
    pub fn new(settings: StackSettings) -> TcpStack {
        let key = |at: usize| {
            let bytes = core::array::from_fn(|i| settings.secret[at * 8 + i]);
            u64::from_le_bytes(bytes)
        };
        let count = settings.connections_max;
        let cores = settings.share.map_or(1, |share| share.steering.count());
        // All cores together must not exceed the rates of a single stack. Rates are rounded up, so that no core has a
        // rate of 0.
        let per_core_rate = |rate: u32| rate.div_ceil(u32::from(cores));
        let core = StackCore {
            now_us: 0,
            mac: settings.mac,
            mtu: settings.mtu.clamp(MTU_MIN, MTU_MAX),
            ports: settings.ports,
            idle_timeout_us: u64::from(settings.idle_timeout_ms) * 1000,
            refuses_new: false,
            local: None,
            arp: ArpCache::new(),
            dhcp: None,
            share: settings.share,
            table: FlowTable::new(count, [key(0), key(1)]),
            pool: BufferPool::new(settings.small_buffers, settings.large_buffers),
            wheel: TimerWheel::new(count, 0),
            half_open: HalfOpenTable::new(count, [key(2), key(3)]),
            time_wait: TimeWaitTable::new(count, key(0) ^ key(3)),
            pending: Vec::with_capacity(count * 2),
            announces: false,
            without_mac: Vec::with_capacity(WITHOUT_MAC_MAX),
            // A random first port: predictable ports facilitate blind attacks (RFC 6056).
            next_port: (key(1) ^ key(2)) as u16,
            rates: ReplyRates {
                arp: RateBucket::new(ARP_RATE),
                echo: RateBucket::new(ECHO_RATE),
                resets: RateBucket::new(per_core_rate(RESET_RATE)),
                challenges: RateBucket::new(per_core_rate(CHALLENGE_RATE)),
            },
            counters: StackCounters::default(),
        };
        let mut stack = TcpStack { core };
        match settings.address {
            AddressSource::Dhcp => stack.core.dhcp = Some(DhcpClient::new(key(0) ^ key(2))),
            AddressSource::Static {
                address,
                prefix_len,
                gateway,
            } => stack
                .core
                .set_local(Some(LocalAddress::new(address, prefix_len, gateway))),
            AddressSource::OtherCore => {}
        }
        stack
    }

    /// Processes a received frame.
    // Inlined into the device's loop. Otherwise a function call, needed for the second caller (frames from other
    // cores), would cost each request 70 instructions.
    #[inline(always)]
    pub fn received<L: LinkDevice, S: TcpService>(
        &mut self,
        now_us: u64,
        link: &mut L,
        service: &mut S,
        received: ReceivedFrame<'_>,
    ) {
        let mut cx = StackContext::new(&mut self.core, link, now_us);
        cx.core.counters.frames_received += 1;
        let Some((head, rest)) = received.frame.split_first_chunk::<14>() else {
            cx.core.counters.frames_malformed += 1;
            return;
        };
        let to = mac(head, 0);
        let from = mac(head, 6);
        let is_for_us = to == cx.core.mac;
        let is_broadcast = !is_for_us && to == BROADCAST;
        // The source of a valid frame is never a group address.
        if !(is_for_us || is_broadcast) || from[0] & 1 != 0 {
            cx.core.counters.frames_other += 1;
            return;
        }
        match [head[12], head[13]] {
            ipv4::ETHERTYPE => match ipv4::parse(rest) {
                // TCP in broadcast frames is ignored (RFC 1122 §4.2.3.10).
                Ok(packet) if packet.protocol == ipv4::TCP && !is_broadcast => {
                    tcp(&mut cx, service, from, &packet, received.sum_is_good);
                }
                Ok(packet) => {
                    process_non_tcp(&mut cx, service, from, &packet, received.sum_is_good)
                }
                Err(error) => count_ip_error(&mut cx.core.counters, error),
            },
            arp::ETHERTYPE => arp_message(&mut cx, from, rest),
            _ => cx.core.counters.frames_other += 1,
        }
        // The output of all callbacks is sent together, after the frame was processed.
        flush(&mut cx, service);
    }

    /// Handles due timers. To be called after each burst of frames, and at the returned time, in microseconds.
    pub fn tick<L: LinkDevice, S: TcpService>(
        &mut self,
        now_us: u64,
        link: &mut L,
        service: &mut S,
    ) -> Option<u64> {
        let mut cx = StackContext::new(&mut self.core, link, now_us);
        lease::tick(&mut cx, service);
        // Gratuitous ARP updates the caches of neighbours and the tables of switches.
        announce(&mut cx);
        while let Some(index) = cx.core.wheel.pop(cx.core.now_us) {
            timers::check_deadlines(&mut cx, service, index);
        }
        listener::free_buffers(&mut cx, service);
        flush(&mut cx, service);
        let core = &self.core;
        let dhcp_us = core.dhcp.as_ref().map(DhcpClient::next_us);
        core.wheel.next().into_iter().chain(dhcp_us).min()
    }

    /// Runs an action outside of a callback, then sends the queued data.
    pub fn calls<L: LinkDevice, S: TcpService, T>(
        &mut self,
        now_us: u64,
        link: &mut L,
        service: &mut S,
        action: impl FnOnce(&mut S, &mut StackContext<'_, L>) -> T,
    ) -> T {
        let mut cx = StackContext::new(&mut self.core, link, now_us);
        let result = action(service, &mut cx);
        flush(&mut cx, service);
        result
    }

    /// The address, its prefix length and the gateway; `None` without an address.
    #[must_use]
    pub fn address(&self) -> Option<(Ipv4Addr, u8, Option<Ipv4Addr>)> {
        let local = self.core.local?;
        let gateway = local.gateway.map(address_of);
        Some((address_of(local.address), local.prefix_len, gateway))
    }

    /// Sets the address that the leading core obtained, or removes it. Connections of the old address end.
    pub fn set_address<L: LinkDevice, S: TcpService>(
        &mut self,
        now_us: u64,
        link: &mut L,
        service: &mut S,
        address: Option<(Ipv4Addr, u8, Option<Ipv4Addr>)>,
    ) {
        let mut cx = StackContext::new(&mut self.core, link, now_us);
        let local = address
            .map(|(address, prefix_len, gateway)| LocalAddress::new(address, prefix_len, gateway));
        lease::set(&mut cx, service, local);
        flush(&mut cx, service);
    }

    /// The core that a received frame must be passed to; `FrameOwner::Here` with a single core.
    #[inline]
    #[must_use]
    pub fn owner(&self, frame: &[u8]) -> FrameOwner {
        let Some(share) = self.core.share else {
            return FrameOwner::Here;
        };
        let local = self.core.local.map(|local| local.address);
        share.steering.owner(self.core.mac, local, frame)
    }

    /// Counters of drops, limits and events since the start.
    #[must_use]
    pub fn counters(&self) -> &StackCounters {
        &self.core.counters
    }

    /// The number of connections, excluding those in TIME_WAIT.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.core.table.count()
    }

    /// The number of free small and large buffers.
    #[must_use]
    pub fn free_buffers(&self) -> (usize, usize) {
        self.core.pool.free()
    }

    /// Refuses incoming connections from now on.
    pub fn refuse_new(&mut self) {
        self.core.refuses_new = true;
    }
}

/// Announces a new address, and requests the MAC address of the gateway before it is needed.
fn announce<L: LinkDevice>(cx: &mut StackContext<'_, L>) {
    if core::mem::take(&mut cx.core.announces)
        && let Some(local) = cx.core.local
    {
        let announcement = arp::request(cx.core.mac, local.address, local.address);
        cx.send_whole(&announcement);
        if let Some(gateway) = local.gateway {
            cx.resolve(gateway);
        }
    }
}

fn count_ip_error(counters: &mut StackCounters, error: Ipv4Error) {
    match error {
        Ipv4Error::Malformed => counters.frames_malformed += 1,
        Ipv4Error::WrongSum => counters.sums_wrong += 1,
        Ipv4Error::Fragment => counters.fragments_dropped += 1,
    }
}

#[inline(always)]
fn tcp<L: LinkDevice, S: TcpService>(
    cx: &mut StackContext<'_, L>,
    service: &mut S,
    from: [u8; 6],
    packet: &Ipv4Packet<'_>,
    sum_is_good: bool,
) {
    let is_for_us = cx
        .core
        .local
        .is_some_and(|local| local.address == packet.to);
    if !is_for_us {
        cx.core.counters.packets_not_ours += 1;
        return;
    }
    let Some(segment) = TcpSegment::parse(packet.from, from, packet.payload) else {
        cx.core.counters.frames_malformed += 1;
        return;
    };
    if !sum_is_good && !ipv4::has_right_sum(packet) {
        cx.core.counters.sums_wrong += 1;
        return;
    }
    match cx.core.table.find(segment.key) {
        Some(index) => input::segment(cx, service, index, &segment),
        // A SYN from an impossible source address is never answered.
        None if is_impossible(cx.core, packet.from) => cx.core.counters.syns_malformed += 1,
        None => listener::segment(cx, service, &segment),
    }
}

/// Whether the source address is impossible: invalid, or the local address.
fn is_impossible(core: &StackCore, from: u32) -> bool {
    ipv4::is_not_host(from)
        || core
            .local
            .is_none_or(|local| local.is_broadcast(from) || local.address == from)
}

fn process_non_tcp<L: LinkDevice, S: TcpService>(
    cx: &mut StackContext<'_, L>,
    service: &mut S,
    from: [u8; 6],
    packet: &Ipv4Packet<'_>,
    sum_is_good: bool,
) {
    // UDP is handled before the destination address is checked: while this host has no address, the client must still
    // receive DHCP replies.
    if packet.protocol == ipv4::UDP && cx.core.dhcp.is_some() {
        return lease::datagram(cx, service, packet, sum_is_good);
    }
    let is_for_us = cx
        .core
        .local
        .is_some_and(|local| local.address == packet.to);
    if !is_for_us {
        cx.core.counters.packets_not_ours += 1;
        return;
    }
    match packet.protocol {
        ipv4::ICMP if !is_impossible(cx.core, packet.from) => cx.icmp(from, packet),
        _ => cx.core.counters.packets_unserved += 1,
    }
}

fn arp_message<L: LinkDevice>(cx: &mut StackContext<'_, L>, from: [u8; 6], bytes: &[u8]) {
    let Some(message) = arp::parse(bytes) else {
        cx.core.counters.frames_malformed += 1;
        return;
    };
    let Some(local) = cx.core.local else {
        return;
    };
    let now_us = cx.core.now_us;
    let is_on_link = local.is_on_link(message.from) && message.from != local.address;
    // Accepts only consistent messages of neighbours, since others could redirect traffic.
    if message.from_mac != from || !is_on_link || ipv4::is_not_host(message.from) {
        return;
    }
    let is_for_us = message.to == local.address;
    if cx.core.arp.learn(&message, is_for_us, now_us) {
        // Connections with a next hop that is still unknown register again.
        while let Some(index) = cx.core.without_mac.pop() {
            cx.core.mark(index);
        }
    }
    // Only one core replies, though all cores learn from the request.
    if !(message.is_request && is_for_us && cx.core.is_leader()) {
        return;
    }
    if !cx.core.rates.arp.take(now_us) {
        cx.core.counters.arp_limited += 1;
        return;
    }
    cx.core.counters.arp_answered += 1;
    let reply = arp::reply(cx.core.mac, local.address, &message);
    cx.send_whole(&reply);
}
