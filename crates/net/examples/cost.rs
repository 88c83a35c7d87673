//! Processes requests and responses on one persistent connection, to count instructions: run it under callgrind with
//! two numbers of requests, and divide the difference of the results by the difference of the numbers.
//!
//! `cost REQUESTS [sum]`: with `sum`, the device computes checksums.

use std::hint::black_box;
use std::net::Ipv4Addr;

use lowroad_net::{
    AddressSource, ConnectionEnd, ConnectionId, ConnectionInitiator, DeviceOffload, LinkDevice,
    OutgoingFrame, ReceivedFrame, SendPiece, StackCalls, StackSettings, TcpService, TcpStack,
};

struct Sink {
    offload: DeviceOffload,
    bytes: usize,
    last: [u8; 54],
}

impl LinkDevice for Sink {
    #[inline(never)]
    fn send(&mut self, frame: &OutgoingFrame<'_>) {
        self.bytes += frame.head.len() + frame.copied.len() + frame.static_bytes.len();
        if let Some(head) = frame.head.first_chunk() {
            self.last = *head;
        }
    }

    fn offload(&self) -> DeviceOffload {
        self.offload
    }
}

struct Answering;

static HEAD: [u8; 200] = [b'h'; 200];
static BODY: [u8; 1000] = [b'b'; 1000];

impl TcpService for Answering {
    fn opened(&mut self, _: &mut impl StackCalls, _: ConnectionId, _: ConnectionInitiator) {}

    fn input(&mut self, calls: &mut impl StackCalls, id: ConnectionId, bytes: &[u8]) -> usize {
        let body = SendPiece::Lasting {
            bytes: &BODY,
            sums: &[],
        };
        let _ = black_box(calls.send(id, SendPiece::Copied(&HEAD)));
        let _ = black_box(calls.send(id, body));
        bytes.len()
    }

    fn finished(&mut self, _: &mut impl StackCalls, _: ConnectionId) {}
    fn sent(&mut self, _: &mut impl StackCalls, _: ConnectionId) {}
    fn ended(&mut self, _: &mut impl StackCalls, _: ConnectionId, _: ConnectionEnd) {}
}

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const THEIRS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

fn frame(seq: u32, ack: u32, flags: u8, payload_len: usize) -> Vec<u8> {
    let mut frame = vec![0; 54 + payload_len];
    frame[..6].copy_from_slice(&MAC);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6]);
    frame[16..18].copy_from_slice(&(40 + payload_len as u16).to_be_bytes());
    frame[26..30].copy_from_slice(&THEIRS.octets());
    frame[30..34].copy_from_slice(&OURS.octets());
    let mut sum: u32 = frame[14..34]
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
        .sum();
    sum = (sum & 0xffff) + (sum >> 16);
    frame[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    frame[34..38].copy_from_slice(&[0x20, 0, 0, 80]);
    frame[46] = 0x50;
    frame[47] = flags;
    frame[48] = 0xff;
    write(&mut frame, seq, ack);
    frame
}

fn write(frame: &mut [u8], seq: u32, ack: u32) {
    frame[38..42].copy_from_slice(&seq.to_be_bytes());
    frame[42..46].copy_from_slice(&ack.to_be_bytes());
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let requests: u32 = arguments
        .next()
        .map_or(1000, |argument| argument.parse().expect("a number"));
    let sum = arguments.next().is_some();
    let mut stack = TcpStack::new(StackSettings {
        mac: MAC,
        mtu: 1500,
        address: AddressSource::Static {
            address: OURS,
            prefix_len: 24,
            gateway: None,
        },
        ports: vec![80],
        connections_max: 1000,
        small_buffers: 100,
        large_buffers: 1,
        idle_timeout_ms: 60_000,
        secret: [7; 32],
        share: None,
    });
    let offload = DeviceOffload {
        sum,
        segmentation: false,
    };
    let mut sink = Sink {
        offload,
        bytes: 0,
        last: [0; 54],
    };
    let mut deliver = |frame: &[u8], now_us: u64| {
        let received = ReceivedFrame {
            frame,
            sum_is_good: true,
        };
        stack.received(now_us, &mut sink, &mut Answering, received);
        stack.tick(now_us, &mut sink, &mut Answering);
        sink.last
    };
    let mut syn = frame(100, 0, 2, 4);
    syn[46] = 0x60;
    syn[54..].copy_from_slice(&[2, 4, 5, 0xb4]);
    let answer = deliver(&syn, 1);
    let isn = u32::from_be_bytes([answer[38], answer[39], answer[40], answer[41]]);
    let (mut seq, mut ack) = (101, isn.wrapping_add(1));
    deliver(&frame(seq, ack, 16, 0), 1000);
    let mut request = frame(seq, ack, 16, 120);
    for i in 0..requests {
        write(&mut request, seq, ack);
        deliver(&request, 2000 + u64::from(i) * 1000);
        seq = seq.wrapping_add(120);
        ack = ack.wrapping_add(1200);
    }
    println!("{} bytes, {:?}", sink.bytes, stack.counters().frames_sent);
}
