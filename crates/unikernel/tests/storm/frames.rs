//! The frames of an attacker: builds headers and checksums, and mutates frames.

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, end: usize) -> usize {
        ((self.next() >> 11) % end.max(1) as u64) as usize
    }

    pub fn has_chance(&mut self, per_mille: usize) -> bool {
        self.below(1000) < per_mille
    }

    pub fn choose<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

fn sum(bytes: &[u8]) -> u64 {
    let pairs = bytes.chunks(2);
    pairs
        .map(|pair| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u64::from(*low)))
        .sum()
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// An IPv4 packet in an Ethernet frame. The length of `options` is a multiple of four bytes.
pub fn packet(
    macs: ([u8; 6], [u8; 6]),
    from: u32,
    to: u32,
    protocol: u8,
    options: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let mut frame = [&macs.1[..], &macs.0, &[8, 0]].concat();
    let header_len = 20 + options.len();
    let total = (header_len + payload.len()) as u16;
    frame.extend([0x40 | (header_len / 4) as u8, 0]);
    frame.extend(total.to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
    frame.extend(from.to_be_bytes());
    frame.extend(to.to_be_bytes());
    frame.extend(options);
    frame.extend(payload);
    repair(&mut frame, false);
    frame
}

/// A TCP segment; its checksum is zero.
pub fn segment(
    ports: (u16, u16),
    numbers: (u32, u32),
    flags: u8,
    window: u16,
    options: &[u8],
    data: &[u8],
) -> Vec<u8> {
    let mut bytes = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
    bytes.extend(numbers.0.to_be_bytes());
    bytes.extend(numbers.1.to_be_bytes());
    bytes.extend([((20 + options.len()) as u8 / 4) << 4, flags]);
    bytes.extend(window.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(options);
    bytes.extend(data);
    bytes
}

/// Computes the checksums for the headers of a frame; also the length if `with_len`.
pub fn repair(frame: &mut [u8], with_len: bool) {
    if frame.len() < 34 || frame[12..14] != [8, 0] {
        return;
    }
    let header_len = usize::from(frame[14] & 15) * 4;
    if header_len < 20 || frame.len() < 14 + header_len {
        return;
    }
    if with_len {
        let total = (frame.len() - 14) as u16;
        frame[16..18].copy_from_slice(&total.to_be_bytes());
    }
    frame[24..26].fill(0);
    let ip = !fold(sum(&frame[14..14 + header_len]));
    frame[24..26].copy_from_slice(&ip.to_be_bytes());
    let total = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    // The total length may exceed the frame after a mutation.
    let end = (14 + total).clamp(14 + header_len, frame.len());
    let pseudo = sum(&frame[26..34]) + u64::from(frame[23]);
    let protocol = frame[23];
    let payload = &mut frame[14 + header_len..end];
    let (at, pseudo) = match protocol {
        1 => (2, 0),
        6 => (16, pseudo + payload.len() as u64),
        17 => (6, pseudo + payload.len() as u64),
        _ => return,
    };
    if let Some(field) = payload.get_mut(at..at + 2) {
        field.fill(0);
        let sum = !fold(pseudo + sum(payload));
        payload[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Changes some bytes, truncates or extends the frame; in most cases computes the checksums again.
pub fn mutate(random: &mut Random, frame: &mut Vec<u8>) {
    for _ in 0..=random.below(3) {
        if frame.is_empty() {
            return;
        }
        let at = random.below(frame.len());
        match random.below(7) {
            0 => frame.truncate(at),
            1 => frame[at] ^= 1 << random.below(8),
            2 => frame[at] = random.next() as u8,
            3 => frame.extend_from_within(at..),
            4 => {
                let edge = random.choose(&[0, 1, 0x7f, 0x80, 0xff]);
                frame[at] = edge;
            }
            _ => {
                // In the headers of IP and TCP, and their options.
                let at = (14 + random.below(60)).min(frame.len() - 1);
                frame[at] ^= random.next() as u8 & random.next() as u8;
            }
        }
    }
    frame.truncate(1514);
    if random.has_chance(900) {
        let with_len = random.has_chance(700);
        repair(frame, with_len);
    }
}

pub fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four"))
}

pub fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes[at..at + 2].try_into().expect("two"))
}
