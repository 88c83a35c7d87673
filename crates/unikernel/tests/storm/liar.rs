//! A database server that sometimes sends invalid responses.

use super::frames::Random;
use lowroad_net::{
    ConnectionEnd, ConnectionId, ConnectionInitiator, SendPiece, StackCalls, TcpService,
};

pub struct FaultyDatabase {
    pub random: Random,
    /// Invalid responses, per mille.
    pub faults_per_mille: usize,
    pub statements: u64,
}

fn packet(seq: u8, payload: &[u8]) -> Vec<u8> {
    let len = payload.len() as u32;
    [&len.to_le_bytes()[..3], &[seq], payload].concat()
}

const OK: [u8; 7] = [0, 0, 0, 2, 0, 0, 0];

fn greeting() -> Vec<u8> {
    // All capabilities that clients request, and column lists that end with an EOF packet.
    let capabilities: u32 = 0x00ff_ffff & !(1 << 11);
    let mut bytes = b"\x0a5.5.5-10.6.0-MariaDB\0\x01\0\0\0saltsalt\0".to_vec();
    bytes.extend(&capabilities.to_le_bytes()[..2]);
    bytes.extend([45, 2, 0]);
    bytes.extend(&capabilities.to_le_bytes()[2..]);
    bytes.push(21);
    bytes.extend([0; 10]);
    bytes.extend(b"saltsaltsalt\0mysql_native_password\0");
    packet(0, &bytes)
}

fn column(name: &str, kind: u8) -> Vec<u8> {
    let mut bytes = b"\x03def\0\x01t\x01t".to_vec();
    for _ in 0..2 {
        bytes.push(name.len() as u8);
        bytes.extend(name.as_bytes());
    }
    bytes.extend([0x0c, 45, 0, 255, 0, 0, 0, kind, 0, 0, 0, 0, 0]);
    bytes
}

const EOF: [u8; 5] = [0xfe, 0, 0, 2, 0];

/// One row more than the image accepts.
const MANY_ROWS: usize = 10_001;
/// One byte more than the image accepts in a row.
const WIDE_LEN: usize = 60_001;

/// The numbers of the statements, which are recognised by a part of their text.
const SOME: u8 = 1;
const MANY: u8 = 2;
const WIDE: u8 = 3;

fn rows(lens: impl Iterator<Item = usize>) -> Vec<u8> {
    let mut seq = 1;
    let mut out = Vec::new();
    let mut put = |payload: &[u8], out: &mut Vec<u8>| {
        out.extend(packet(seq, payload));
        seq = seq.wrapping_add(1);
    };
    put(&[2], &mut out);
    put(&column("a", 3), &mut out);
    put(&column("b", 253), &mut out);
    put(&EOF, &mut out);
    for len in lens {
        let mut row = vec![0, 0, 7, 0, 0, 0];
        match len {
            0..=250 => row.push(len as u8),
            _ => row.extend([0xfd, len as u8, (len >> 8) as u8, (len >> 16) as u8]),
        }
        row.extend(vec![b'<'; len]);
        put(&row, &mut out);
    }
    put(&EOF, &mut out);
    out
}

/// A random number of rows below `count_end`.
fn some_rows(random: &mut Random, count_end: usize) -> Vec<u8> {
    let count = random.below(count_end);
    rows((0..count).map(|_| random.below(250)))
}

