//! A DHCP client (RFC 2131 §4.4): determines which message is due, and processes replies. It does not probe whether the
//! address is in use.

pub(crate) mod message;

use crate::local::LocalAddress;
use message::{DhcpReply, DhcpReplyKind, DhcpRequest};

/// The UDP port of clients.
pub(crate) const CLIENT_PORT: u16 = 68;
/// The UDP port of servers.
pub(crate) const SERVER_PORT: u16 = 67;

const SECOND_US: u64 = 1_000_000;
/// The first timeout; each further timeout is twice as long.
const WAIT_FIRST_S: u64 = 2;
const WAIT_MAX_S: u64 = 64;
/// The number of requests sent for one offer.
const REQUESTS_MAX: u32 = 4;
/// The shortest interval between renewals (RFC 2131 §4.4.5).
const RENEW_EVERY_US: u64 = 60 * SECOND_US;
/// The lease time if a server sends none.
const LEASE_DEFAULT_S: u32 = 3600;
/// Shorter lease times are raised to this.
const LEASE_MIN_S: u32 = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DhcpState {
    Selecting,
    Requesting { requested: u32, server: u32 },
    Bound,
}

#[derive(Clone, Copy, Debug)]
struct DhcpLease {
    address: u32,
    server: u32,
    renew_us: u64,
    rebind_us: u64,
    end_us: u64,
}

/// A due action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DhcpAction {
    /// Send this message, to that server or as a broadcast.
    Send {
        request: DhcpRequest,
        to: Option<u32>,
    },
    /// The lease has expired.
    Lost,
}

/// The effect of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DhcpEvent {
    /// The reply was ignored.
    None,
    /// Another message is due immediately.
    SendNow,
    /// This address is leased.
    Bound(LocalAddress),
    /// The lease was revoked.
    Lost,
}

/// The client.
pub(crate) struct DhcpClient {
    state: DhcpState,
    lease: Option<DhcpLease>,
    pub xid: u32,
    random: u64,
    exchange_start_us: u64,
    tries: u32,
    next_us: u64,
}

impl DhcpClient {
    /// A client that sends its first message immediately.
    pub(crate) fn new(random: u64) -> DhcpClient {
        let mut dhcp = DhcpClient {
            state: DhcpState::Selecting,
            lease: None,
            xid: 0,
            random: random | 1,
            exchange_start_us: 0,
            tries: 0,
            next_us: 0,
        };
        dhcp.begin(0);
        dhcp
    }

    fn random(&mut self) -> u64 {
        // xorshift: it only spreads transaction numbers and pauses, so it need not be cryptographic.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn begin(&mut self, now_us: u64) {
        self.state = DhcpState::Selecting;
        self.lease = None;
        // RFC 2131 §4.1: a random number, so that clients do not accept the replies to others.
        self.xid = (self.random() >> 16) as u32;
        self.exchange_start_us = now_us;
        self.tries = 0;
        self.next_us = now_us;
    }

    /// The time of the next action.
    pub(crate) fn next_us(&self) -> u64 {
        self.next_us
    }

    /// Seconds since the exchange began, for the `secs` field.
    pub(crate) fn secs(&self, now_us: u64) -> u16 {
        let secs = now_us.saturating_sub(self.exchange_start_us) / SECOND_US;
        u16::try_from(secs).unwrap_or(u16::MAX)
    }

    /// Retries in a second, since the message could not be sent.
    pub(crate) fn retry_soon(&mut self, now_us: u64) {
        self.next_us = now_us + SECOND_US;
    }

    /// The due action, if any.
    pub(crate) fn due_action(&mut self, now_us: u64) -> Option<DhcpAction> {
        if now_us < self.next_us {
            return None;
        }
        match (self.state, self.lease) {
            (DhcpState::Bound, Some(lease)) => Some(self.renew(lease, now_us)),
            (DhcpState::Requesting { requested, server }, _) if self.tries < REQUESTS_MAX => {
                self.wait(now_us);
                let request = DhcpRequest::Request { requested, server };
                Some(DhcpAction::Send { request, to: None })
            }
            (DhcpState::Selecting, _) => {
                self.wait(now_us);
                let request = DhcpRequest::Discover;
                Some(DhcpAction::Send { request, to: None })
            }
            // The server that made the offer does not reply, so the discovery starts again.
            _ => {
                self.begin(now_us);
                None
            }
        }
    }

    /// Sets the next timeout: doubled, with a jitter of one second (RFC 2131 §4.1).
    fn wait(&mut self, now_us: u64) {
        let seconds = (WAIT_FIRST_S << self.tries.min(6)).min(WAIT_MAX_S);
        // RFC 2131 §4.1: up to one second more or less, so that clients do not send simultaneously after a power
        // failure.
        let jitter_us = self.random() % (2 * SECOND_US);
        self.tries += 1;
        self.next_us = now_us + seconds * SECOND_US + jitter_us - SECOND_US;
    }

