//! A classic BPF program for a group of sockets (`SO_ATTACH_REUSEPORT_CBPF`): returns the worker's number in
//! a datagram's identifier. The kernel takes the socket with this index in the group, in the order in which the
//! sockets joined it, and distributes by addresses if there is none.
//!
//! The program needs no privileges. It knows one process only; with two, a program with a map of sockets is needed.

use super::{LONG_HEADER, LONG_ID_LEN_AT, SHORT_ID_AT};
use crate::connection_ids::{CONNECTION_ID_LEN, ConnectionIdKey};

/// An instruction, as `struct sock_filter` of `linux/filter.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ClassicInstruction {
    /// The operation.
    pub code: u16,
    /// Instructions that are skipped if a condition is true.
    pub jump_true: u8,
    /// Instructions that are skipped if a condition is false.
    pub jump_false: u8,
    /// The operand.
    pub operand: u32,
}

/// The result for datagrams that no worker is known for: beyond any group.
pub const ANY_SOCKET: u32 = u32::MAX;

// Codes of `linux/bpf_common.h`. A is the accumulator, X the index register, M the memory, P the datagram.
const LOAD_WORD: u16 = 0x40; // A = P[X + k..][..4], with LOAD_INDEXED
const LOAD_HALF: u16 = 0x48;
const LOAD_BYTE: u16 = 0x50;
const LOAD_BYTE_AT: u16 = 0x30; // A = P[k]
const LOAD_MEMORY: u16 = 0x60; // A = M[k]
const LOAD_X: u16 = 0x01; // X = k
const STORE: u16 = 0x02; // M[k] = A
const STORE_X: u16 = 0x03; // M[k] = X
const LOAD_X_MEMORY: u16 = 0x61; // X = M[k]
const COPY_TO_X: u16 = 0x07; // X = A
const ADD: u16 = 0x04;
const MULTIPLY: u16 = 0x24;
const AND: u16 = 0x54;
const XOR_X: u16 = 0xac;
const SHIFT_RIGHT: u16 = 0x74;
const JUMP: u16 = 0x05; // skips k
const JUMP_EQUAL: u16 = 0x15; // A == k
const JUMP_EQUAL_X: u16 = 0x1d; // A == X
const JUMP_SET: u16 = 0x45; // A & k
const RETURN: u16 = 0x06; // k
const RETURN_A: u16 = 0x16;

const fn step(code: u16, operand: u32) -> ClassicInstruction {
    branch(code, operand, 0, 0)
}

const fn branch(code: u16, operand: u32, jump_true: u8, jump_false: u8) -> ClassicInstruction {
    ClassicInstruction {
        code,
        jump_true,
        jump_false,
        operand,
    }
}

/// `A ^= A >> bits`. `M[1]` keeps the offset of the identifier, since X is needed.
fn xor_shift(bits: u32) -> [ClassicInstruction; 4] {
    [
        step(STORE, 0),
        step(SHIFT_RIGHT, bits),
        step(COPY_TO_X, 0),
        step(LOAD_MEMORY, 0),
    ]
}

