//! The stack's state, and `StackContext`: the state together with the link, as passed to each call.

use alloc::vec::Vec;
use core::net::Ipv4Addr;

use lowroad_timer_wheel::TimerWheel;

use crate::arp::ArpCache;
use crate::counters::StackCounters;
use crate::dhcp::DhcpClient;
use crate::local::LocalAddress;
use crate::pool::BufferPool;
use crate::rate::RateBucket;
use crate::stack_api::{DeviceOffload, LinkDevice, OutgoingFrame};
use crate::steering::FlowShare;
use crate::tcp::half_open::HalfOpenTable;
use crate::tcp::table::FlowTable;
use crate::tcp::time_wait::TimeWaitTable;

/// Rate limits for replies that any sender can provoke.
pub(crate) struct ReplyRates {
    pub arp: RateBucket,
    pub echo: RateBucket,
    pub resets: RateBucket,
    pub challenges: RateBucket,
}

/// The stack's state.
pub(crate) struct StackCore {
    pub now_us: u64,
    pub mac: [u8; 6],
    pub mtu: u16,
    pub ports: Vec<u16>,
    pub idle_timeout_us: u64,
    pub refuses_new: bool,
    pub local: Option<LocalAddress>,
    pub arp: ArpCache,
    pub dhcp: Option<DhcpClient>,
    pub share: Option<FlowShare>,
    /// The address has to be announced by ARP.
    pub announces: bool,
    pub table: FlowTable,
    pub pool: BufferPool,
    /// Deadlines in microseconds, with slots of about 8 ms.
    pub wheel: TimerWheel<8192>,
    pub half_open: HalfOpenTable,
    pub time_wait: TimeWaitTable,
    /// Connections with work deferred until the callback returns.
    pub pending: Vec<u32>,
    /// Connections that wait for the MAC address of their next hop.
    pub without_mac: Vec<u32>,
    pub next_port: u16,
    pub rates: ReplyRates,
    pub counters: StackCounters,
}

impl StackCore {
    /// The MSS that is announced to peers.
    pub(crate) fn local_mss(&self) -> u16 {
        self.mtu - 40
    }

    /// Sets the address. The caller must end the connections of the old address.
    pub(crate) fn set_local(&mut self, local: Option<LocalAddress>) {
        let to_address = |local: Option<LocalAddress>| local.map(|local| local.address);
        if to_address(self.local) != to_address(local) {
            self.announces = local.is_some() && self.is_leader();
            self.half_open.set_local(to_address(local).unwrap_or(0));
        }
        // TIME_WAIT entries are kept while there is no address: the same address may be assigned again.
        if let Some(local) = local {
            self.time_wait.set_local(local.address);
        }
        self.local = local;
    }

    /// Whether this core replies on behalf of all cores: ARP and DHCP.
    pub(crate) fn is_leader(&self) -> bool {
        self.share.is_none_or(|share| share.is_leader())
    }

    /// Defers work for a connection until the callback returns.
    pub(crate) fn mark(&mut self, index: u32) {
        if let Some(connection) = self.table.at_mut(index)
            && !connection.is_pending
        {
            connection.is_pending = true;
            self.pending.push(index);
        }
    }
}

/// The stack's state together with the link.
pub struct StackContext<'c, L> {
    pub(crate) core: &'c mut StackCore,
    pub(crate) link: &'c mut L,
    pub(crate) offload: DeviceOffload,
}

impl<'c, L: LinkDevice> StackContext<'c, L> {
    /// A context at `now_us`. Time never goes backwards.
    pub(crate) fn new(
        core: &'c mut StackCore,
        link: &'c mut L,
        now_us: u64,
    ) -> StackContext<'c, L> {
        core.now_us = core.now_us.max(now_us);
        let offload = link.offload();
        StackContext {
            core,
            link,
            offload,
        }
    }

    /// Sends a frame with complete checksums.
    pub(crate) fn send_whole(&mut self, head: &[u8]) {
        let frame = OutgoingFrame {
            head,
            copied: &[],
            static_bytes: &[],
            partial_sum: None,
            segment_len: None,
        };
        self.core.counters.frames_sent += 1;
        self.link.send(&frame);
    }

    /// The MAC address of the next hop to an address; sends an ARP request if it is missing or old.
    pub(crate) fn resolve(&mut self, to: u32) -> Option<[u8; 6]> {
        let local = self.core.local?;
        let hop = local.next_hop(to)?;
        let now_us = self.core.now_us;
        // A request is also sent if the entry is old; the old entry is used until the reply.
        if self.core.arp.try_request(hop, now_us) {
            self.core.counters.arp_asked += 1;
            let request = crate::arp::request(self.core.mac, local.address, hop);
            self.send_whole(&request);
        }
        self.core.arp.find(hop, now_us)
    }

    /// Whether the destination MAC address of a connection's frames is known. If not, the connection waits for it.
    pub(crate) fn has_mac(&mut self, index: u32) -> bool {
        let Some(connection) = self.core.table.at(index) else {
            return false;
        };
        if !connection.needs_mac {
            return true;
        }
        let mac = self.resolve(connection.key.remote());
        let Some(connection) = self.core.table.at_mut(index) else {
            return false;
        };
        if let Some(mac) = mac {
            connection.template[..6].copy_from_slice(&mac);
            connection.needs_mac = false;
            return true;
        }
        let waiting = &mut self.core.without_mac;
        // The list never reallocates. A connection that does not fit is retried by the timer below.
        if !waiting.contains(&index) && waiting.len() < waiting.capacity() {
            waiting.push(index);
        }
        // The ARP request or its reply may get lost, so the timer retries.
        connection.resend_at_us = self.core.now_us + 200_000;
        let at_us = connection.resend_at_us;
        self.core.wheel.schedule(index, at_us);
        false
    }
}

/// Converts an address to the API's type.
pub(crate) fn address_of(bits: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(bits)
}
