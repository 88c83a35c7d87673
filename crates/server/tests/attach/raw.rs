//! Handwritten TCP segments that no kernel would send, from an address that no kernel has. Does not depend on HTTP.

use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use lowroad_testkit::TEST_TIMEOUT;
use lowroad_testkit::net::packet_socket::PacketSocket;
use lowroad_testkit::net::{DEVICE, NetNamespace, SERVER, TestPath};

pub const FIN: u8 = 0x01;
pub const SYN: u8 = 0x02;
pub const RST: u8 = 0x04;
pub const PSH: u8 = 0x08;
pub const ACK: u8 = 0x10;

/// The source address: in the client's network, but not assigned to an interface.
pub const UNASSIGNED_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 77);
const NOBODY_MAC: [u8; 6] = [2, 0, 0, 0, 0, 77];

/// Time without a segment after which a port is regarded as silent.
const SILENCE: Duration = Duration::from_millis(150);

/// TCP options: MSS 1460, SACK permitted, window scale 7.
pub const OPTIONS: [u8; 12] = [2, 4, 5, 180, 1, 1, 4, 2, 1, 3, 3, 7];

/// A segment between a client and port 80 of the server, in either direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// The client's port.
    pub port: u16,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub payload: Vec<u8>,
}

/// A packet socket at the client's end of a link to the server.
pub struct Wire {
    socket: PacketSocket,
    to_mac: [u8; 6],
}

impl Wire {
    /// Opens the socket at the client's end of a link.
    pub fn new(path: &TestPath) -> Wire {
        Wire::between(&path.client, &path.server)
    }

    /// Opens the socket. Configures the sender's MAC address in the server's kernel, since no kernel would answer ARP
    /// requests for it.
    pub fn between(client: &NetNamespace, server: &NetNamespace) -> Wire {
        let mac: Vec<String> = NOBODY_MAC.iter().map(|b| format!("{b:02x}")).collect();
        let neighbour = [
            "neigh",
            "replace",
            &UNASSIGNED_ADDRESS.to_string(),
            "lladdr",
            &mac.join(":"),
            "dev",
            DEVICE,
        ];
        server.run("ip", &neighbour).expect("a neighbour");
        let socket = client.enter(|| PacketSocket::open(DEVICE));
        Wire {
            socket: socket.expect("a packet socket"),
            to_mac: mac_of(server),
        }
    }

    /// Sends a segment from [`UNASSIGNED_ADDRESS`].
    pub fn send(&self, segment: &Segment) {
        let frame = self.frame(UNASSIGNED_ADDRESS, segment);
        // Tests send single segments, for which the device's queue has room.
        assert!(self.socket.send(&frame), "room for a frame");
    }

    /// Sends a segment from [`UNASSIGNED_ADDRESS`] in a frame that `change` modifies.
    pub fn send_changed(&self, segment: &Segment, change: impl FnOnce(&mut Vec<u8>)) {
        let mut frame = self.frame(UNASSIGNED_ADDRESS, segment);
        change(&mut frame);
        assert!(self.socket.send(&frame), "room for a frame");
    }

    /// Sends a segment from any address. Returns false if the queue is full.
    pub fn flood(&self, from: Ipv4Addr, segment: &Segment) -> bool {
        self.socket.send(&self.frame(from, segment))
    }

    /// Receives the next segment to this port of [`UNASSIGNED_ADDRESS`].
    pub fn receive(&mut self, port: u16) -> Segment {
        self.receive_until(port, TEST_TIMEOUT).expect("a segment")
    }

    /// Whether no segment to this port arrives during [`SILENCE`].
    pub fn is_silent(&mut self, port: u16) -> bool {
        self.receive_until(port, SILENCE).is_none()
    }

    fn receive_until(&mut self, port: u16, patience: Duration) -> Option<Segment> {
        let end = Instant::now() + patience;
        while Instant::now() < end {
            match self.next() {
                Some((to, segment)) if to == UNASSIGNED_ADDRESS && segment.port == port => {
                    return Some(segment);
                }
                Some(_) => {}
                None => thread::yield_now(),
            }
        }
        None
    }

    /// The next segment from the server to any address, if one has arrived.
    pub fn next(&mut self) -> Option<(Ipv4Addr, Segment)> {
        loop {
            let frame = self.socket.receive().expect("the device is up")?;
            if let Some(found) = read(&frame) {
                return Some(found);
            }
        }
    }

