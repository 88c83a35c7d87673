//! Half-open connections: a table of received SYNs, in which each full row evicts its oldest entry. The initial
//! sequence number is always a SYN cookie (RFC 4987 §3.6), so a handshake that was evicted can still complete, with
//! approximated options. SYN-ACKs are not retransmitted: a client that does not receive one retransmits its SYN.

use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use lowroad_wire::cookie;
use lowroad_wire::frame::FourTuple;
use lowroad_wire::options::TcpOptions;

use super::segment::ConnectionKey;

const ROW: usize = 4;
const MINUTE_US: u64 = 60_000_000;
/// A cookie of the previous minute remains valid for this long.
const COOKIE_LIFE_US: u64 = 10_000_000;
/// The longest duration of a handshake.
const LIFE_US: u64 = 63_000_000;

/// A half-open connection.
#[derive(Clone, Copy)]
pub(crate) struct HalfOpenConnection {
    key: ConnectionKey,
    client_isn: u32,
    /// The initial sequence number of this side.
    pub isn: u32,
    pub tcp_options: TcpOptions,
    at_us: u64,
}

/// How a segment relates to the half-open connection of its four-tuple.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HandshakeMatch {
    /// There is no half-open connection, or its sequence numbers differ.
    None,
    /// The segment was sent after the one that completes the handshake, but arrived before it.
    Overtakes,
    /// The segment completes the handshake.
    Completes {
        tcp_options: TcpOptions,
        syn_us: u64,
    },
}

/// The table of half-open connections.
pub(crate) struct HalfOpenTable {
    entries: Vec<Option<HalfOpenConnection>>,
    keys: [u64; 2],
    local: u32,
    /// The last time at which an unexpired handshake was evicted.
    displaced_us: Option<u64>,
}

impl HalfOpenTable {
    /// A table for a stack with this many connections.
    pub(crate) fn new(connections_max: usize, keys: [u64; 2]) -> HalfOpenTable {
        let rows = (connections_max / ROW).next_power_of_two().clamp(16, 1024);
        HalfOpenTable {
            entries: vec![None; rows * ROW],
            keys,
            local: 0,
            displaced_us: None,
        }
    }

    /// Sets the address, which is part of cookies; drops all handshakes.
    pub(crate) fn set_local(&mut self, local: u32) {
        self.local = local;
        self.entries.fill(None);
    }

    fn tuple(&self, key: ConnectionKey) -> FourTuple {
        FourTuple {
            client: IpAddr::V4(Ipv4Addr::from_bits(key.remote())),
            local: IpAddr::V4(Ipv4Addr::from_bits(self.local)),
            client_port: key.remote_port(),
            local_port: key.port(),
        }
    }

    fn row(&mut self, key: ConnectionKey) -> &mut [Option<HalfOpenConnection>] {
        let product = u128::from(key.0 ^ self.keys[1]) * u128::from(self.keys[0] | 1);
        let hash = (product >> 64) as usize ^ product as usize;
        let row = hash & (self.entries.len() / ROW - 1);
        &mut self.entries[row * ROW..][..ROW]
    }

    /// An unpredictable initial sequence number for an outgoing connection (RFC 6528).
    pub(crate) fn outgoing_isn(&self, key: ConnectionKey, now_us: u64) -> u32 {
        let tcp_options = TcpOptions {
            mss: 0,
            scale: None,
            sack: false,
        };
        let hash = cookie::make(self.keys, &self.tuple(key), 0, u64::MAX, &tcp_options);
        hash.wrapping_add((now_us / 4) as u32)
    }

    /// Records a SYN. Returns the initial sequence number, and whether another handshake was evicted.
    pub(crate) fn record_syn(
        &mut self,
        key: ConnectionKey,
        client_isn: u32,
        tcp_options: TcpOptions,
        now_us: u64,
    ) -> (u32, bool) {
        // The reply to a retransmitted SYN must have the same sequence number as before.
        if let Some(half_open) = self.find(key)
            && half_open.client_isn == client_isn
        {
            return (half_open.isn, false);
        }
        let minute = now_us / MINUTE_US;
        let isn = cookie::make(
            self.keys,
            &self.tuple(key),
            client_isn,
            minute,
            &tcp_options,
        );
        let new = HalfOpenConnection {
            key,
            client_isn,
            isn,
            tcp_options,
            at_us: now_us,
        };
        let row = self.row(key);
        let age = |entry: &Option<HalfOpenConnection>| {
            entry.map_or(u64::MAX, |existing| now_us.saturating_sub(existing.at_us))
        };
        // An entry with the same four-tuple is replaced first, so that a lookup finds the newest. Either of the SYNs
        // may be forged, so the replaced handshake counts as evicted, and its cookie remains valid.
        let has_same_key =
            |entry: &Option<HalfOpenConnection>| entry.is_some_and(|existing| existing.key == key);
        let oldest = row
            .iter_mut()
            .max_by_key(|entry| (has_same_key(entry), age(entry)));
        let displaced = oldest.is_some_and(|slot| {
            let displaces = age(slot) < LIFE_US;
            *slot = Some(new);
            displaces
        });
        if displaced {
            self.displaced_us = Some(now_us);
        }
        (isn, displaced)
    }

    fn find(&mut self, key: ConnectionKey) -> Option<HalfOpenConnection> {
        self.row(key)
            .iter()
            .flatten()
            .find(|entry| entry.key == key)
            .copied()
    }

    /// How a segment with these numbers relates to a half-open connection.
    pub(crate) fn match_handshake(
        &mut self,
        key: ConnectionKey,
        seq: u32,
        ack: u32,
    ) -> HandshakeMatch {
        match self.find(key) {
            Some(half_open) if half_open.isn.wrapping_add(1) != ack => HandshakeMatch::None,
            Some(half_open) if half_open.client_isn.wrapping_add(1) != seq => {
                HandshakeMatch::Overtakes
            }
            Some(half_open) => HandshakeMatch::Completes {
                tcp_options: half_open.tcp_options,
                syn_us: half_open.at_us,
            },
            None => HandshakeMatch::None,
        }
    }

    /// Removes a half-open connection, if the numbers match.
    pub(crate) fn forget(&mut self, key: ConnectionKey, seq: u32) {
        for slot in self.row(key) {
            if slot.is_some_and(|entry| entry.key == key && entry.client_isn.wrapping_add(1) == seq)
            {
                *slot = None;
            }
        }
    }

    /// Whether cookies of evicted handshakes may still arrive. Otherwise no cookie is accepted, which saves the cost of
    /// its check.
    pub(crate) fn accepts_cookies(&self, now_us: u64) -> bool {
        self.displaced_us
            .is_some_and(|at_us| now_us.saturating_sub(at_us) < MINUTE_US + COOKIE_LIFE_US)
    }

    /// The TCP options encoded in the cookie of a segment; `None` if the cookie is invalid.
    pub(crate) fn cookie(
        &self,
        key: ConnectionKey,
        seq: u32,
        ack: u32,
        now_us: u64,
    ) -> Option<TcpOptions> {
        let tuple = self.tuple(key);
        let check_minute = |minute: u64| {
            let (client_isn, isn) = (seq.wrapping_sub(1), ack.wrapping_sub(1));
            cookie::check(self.keys, &tuple, client_isn, minute, isn)
        };
        let minute = now_us / MINUTE_US;
        // Just after a minute has ended, its cookies are still valid.
        let previous = now_us.saturating_sub(COOKIE_LIFE_US) / MINUTE_US;
        check_minute(minute).or_else(|| {
            (previous != minute)
                .then(|| check_minute(previous))
                .flatten()
        })
    }
}
