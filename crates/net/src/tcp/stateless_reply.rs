//! Sends segments without a connection: SYN-ACKs, resets, and ACKs in TIME_WAIT. Each is sent to the source MAC address
//! of the segment that it replies to.

use super::segment::{ACK, FIN, HEADER_LEN, RST, SYN, TcpSegment};
use crate::bytes::{fold, write_be16, write_be32};
use crate::context::StackContext;
use crate::stack_api::{LinkDevice, OutgoingFrame};

/// The header fields of a reply.
#[derive(Clone, Copy)]
pub(crate) struct ReplySegment<'o> {
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    pub options: &'o [u8],
}

const TCP_AT: usize = 34;

impl<L: LinkDevice> StackContext<'_, L> {
    /// Replies to a segment.
    pub(crate) fn reply(&mut self, to: &TcpSegment<'_>, reply: ReplySegment<'_>) {
        let Some(local) = self.core.local else {
            return;
        };
        let len = HEADER_LEN + reply.options.len();
        let mut frame = [0; TCP_AT + HEADER_LEN + 40];
        frame[..6].copy_from_slice(&to.mac);
        frame[6..12].copy_from_slice(&self.core.mac);
        frame[12..14].copy_from_slice(&crate::ipv4::ETHERTYPE);
        let remote = to.key.remote();
        crate::ipv4::header(
            &mut frame[14..],
            crate::ipv4::TCP,
            len,
            local.address,
            remote,
        );
        let tcp = &mut frame[TCP_AT..TCP_AT + len];
        write_be16(tcp, 0, to.key.port());
        write_be16(tcp, 2, to.key.remote_port());
        write_be32(tcp, 4, reply.seq);
        write_be32(tcp, 8, reply.ack);
        tcp[12] = (len as u8 / 4) << 4;
        tcp[13] = reply.flags;
        write_be16(tcp, 14, reply.window);
        tcp[HEADER_LEN..].copy_from_slice(reply.options);
        let pseudo = crate::ipv4::pseudo_sum(crate::ipv4::TCP, local.address, remote) + len as u32;
        let sum = match self.offload.sum {
            true => fold(pseudo),
            false => !fold(pseudo + u32::from(crate::payload_checksums::sum_of(tcp))),
        };
        write_be16(tcp, 16, sum);
        let frame = OutgoingFrame {
            head: &frame[..TCP_AT + len],
            copied: &[],
            static_bytes: &[],
            partial_sum: self.offload.sum.then_some(TCP_AT as u16),
            segment_len: None,
        };
        self.core.counters.frames_sent += 1;
        self.link.send(&frame);
    }

    /// Sends a reset in reply to a segment without a connection (RFC 9293 §3.10.7.1).
    pub(crate) fn refuse(&mut self, segment: &TcpSegment<'_>) {
        // A reset is never answered by a reset, since two stacks could loop.
        if segment.flags & RST != 0 {
            return;
        }
        let now_us = self.core.now_us;
        if !self.core.rates.resets.take(now_us) {
            self.core.counters.resets_limited += 1;
            return;
        }
        self.core.counters.resets_sent += 1;
        let (seq, ack, flags) = match segment.flags & ACK != 0 {
            true => (segment.ack, 0, RST),
            // A segment without ACK does not contain the number that its sender expects, so it is acknowledged.
            false => (0, segment.seq.wrapping_add(segment.len()), RST | ACK),
        };
        let reply = ReplySegment {
            seq,
            ack,
            flags,
            window: 0,
            options: &[],
        };
        self.reply(segment, reply);
    }

    /// Sends a reset for a connection.
    pub(crate) fn reset(&mut self, index: u32) {
        // If the MAC address of the next hop is unknown, no segment was ever sent.
        if let Some(connection) = self.core.table.at(index)
            && !connection.needs_mac
        {
            let seq = connection.snd_nxt;
            self.send_empty(index, seq, RST | ACK, &[]);
        }
    }

    /// Sends a challenge ACK: a genuine peer replies to it, but an off-path attacker can't see it (RFC 5961).
    pub(crate) fn challenge(&mut self, index: u32) {
        let now_us = self.core.now_us;
        let is_within = match self.core.table.at_mut(index) {
            Some(connection) => connection.allow_challenge(now_us),
            None => false,
        };
        if !is_within {
            self.core.counters.challenges_limited += 1;
            return;
        }
        self.core.counters.challenges_sent += 1;
        self.send_ack(index);
    }
}

/// Whether a segment occupies sequence numbers, so that its sender expects an ACK.
pub(crate) fn occupies_sequence(segment: &TcpSegment<'_>) -> bool {
    !segment.payload.is_empty() || segment.flags & (SYN | FIN) != 0
}
