//! What SYNs said, until their handshakes are complete: a table whose rows displace each other. Our first number
//! is a cookie (RFC 4987 §3.6) always, so a handshake that was displaced is still known by it, roughly. Nothing
//! is sent again here: who misses our answer asks again.

use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use lowroad_wire::cookie;
use lowroad_wire::frame::Tuple;
use lowroad_wire::options::Abilities;

use super::segment::Key;

const ROW: usize = 4;
const MINUTE_US: u64 = 60_000_000;
/// A cookie of the last minute is good for so long yet.
const COOKIE_LIFE_US: u64 = 10_000_000;
/// A handshake takes no longer.
const LIFE_US: u64 = 63_000_000;

/// One handshake.
#[derive(Clone, Copy)]
pub(crate) struct HalfOpen {
    key: Key,
    client_isn: u32,
    /// Ours.
    pub isn: u32,
    pub can: Abilities,
    at_us: u64,
}

/// What a segment is to the handshake of its key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Relation {
    /// None is known, or it has other numbers.
    None,
    /// It comes after what completes it.
    Overtakes,
    /// It completes it.
    Completes { can: Abilities, asked_us: u64 },
}

/// The table.
pub(crate) struct HalfOpens {
    entries: Vec<Option<HalfOpen>>,
    keys: [u64; 2],
    local: u32,
    /// When one was displaced that could still have been completed.
    displaced_us: Option<u64>,
}

impl HalfOpens {
    /// For a table of so many connections.
    pub(crate) fn new(connections_max: usize, keys: [u64; 2]) -> HalfOpens {
        let rows = (connections_max / ROW).next_power_of_two().clamp(16, 1024);
        HalfOpens {
            entries: vec![None; rows * ROW],
            keys,
            local: 0,
            displaced_us: None,
        }
    }

    /// Our address.
    pub(crate) fn set_local(&mut self, local: u32) {
        self.local = local;
        self.entries.fill(None);
    }

    fn tuple(&self, key: Key) -> Tuple {
        Tuple {
            client: IpAddr::V4(Ipv4Addr::from_bits(key.remote())),
            local: IpAddr::V4(Ipv4Addr::from_bits(self.local)),
            client_port: key.remote_port(),
            local_port: key.port(),
        }
    }

    fn row(&mut self, key: Key) -> &mut [Option<HalfOpen>] {
        let product = u128::from(key.0 ^ self.keys[1]) * u128::from(self.keys[0] | 1);
        let hash = (product >> 64) as usize ^ product as usize;
        let row = hash & (self.entries.len() / ROW - 1);
        &mut self.entries[row * ROW..][..ROW]
    }

    /// A number that only we can guess, for a connection that we open (RFC 6528).
    pub(crate) fn own_isn(&self, key: Key, now_us: u64) -> u32 {
        let can = Abilities {
            mss: 0,
            scale: None,
            sack: false,
        };
        let hash = cookie::make(self.keys, &self.tuple(key), 0, u64::MAX, &can);
        hash.wrapping_add((now_us / 4) as u32)
    }

    /// Notes a SYN. Gives our number, and whether another handshake was displaced.
    pub(crate) fn note(
        &mut self,
        key: Key,
        client_isn: u32,
        can: Abilities,
        now_us: u64,
    ) -> (u32, bool) {
        if let Some(known) = self.find(key)
            && known.client_isn == client_isn
        {
            return (known.isn, false);
        }
        let minute = now_us / MINUTE_US;
        let isn = cookie::make(self.keys, &self.tuple(key), client_isn, minute, &can);
        let new = HalfOpen {
            key,
            client_isn,
            isn,
            can,
            at_us: now_us,
        };
        let row = self.row(key);
        let age =
            |entry: &Option<HalfOpen>| entry.map_or(u64::MAX, |it| now_us.saturating_sub(it.at_us));
        // Its own first, so that no older one of the same key is found later. Who knows whose SYN is forged: the
        // other's handshake is displaced, so its cookie counts.
        let is_own = |entry: &Option<HalfOpen>| entry.is_some_and(|it| it.key == key);
        let oldest = row
            .iter_mut()
            .max_by_key(|entry| (is_own(entry), age(entry)));
        let displaced = oldest.is_some_and(|place| {
            let displaces = age(place) < LIFE_US;
            *place = Some(new);
            displaces
        });
        if displaced {
            self.displaced_us = Some(now_us);
        }
        (isn, displaced)
    }

    fn find(&mut self, key: Key) -> Option<HalfOpen> {
        self.row(key)
            .iter()
            .flatten()
            .find(|it| it.key == key)
            .copied()
    }

    /// What a segment with these numbers is to a handshake.
    pub(crate) fn relation(&mut self, key: Key, seq: u32, ack: u32) -> Relation {
        match self.find(key) {
            Some(known) if known.isn.wrapping_add(1) != ack => Relation::None,
            Some(known) if known.client_isn.wrapping_add(1) != seq => Relation::Overtakes,
            Some(known) => Relation::Completes {
                can: known.can,
                asked_us: known.at_us,
            },
            None => Relation::None,
        }
    }

    /// Forgets a handshake, if the numbers are right.
    pub(crate) fn forget(&mut self, key: Key, seq: u32) {
        for place in self.row(key) {
            if place.is_some_and(|it| it.key == key && it.client_isn.wrapping_add(1) == seq) {
                *place = None;
            }
        }
    }

    /// Whether cookies may still be under way that are known from nowhere else.
    pub(crate) fn takes_cookies(&self, now_us: u64) -> bool {
        self.displaced_us
            .is_some_and(|at_us| now_us.saturating_sub(at_us) < MINUTE_US + COOKIE_LIFE_US)
    }

    /// What the cookie of a segment says, if it has one.
    pub(crate) fn cookie(&self, key: Key, seq: u32, ack: u32, now_us: u64) -> Option<Abilities> {
        let tuple = self.tuple(key);
        let of = |minute: u64| {
            let (client_isn, isn) = (seq.wrapping_sub(1), ack.wrapping_sub(1));
            cookie::check(self.keys, &tuple, client_isn, minute, isn)
        };
        let minute = now_us / MINUTE_US;
        let before = now_us.saturating_sub(COOKIE_LIFE_US) / MINUTE_US;
        of(minute).or_else(|| (before != minute).then(|| of(before)).flatten())
    }
}