/// The program for the processes' common key. At offset 0 a program of UDP sockets sees the payload.
#[must_use]
pub fn program(key: &ConnectionIdKey) -> Vec<ClassicInstruction> {
    let [first, second, third] = key.factors;
    let mut program = vec![
        step(LOAD_BYTE_AT, 0),
        branch(JUMP_SET, LONG_HEADER.into(), 2, 0),
        // A short header.
        step(LOAD_X, SHORT_ID_AT as u32),
        step(JUMP, 4),
        // A long header: the length of own identifiers.
        step(LOAD_BYTE_AT, LONG_ID_LEN_AT as u32),
        branch(JUMP_EQUAL, CONNECTION_ID_LEN as u32, 1, 0),
        step(RETURN, ANY_SOCKET),
        step(LOAD_X, LONG_ID_LEN_AT as u32 + 1),
        // The hash, see `ConnectionIdKey::hash`.
        step(STORE_X, 1),
        step(LOAD_WORD, 4),
        step(ADD, key.start),
    ];
    for (bits, factor) in [(15, first), (13, second), (16, third)] {
        program.extend(xor_shift(bits));
        program.extend([step(XOR_X, 0), step(MULTIPLY, factor)]);
    }
    program.extend([
        step(STORE, 0),
        // The check.
        step(AND, 0xffff),
        step(STORE, 2),
        // X serves the shifts, so the offset is loaded again.
        step(LOAD_X_MEMORY, 1),
        step(LOAD_HALF, 2),
        step(LOAD_X_MEMORY, 2),
        branch(JUMP_EQUAL_X, 0, 1, 0),
        step(RETURN, ANY_SOCKET),
        // The mask and the worker.
        step(LOAD_X_MEMORY, 1),
        step(LOAD_BYTE, 0),
        step(STORE, 2),
        step(LOAD_MEMORY, 0),
        step(SHIFT_RIGHT, 24),
        step(LOAD_X_MEMORY, 2),
        step(XOR_X, 0),
        step(RETURN_A, 0),
    ]);
    program
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowroad_engine::datagram_relay::ProcessWorker;

    /// Interprets a program. A load beyond the datagram ends it with 0, as in the kernel.
    fn run(program: &[ClassicInstruction], datagram: &[u8]) -> u32 {
        let (mut a, mut x, mut memory, mut at) = (0_u32, 0_u32, [0_u32; 16], 0);
        // Words are in network order.
        let load = |offset: u32, len: usize| {
            let bytes = datagram.get(offset as usize..)?.get(..len)?;
            let fold = |sum: u32, byte: &u8| sum << 8 | u32::from(*byte);
            Some(bytes.iter().fold(0, fold))
        };
        loop {
            let it = program[at];
            at += 1;
            let k = it.operand;
            let loaded = match it.code {
                LOAD_WORD => load(x + k, 4),
                LOAD_HALF => load(x + k, 2),
                LOAD_BYTE => load(x + k, 1),
                LOAD_BYTE_AT => load(k, 1),
                LOAD_MEMORY => Some(memory[k as usize]),
                ADD => Some(a.wrapping_add(k)),
                MULTIPLY => Some(a.wrapping_mul(k)),
                AND => Some(a & k),
                XOR_X => Some(a ^ x),
                SHIFT_RIGHT => Some(a >> k),
                _ => Some(a),
            };
            let Some(loaded) = loaded else {
                return 0;
            };
            a = loaded;
            let mut jump = |is_true: bool| {
                at += usize::from(if is_true { it.jump_true } else { it.jump_false });
            };
            match it.code {
                LOAD_X => x = k,
                STORE => memory[k as usize] = a,
                STORE_X => memory[k as usize] = x,
                LOAD_X_MEMORY => x = memory[k as usize],
                COPY_TO_X => x = a,
                JUMP => at += k as usize,
                JUMP_EQUAL => jump(a == k),
                JUMP_EQUAL_X => jump(a == x),
                JUMP_SET => jump(a & k != 0),
                RETURN => return k,
                RETURN_A => return a,
                _ => {}
            }
        }
    }

    #[test]
    fn program_agrees_with_the_key() {
        let key = ConnectionIdKey::new(*b"another secret!!");
        let program = program(&key);
        let mut random = 7_u64;
        for round in 0..4000_u32 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let place = ProcessWorker {
                generation: (round % 256) as u8,
                worker: (round % 128) as u8,
            };
            let bytes = ((random ^ random >> 31) as u32).to_be_bytes();
            let id = match round % 5 {
                // An identifier that the client has chosen.
                0 => (random ^ random >> 23).to_be_bytes(),
                _ => key.encode(place, bytes),
            };
            let wanted = key.decode(&id).map_or(ANY_SOCKET, |it| it.worker.into());
            let short = [&[0x43][..], &id, &[9; 20]].concat();
            assert_eq!(run(&program, &short), wanted);
            let long = [&[0xc3, 0, 0, 0, 1, 8][..], &id, &[9; 20]].concat();
            assert_eq!(run(&program, &long), wanted);
        }
        // An identifier of another length is the client's; a datagram that is too short ends the program.
        let other_len = [&[0xc3, 0, 0, 0, 1, 9][..], &[1; 30]].concat();
        assert_eq!(run(&program, &other_len), ANY_SOCKET);
        assert_eq!(run(&program, &[0x40, 1]), 0);
    }
}
