//! DHCP messages (RFC 2131 §2, RFC 2132).

use crate::bytes::{be32, write_be16, write_be32};
use crate::ipv4::is_not_host;

/// The length of sent messages; old relays require it.
pub(crate) const MESSAGE_LEN: usize = 300;
const OPTIONS_AT: usize = 240;
const MAGIC: [u8; 4] = [99, 130, 83, 99];

const MASK: u8 = 1;
const ROUTER: u8 = 3;
const REQUESTED_ADDRESS: u8 = 50;
const LEASE_TIME: u8 = 51;
const KIND: u8 = 53;
const SERVER: u8 = 54;
const PARAMETERS: u8 = 55;
const RENEWAL: u8 = 58;
const REBINDING: u8 = 59;
const CLIENT: u8 = 61;

/// A client's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DhcpRequest {
    /// DHCPDISCOVER.
    Discover,
    /// DHCPREQUEST for an offered address.
    Request { requested: u32, server: u32 },
    /// DHCPREQUEST to extend a lease.
    Renew { address: u32 },
}

/// The type of a server's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DhcpReplyKind {
    Offer,
    Ack,
    Nak,
}

/// A server's message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DhcpReply {
    pub kind: DhcpReplyKind,
    pub address: u32,
    pub server: Option<u32>,
    pub mask: Option<u32>,
    pub router: Option<u32>,
    pub lease_s: Option<u32>,
    pub renewal_s: Option<u32>,
    pub rebinding_s: Option<u32>,
}

/// The subnet mask if the server sends none.
const MASK_DEFAULT: u32 = 0xffff_ff00;

impl DhcpReply {
    /// The prefix length. `None` if no host can have this address with this mask (RFC 1122 §3.2.1.3).
    pub(crate) fn prefix_len(&self) -> Option<u8> {
        let mask = self.mask.unwrap_or(MASK_DEFAULT);
        // A valid mask is contiguous: leading ones only.
        let prefix_len = mask.leading_ones();
        let is_mask = prefix_len > 0 && prefix_len == mask.count_ones();
        let is_host = prefix_len >= 31 || is_host(self.address, mask);
        let is_possible = is_mask && is_host && !is_not_host(self.address);
        is_possible.then_some(prefix_len as u8)
    }

    /// The router, if its address is possible.
    pub(crate) fn gateway(&self) -> Option<u32> {
        self.router
            .filter(|router| !is_not_host(*router) && *router != self.address)
    }
}

/// Whether an address is neither that of the network nor its broadcast address.
fn is_host(address: u32, mask: u32) -> bool {
    address & !mask != 0 && address | mask != u32::MAX
}

/// Writes a message.
pub(crate) fn write(
    request: DhcpRequest,
    xid: u32,
    secs: u16,
    mac: [u8; 6],
    out: &mut [u8; MESSAGE_LEN],
) {
    out.fill(0);
    out[..3].copy_from_slice(&[1, 1, 6]);
    write_be32(out, 4, xid);
    write_be16(out, 8, secs);
    // `ciaddr` is set only by a client that can respond to ARP for that address (RFC 2131 §4.3.6).
    if let DhcpRequest::Renew { address } = request {
        write_be32(out, 12, address);
    }
    out[28..34].copy_from_slice(&mac);
    out[236..240].copy_from_slice(&MAGIC);
    let mut at = OPTIONS_AT;
    let mut write_option = |kind: u8, value: &[u8]| {
        out[at] = kind;
        out[at + 1] = value.len() as u8;
        out[at + 2..at + 2 + value.len()].copy_from_slice(value);
        at += 2 + value.len();
    };
    write_option(
        KIND,
        &[if request == DhcpRequest::Discover {
            1
        } else {
            3
        }],
    );
    let [a, b, c, d, e, f] = mac;
    // The client identifier: hardware type Ethernet, and the MAC address.
    write_option(CLIENT, &[1, a, b, c, d, e, f]);
    write_option(
        PARAMETERS,
        &[MASK, ROUTER, LEASE_TIME, SERVER, RENEWAL, REBINDING],
    );
    if let DhcpRequest::Request { requested, server } = request {
        write_option(REQUESTED_ADDRESS, &requested.to_be_bytes());
        write_option(SERVER, &server.to_be_bytes());
    }
    out[at] = 255;
}

/// Parses a server's reply to the transaction `xid` of this client.
pub(crate) fn parse(bytes: &[u8], xid: u32, mac: [u8; 6]) -> Option<DhcpReply> {
    let (head, mut options) = bytes.split_first_chunk::<OPTIONS_AT>()?;
    // op BOOTREPLY, hardware type Ethernet, six bytes of MAC address.
    let is_matching = head[..3] == [2, 1, 6]
        && be32(head, 4) == xid
        && head[28..34] == mac
        && head[236..] == MAGIC;
    if !is_matching {
        return None;
    }
    let mut kind = None;
    let mut answer = DhcpReply {
        kind: DhcpReplyKind::Nak,
        address: be32(head, 16),
        server: None,
        mask: None,
        router: None,
        lease_s: None,
        renewal_s: None,
        rebinding_s: None,
    };
    loop {
        match options {
            [] | [255, ..] => break,
            [0, rest @ ..] => options = rest,
            [option, len, rest @ ..] => {
                let (value, rest) = rest.split_at_checked(usize::from(*len))?;
                options = rest;
                let word = || value.first_chunk().map(|word| u32::from_be_bytes(*word));
                match *option {
                    KIND => kind = value.first().copied(),
                    MASK => answer.mask = word(),
                    ROUTER => answer.router = word(),
                    SERVER => answer.server = word(),
                    LEASE_TIME => answer.lease_s = word(),
                    RENEWAL => answer.renewal_s = word(),
                    REBINDING => answer.rebinding_s = word(),
                    _ => {}
                }
            }
            [_] => return None,
        }
    }
    answer.kind = match kind? {
        2 => DhcpReplyKind::Offer,
        5 => DhcpReplyKind::Ack,
        6 => DhcpReplyKind::Nak,
        _ => return None,
    };
    Some(answer)
}
