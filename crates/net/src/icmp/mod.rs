//! ICMP (RFC 792): answers echo requests, and accepts "fragmentation needed" if it quotes a segment in flight. Other
//! types are ignored.

pub(crate) mod quoted;

use crate::bytes::write_be16;
use crate::context::StackContext;
use crate::ipv4::{self, Ipv4Packet};
use crate::stack_api::LinkDevice;
use crate::tcp::connection::MSS_MIN;
use quoted::{QuotedSegment, quoted};

const ECHO_REPLY: u8 = 0;
const ECHO: u8 = 8;
const FRAME_MAX: usize = 1514;
const AT: usize = 34;

impl<L: LinkDevice> StackContext<'_, L> {
    /// Processes an ICMP message to the local address.
    pub(crate) fn icmp(&mut self, mac: [u8; 6], packet: &Ipv4Packet<'_>) {
        if crate::payload_checksums::sum_of(packet.payload) != 0xffff {
            self.core.counters.sums_wrong += 1;
            return;
        }
        match packet.payload {
            [ECHO, 0, _, _, _, _, _, _, ..] => self.echo(mac, packet),
            message => match quoted(message).and_then(|quoted| self.lower_mss(quoted)) {
                Some(index) => {
                    self.core.counters.mss_lowered += 1;
                    self.core.mark(index);
                }
                None => self.core.counters.icmp_ignored += 1,
            },
        }
    }

    fn echo(&mut self, mac: [u8; 6], packet: &Ipv4Packet<'_>) {
        let now_us = self.core.now_us;
        let len = packet.payload.len();
        let Some(local) = self.core.local else {
            return;
        };
        let fits = AT + len <= FRAME_MAX && len + 20 <= usize::from(self.core.mtu);
        if !fits || !self.core.rates.echo.take(now_us) {
            self.core.counters.echo_limited += 1;
            return;
        }
        let mut frame = [0; FRAME_MAX];
        frame[..6].copy_from_slice(&mac);
        frame[6..12].copy_from_slice(&self.core.mac);
        frame[12..14].copy_from_slice(&ipv4::ETHERTYPE);
        ipv4::header(
            &mut frame[14..],
            ipv4::ICMP,
            len,
            local.address,
            packet.from,
        );
        let message = &mut frame[AT..AT + len];
        message.copy_from_slice(packet.payload);
        message[0] = ECHO_REPLY;
        write_be16(message, 2, 0);
        let sum = !crate::payload_checksums::sum_of(message);
        write_be16(message, 2, sum);
        self.core.counters.echo_answered += 1;
        self.send_whole(&frame[..AT + len]);
    }

    /// Path MTU discovery: if a segment did not fit, lowers the MSS of its connection and retransmits (RFC 1191, RFC
    /// 5927). Messages without an MTU come from obsolete routers and are ignored.
    fn lower_mss(&mut self, quoted: QuotedSegment) -> Option<u32> {
        let core = &mut *self.core;
        let QuotedSegment {
            from,
            key,
            seq,
            mtu,
        } = quoted;
        let is_from_us = from == core.local?.address;
        let index = core.table.find(key).filter(|_| is_from_us)?;
        let connection = core.table.at_mut(index)?;
        // RFC 5927 §4: an off-path attacker can't quote a sequence number in flight.
        let is_in_flight = seq.wrapping_sub(connection.snd_una) < connection.flight();
        // A forged tiny MTU must not force tiny segments.
        let mss = mtu.checked_sub(40)?.max(MSS_MIN);
        if !is_in_flight || mss >= connection.mss {
            return None;
        }
        connection.mss = mss;
        // The retransmission makes a running RTT measurement ambiguous.
        connection.rtt.forget();
        connection
            .congestion
            .send_again(connection.snd_una, connection.snd_nxt);
        Some(index)
    }
}
