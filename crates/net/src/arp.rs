//! ARP (RFC 826): the cache of neighbours' MAC addresses. It learns from replies to its own requests, and from requests
//! for the local address.

use crate::bytes::{be16, be32, mac, write_be32};

/// The EtherType of ARP.
pub(crate) const ETHERTYPE: [u8; 2] = [8, 6];
const FRAME_LEN: usize = 42;
/// The start of each message: hardware type Ethernet, protocol type IPv4, and the lengths of both addresses.
const KIND: [u8; 6] = [0, 1, 8, 0, 6, 4];
const REQUEST: u16 = 1;
const REPLY: u16 = 2;
const BROADCAST: [u8; 6] = [0xff; 6];

const ROWS: usize = 64;
const ROW: usize = 4;
/// Entries older than this are requested again, but used until the reply.
const FRESH_US: u64 = 60_000_000;
/// Entries older than this are not used.
const LIFE_US: u64 = 600_000_000;
/// The shortest interval between requests for one address.
const REQUEST_INTERVAL_US: u64 = 1_000_000;

#[derive(Clone, Copy)]
struct ArpEntry {
    /// The neighbour's address; 0 in an unused entry.
    address: u32,
    mac: Option<[u8; 6]>,
    learned_us: u64,
    requested_us: Option<u64>,
}

const UNUSED_ENTRY: ArpEntry = ArpEntry {
    address: 0,
    mac: None,
    learned_us: 0,
    requested_us: None,
};

/// The cache: rows of [`ROW`] entries.
pub(crate) struct ArpCache {
    entries: [ArpEntry; ROWS * ROW],
}

impl ArpCache {
    pub(crate) fn new() -> ArpCache {
        ArpCache {
            entries: [UNUSED_ENTRY; ROWS * ROW],
        }
    }

    fn row(&mut self, address: u32) -> &mut [ArpEntry] {
        &mut self.entries[address as usize % ROWS * ROW..][..ROW]
    }

    /// The MAC address of a neighbour.
    pub(crate) fn find(&mut self, address: u32, now_us: u64) -> Option<[u8; 6]> {
        let row = self.row(address);
        let entry = row.iter().find(|entry| entry.address == address)?;
        let is_alive = now_us.saturating_sub(entry.learned_us) < LIFE_US;
        entry.mac.filter(|_| is_alive)
    }

    /// Whether a request for the address is due; if so, records it as sent.
    pub(crate) fn try_request(&mut self, address: u32, now_us: u64) -> bool {
        let entry = self.entry(address);
        let is_fresh = entry.mac.is_some() && now_us.saturating_sub(entry.learned_us) < FRESH_US;
        let is_requested = entry
            .requested_us
            .is_some_and(|at_us| now_us.saturating_sub(at_us) < REQUEST_INTERVAL_US);
        if is_fresh || is_requested {
            return false;
        }
        entry.requested_us = Some(now_us);
        true
    }

    /// The entry of an address; if there is none, the oldest entry of the row is replaced.
    fn entry(&mut self, address: u32) -> &mut ArpEntry {
        let row = self.row(address);
        let existing = row.iter().position(|entry| entry.address == address);
        let at = existing.unwrap_or_else(|| {
            let age = |entry: &ArpEntry| entry.learned_us.max(entry.requested_us.unwrap_or(0));
            let oldest = (0..ROW).min_by_key(|at| age(&row[*at])).unwrap_or(0);
            row[oldest] = ArpEntry {
                address,
                ..UNUSED_ENTRY
            };
            oldest
        });
        &mut row[at]
    }

    /// Learns the sender's address from a message, but only if that address was requested, or if the sender requests
    /// the local address. This limits cache poisoning.
    pub(crate) fn learn(&mut self, message: &ArpMessage, is_for_us: bool, now_us: u64) -> bool {
        let row = self.row(message.from);
        let is_known = row.iter().any(|entry| entry.address == message.from);
        let is_request_for_us = is_for_us && message.is_request;
        // Unsolicited messages of unknown hosts are ignored.
        if !is_known && !is_request_for_us {
            return false;
        }
        let entry = self.entry(message.from);
        entry.mac = Some(message.from_mac);
        entry.learned_us = now_us;
        true
    }
}

/// An ARP message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArpMessage {
    pub is_request: bool,
    pub from: u32,
    pub from_mac: [u8; 6],
    pub to: u32,
}

/// Parses the payload of a frame. `None` if it is malformed or unusable.
pub(crate) fn parse(bytes: &[u8]) -> Option<ArpMessage> {
    let bytes: &[u8; 28] = bytes.first_chunk()?;
    let operation = be16(bytes, 6);
    let from_mac = mac(bytes, 8);
    let is_plain = bytes[..6] == KIND && matches!(operation, REQUEST | REPLY);
    // A group address cannot be the MAC address of a neighbour.
    (is_plain && from_mac[0] & 1 == 0).then_some(ArpMessage {
        is_request: operation == REQUEST,
        from: be32(bytes, 14),
        from_mac,
        to: be32(bytes, 24),
    })
}

/// A request for an address. A request for the local address is an announcement (RFC 5227).
pub(crate) fn request(mac: [u8; 6], local: u32, address: u32) -> [u8; FRAME_LEN] {
    frame(REQUEST, mac, local, BROADCAST, address)
}

/// The reply to a request.
pub(crate) fn reply(mac: [u8; 6], local: u32, to: &ArpMessage) -> [u8; FRAME_LEN] {
    frame(REPLY, mac, local, to.from_mac, to.from)
}

fn frame(operation: u16, mac: [u8; 6], local: u32, to_mac: [u8; 6], to: u32) -> [u8; FRAME_LEN] {
    let mut frame = [0; FRAME_LEN];
    frame[..6].copy_from_slice(&to_mac);
    frame[6..12].copy_from_slice(&mac);
    frame[12..14].copy_from_slice(&ETHERTYPE);
    frame[14..20].copy_from_slice(&KIND);
    frame[20..22].copy_from_slice(&operation.to_be_bytes());
    frame[22..28].copy_from_slice(&mac);
    write_be32(&mut frame, 28, local);
    // In a request the target's MAC address is zero.
    if operation == REPLY {
        frame[32..38].copy_from_slice(&to_mac);
    }
    write_be32(&mut frame, 38, to);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsolicited_arp_replies_are_not_learned() {
        let mut arp = ArpCache::new();
        let (us, them) = (1, 2);
        let request = request([2; 6], them, us);
        let message = parse(&request[14..]).expect("right");
        let answer = parse(&reply([4; 6], them, &message)[14..]).expect("right");
        assert!(!arp.learn(&answer, true, 0));
        assert!(
            arp.try_request(them, 0)
                && !arp.try_request(them, 999_999)
                && arp.try_request(them, 1_000_000)
        );
        assert!(arp.learn(&answer, true, 1));
        assert_eq!(arp.find(them, 1), Some([4; 6]));
        assert!(!arp.try_request(them, 50_000_000) && arp.try_request(them, 60_000_001));
        assert_eq!(arp.find(them, 1 + LIFE_US), None);
        assert!(arp.learn(&message, true, 5));
        assert_eq!(arp.find(them, 5), Some([2; 6]));
    }
}