impl FaultyDatabase {
    /// Responds to a command; `text` is the packet after the command byte.
    fn answer(&mut self, command: u8, seq: u8, text: &[u8]) -> Vec<u8> {
        let random = &mut self.random;
        let has = |word: &[u8]| text.windows(word.len()).any(|part| part == word);
        match command {
            0x16 => {
                let number = match () {
                    () if has(b"many") => MANY,
                    () if has(b"wide") => WIDE,
                    () => SOME,
                };
                let mut out = packet(1, &[0, number, 0, 0, 0, 2, 0, 1, 0, 0, 0, 0]);
                out.extend(packet(2, &column("?", 253)));
                out.extend(packet(3, &EOF));
                out.extend(packet(4, &column("a", 3)));
                out.extend(packet(5, &column("b", 253)));
                out.extend(packet(6, &EOF));
                out
            }
            0x17 => {
                self.statements += 1;
                match text.first() {
                    Some(&MANY) => rows(std::iter::repeat_n(0, MANY_ROWS)),
                    Some(&WIDE) => rows(std::iter::once(WIDE_LEN)),
                    _ => some_rows(random, 20),
                }
            }
            0x19 => Vec::new(),
            _ => packet(seq.wrapping_add(1), &OK),
        }
    }

    fn corrupt(&mut self, mut answer: Vec<u8>) -> Vec<u8> {
        let random = &mut self.random;
        match random.below(10) {
            0 => packet(
                random.next() as u8,
                &[
                    0xff, 0x15, 4, b'#', b'2', b'8', b'0', b'0', b'0', b'n', b'o',
                ],
            ),
            1 => packet(2, b"\xfemysql_clear_password\0x"),
            2 => packet(2, b"\xfecaching_sha2_password\0saltsaltsaltsaltsalt\0"),
            3 => packet(
                random.choose(&[1, 2, 3, 4]),
                random.choose(&[
                    &[1, 3][..],
                    &[1, 4],
                    b"\x01-----BEGIN PUBLIC KEY-----\nAAAA",
                    &[1],
                ]),
            ),
            4 => vec![0xff; random.below(3000)],
            5 => rows((0..400).map(|_| random.below(250))),
            6 => {
                let len = random.below(60_000);
                [&[0xff, 0xff, random.next() as u8, 1][..], &vec![7; len]].concat()
            }
            _ => {
                for _ in 0..=random.below(4) {
                    let at = random.below(answer.len());
                    if let Some(byte) = answer.get_mut(at) {
                        *byte ^= random.next() as u8;
                    }
                }
                answer.truncate(random.below(answer.len() * 3));
                answer
            }
        }
    }
}

impl TcpService for FaultyDatabase {
    fn opened(&mut self, calls: &mut impl StackCalls, id: ConnectionId, _: ConnectionInitiator) {
        let mut bytes = greeting();
        if self.random.has_chance(self.faults_per_mille) {
            bytes = self.corrupt(bytes);
        }
        let _ = calls.send(id, SendPiece::Copied(&bytes));
    }

    fn input(&mut self, calls: &mut impl StackCalls, id: ConnectionId, bytes: &[u8]) -> usize {
        let mut at = 0;
        while let Some([a, b, c, seq, command, ..]) = bytes.get(at..) {
            let len = usize::from(*a) | usize::from(*b) << 8 | usize::from(*c) << 16;
            // Only the response to the greeting has a sequence number other than 0.
            let command = if *seq == 0 { *command } else { 0 };
            let text = bytes.get(at + 5..at + 4 + len).unwrap_or_default();
            let mut answer = self.answer(command, *seq, text);
            if self.random.has_chance(self.faults_per_mille) {
                answer = self.corrupt(answer);
            }
            for part in answer.chunks(60_000) {
                let _ = calls.send(id, SendPiece::Copied(part));
            }
            if self.random.has_chance(self.faults_per_mille / 4) {
                calls.close(id);
            }
            if self.random.has_chance(self.faults_per_mille / 4) {
                calls.abort(id);
                return bytes.len();
            }
            at += 4 + len;
        }
        bytes.len()
    }

    fn finished(&mut self, calls: &mut impl StackCalls, id: ConnectionId) {
        calls.close(id);
    }

    fn sent(&mut self, _: &mut impl StackCalls, _: ConnectionId) {}

    fn ended(&mut self, _: &mut impl StackCalls, _: ConnectionId, _: ConnectionEnd) {}
}
