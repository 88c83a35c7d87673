//! A scripted peer.

use super::{CLIENT, CLIENT_MAC, SERVER, SERVER_MAC, Side, repair};
use std::net::Ipv4Addr;

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;

/// A segment from or to a peer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PeerSegment {
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    pub options: Vec<u8>,
    pub payload: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
pub struct Peer {
    pub address: Ipv4Addr,
    pub port: u16,
    pub to_port: u16,
}

impl Default for Peer {
    fn default() -> Peer {
        Peer {
            address: CLIENT,
            port: 5000,
            to_port: 80,
        }
    }
}

impl Peer {
    pub fn frame(&self, said: &PeerSegment) -> Vec<u8> {
        let mut frame = vec![0; 54];
        frame[..6].copy_from_slice(&SERVER_MAC);
        frame[6..12].copy_from_slice(&CLIENT_MAC);
        frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6]);
        frame[26..30].copy_from_slice(&self.address.octets());
        frame[30..34].copy_from_slice(&SERVER.octets());
        frame[34..36].copy_from_slice(&self.port.to_be_bytes());
        frame[36..38].copy_from_slice(&self.to_port.to_be_bytes());
        frame[38..42].copy_from_slice(&said.seq.to_be_bytes());
        frame[42..46].copy_from_slice(&said.ack.to_be_bytes());
        frame[46] = ((20 + said.options.len()) as u8 / 4) << 4;
        frame[47] = said.flags;
        frame[48..50].copy_from_slice(&said.window.to_be_bytes());
        frame.extend(&said.options);
        frame.extend(&said.payload);
        repair(&mut frame);
        frame
    }

    pub fn exchange(&self, side: &mut Side, now_us: u64, said: &PeerSegment) -> Vec<PeerSegment> {
        side.receive(now_us, &self.frame(said));
        sent_segments(side)
    }

    /// Opens a connection. Returns the next sequence numbers of both sides.
    pub fn open(&self, side: &mut Side, now_us: u64, window: u16, options: &[u8]) -> (u32, u32) {
        let isn = 1000;
        let syn = PeerSegment {
            seq: isn,
            flags: SYN,
            window,
            options: options.to_vec(),
            ..PeerSegment::default()
        };
        let answer = self.exchange(side, now_us, &syn);
        assert_eq!(answer.len(), 1);
        assert_eq!(answer[0].flags, SYN | ACK);
        let (seq, ack) = (isn + 1, answer[0].seq.wrapping_add(1));
        let done = PeerSegment {
            seq,
            ack,
            flags: ACK,
            window,
            ..PeerSegment::default()
        };
        assert_eq!(self.exchange(side, now_us, &done), []);
        (seq, ack)
    }
}

/// The TCP segments that a side sent since the last call.
pub fn sent_segments(side: &mut Side) -> Vec<PeerSegment> {
    let frames = std::mem::take(&mut side.wire.frames);
    frames
        .iter()
        .filter(|frame| super::is_tcp(frame))
        .map(|frame| read(frame))
        .collect()
}

pub fn read(frame: &[u8]) -> PeerSegment {
    let mut right = frame.to_vec();
    repair(&mut right);
    assert_eq!(right, frame, "lengths and sums");
    let word = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().expect("four"));
    let payload_at = 34 + usize::from(frame[46] >> 4) * 4;
    PeerSegment {
        seq: word(38),
        ack: word(42),
        flags: frame[47],
        window: u16::from_be_bytes([frame[48], frame[49]]),
        options: frame[54..payload_at].to_vec(),
        payload: frame[payload_at..].to_vec(),
    }
}