    fn renew(&mut self, lease: DhcpLease, now_us: u64) -> DhcpAction {
        if now_us >= lease.end_us {
            self.begin(now_us);
            return DhcpAction::Lost;
        }
        let is_renewing = now_us < lease.rebind_us;
        let limit_us = match is_renewing {
            true => lease.rebind_us,
            false => lease.end_us,
        };
        // RFC 2131 §4.4.5: wait half of the remaining time, but at least a minute.
        let wait_us = ((limit_us - now_us) / 2).max(RENEW_EVERY_US);
        self.next_us = (now_us + wait_us).min(limit_us);
        // The first renewal of a lease begins a new exchange.
        if self.tries == 0 {
            self.exchange_start_us = now_us;
            self.xid = (self.random() >> 16) as u32;
        }
        self.tries += 1;
        DhcpAction::Send {
            request: DhcpRequest::Renew {
                address: lease.address,
            },
            // A renewal is sent to the lease's server; a rebinding is broadcast (RFC 2131 §4.4.5).
            to: is_renewing.then_some(lease.server),
        }
    }

    /// Processes a reply.
    pub(crate) fn received(&mut self, now_us: u64, answer: &DhcpReply) -> DhcpEvent {
        let prefix_len = match (answer.kind, answer.prefix_len()) {
            // A message with an impossible address or mask is ignored.
            (DhcpReplyKind::Offer | DhcpReplyKind::Ack, None) => return DhcpEvent::None,
            (_, prefix_len) => prefix_len.unwrap_or_default(),
        };
        match (self.state, answer.kind, answer.server) {
            // Before the first DISCOVER, an offer can't be a reply.
            (DhcpState::Selecting, DhcpReplyKind::Offer, Some(server)) if self.tries > 0 => {
                self.state = DhcpState::Requesting {
                    requested: answer.address,
                    server,
                };
                self.tries = 0;
                self.next_us = now_us;
                DhcpEvent::SendNow
            }
            (DhcpState::Requesting { requested: wanted, server }, DhcpReplyKind::Ack, _)
                // An ACK for another address or from another server belongs to another exchange.
                if answer.address == wanted && answer.server.is_none_or(|address| address == server) =>
            {
                DhcpEvent::Bound(self.bind(now_us, answer, prefix_len, server))
            }
            // NAKs of other servers don't concern the chosen offer.
            (DhcpState::Requesting { server, .. }, DhcpReplyKind::Nak, Some(from))
                if from == server =>
            {
                self.begin(now_us);
                // The client pauses, since a server may send a NAK for each request.
                self.next_us = now_us + SECOND_US;
                DhcpEvent::None
            }
            (DhcpState::Bound, kind, _) if self.tries > 0 => {
                self.renewed(now_us, answer, prefix_len, kind)
            }
            _ => DhcpEvent::None,
        }
    }

    fn renewed(
        &mut self,
        now_us: u64,
        answer: &DhcpReply,
        prefix_len: u8,
        kind: DhcpReplyKind,
    ) -> DhcpEvent {
        match (kind, self.lease) {
            (DhcpReplyKind::Ack, Some(lease)) if answer.address == lease.address => {
                let server = answer.server.unwrap_or(lease.server);
                DhcpEvent::Bound(self.bind(now_us, answer, prefix_len, server))
            }
            (DhcpReplyKind::Nak, _) => {
                self.begin(now_us);
                DhcpEvent::Lost
            }
            _ => DhcpEvent::None,
        }
    }

    fn bind(
        &mut self,
        now_us: u64,
        answer: &DhcpReply,
        prefix_len: u8,
        server: u32,
    ) -> LocalAddress {
        let lease_s = answer.lease_s.unwrap_or(LEASE_DEFAULT_S).max(LEASE_MIN_S);
        // The defaults of RFC 2131 §4.4.5: T1 at half of the lease, T2 at seven eighths.
        let rebind_s = answer.rebinding_s.unwrap_or(lease_s / 8 * 7).min(lease_s);
        let renew_s = answer.renewal_s.unwrap_or(lease_s / 2).min(rebind_s);
        let after = |seconds: u32| now_us + u64::from(seconds) * SECOND_US;
        self.state = DhcpState::Bound;
        self.lease = Some(DhcpLease {
            address: answer.address,
            server,
            // A T1 of 0 would cause renewals without a pause.
            renew_us: after(renew_s.max(LEASE_MIN_S / 2)),
            rebind_us: after(rebind_s),
            end_us: after(lease_s),
        });
        self.tries = 0;
        self.next_us = self.lease.map_or(now_us, |lease| lease.renew_us);
        LocalAddress {
            address: answer.address,
            prefix_len,
            gateway: answer.gateway(),
        }
    }
}