    fn frame(&self, from: Ipv4Addr, segment: &Segment) -> Vec<u8> {
        let options: &[u8] = if segment.flags & SYN != 0 {
            &OPTIONS
        } else {
            &[]
        };
        let tcp_len = 20 + options.len() + segment.payload.len();
        let mut tcp = Vec::with_capacity(tcp_len);
        tcp.extend(segment.port.to_be_bytes());
        tcp.extend(80u16.to_be_bytes());
        tcp.extend(segment.seq.to_be_bytes());
        tcp.extend(segment.ack.to_be_bytes());
        tcp.push(u8::try_from(5 + options.len() / 4).expect("small") << 4);
        tcp.push(segment.flags);
        // The window, then the checksum and the urgent pointer.
        tcp.extend([0xff, 0xff, 0, 0, 0, 0]);
        tcp.extend(options);
        tcp.extend(&segment.payload);
        let len = u16::try_from(20 + tcp_len).expect("a frame's length");
        let mut ip = vec![0x45, 0];
        ip.extend(len.to_be_bytes());
        ip.extend([0, 0, 0, 0, 64, 6, 0, 0]);
        ip.extend(from.octets());
        ip.extend(SERVER.0.octets());
        let sum = checksum(&[&ip]);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        let pseudo = [&[0, 6], &(len - 20).to_be_bytes()[..]].concat();
        let sum = checksum(&[&ip[12..20], &pseudo, &tcp]);
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        [&self.to_mac[..], &NOBODY_MAC, &[8, 0], &ip, &tcp].concat()
    }
}

/// A TCP connection of [`UNASSIGNED_ADDRESS`] with sequence numbers that the test controls.
pub struct Peer {
    /// The next segment to send. It acknowledges all received segments.
    pub next: Segment,
}

impl Peer {
    /// Sends a SYN and receives the SYN-ACK. The caller sends the ACK.
    pub fn open(wire: &mut Wire, port: u16, seq: u32) -> Peer {
        let syn = Segment {
            port,
            seq,
            flags: SYN,
            ..Segment::default()
        };
        wire.send(&syn);
        let answer = wire.receive(port);
        assert_eq!(answer.flags, SYN | ACK, "{answer:?}");
        assert_eq!(answer.ack, seq.wrapping_add(1));
        Peer {
            next: Segment {
                port,
                seq: seq.wrapping_add(1),
                ack: answer.seq.wrapping_add(1),
                ..Segment::default()
            },
        }
    }

    /// A bare acknowledgement of all received segments.
    pub fn ack(&self) -> Segment {
        Segment {
            flags: ACK,
            ..self.next.clone()
        }
    }

    /// A data segment at this offset from the next sequence number.
    pub fn data(&self, offset: usize, payload: &str) -> Segment {
        let offset = u32::try_from(offset).expect("small");
        Segment {
            seq: self.next.seq.wrapping_add(offset),
            flags: PSH | ACK,
            payload: payload.as_bytes().to_vec(),
            ..self.next.clone()
        }
    }

    /// Records that this many bytes were sent and have arrived.
    pub fn sent(&mut self, len: usize) {
        let len = u32::try_from(len).expect("small");
        self.next.seq = self.next.seq.wrapping_add(len);
    }

    /// Records a received segment, the next in order.
    pub fn received(&mut self, segment: &Segment) {
        assert_eq!(segment.seq, self.next.ack, "the next in order");
        let fin = u32::from(segment.flags & FIN != 0);
        let len = u32::try_from(segment.payload.len()).expect("small") + fin;
        self.next.ack = self.next.ack.wrapping_add(len);
    }
}

fn read(frame: &[u8]) -> Option<(Ipv4Addr, Segment)> {
    let (ethernet, ip) = frame.split_at_checked(14)?;
    if ethernet[12..] != [8, 0] || ip.len() < 40 || ip[9] != 6 {
        return None;
    }
    let len = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    let to = Ipv4Addr::new(ip[16], ip[17], ip[18], ip[19]);
    let tcp = ip.get(usize::from(ip[0] & 15) * 4..len)?;
    let word = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().expect("four"));
    if tcp.len() < 20 || tcp[..2] != 80u16.to_be_bytes() {
        return None;
    }
    let segment = Segment {
        port: u16::from_be_bytes([tcp[2], tcp[3]]),
        seq: word(4),
        ack: word(8),
        flags: tcp[13],
        payload: tcp.get(usize::from(tcp[12] >> 4) * 4..)?.to_vec(),
    };
    Some((to, segment))
}

/// The Internet checksum (RFC 1071). All parts except the last must have an even length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let mut sum: u32 = words
        .map(|word| u32::from(word[0]) << 8 | u32::from(word.get(1).copied().unwrap_or(0)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("folded")
}

/// The device's MAC address, as the kernel lists it.
fn mac_of(namespace: &NetNamespace) -> [u8; 6] {
    let said = namespace.run("ip", &["-o", "link", "show", DEVICE]);
    let said = said.expect("a device");
    let text = said.split("link/ether ").nth(1).expect("an address");
    let mut mac = [0; 6];
    for (to, digits) in mac.iter_mut().zip(text.split([':', ' '])) {
        *to = u8::from_str_radix(digits, 16).expect("two digits");
    }
    mac
}
