//! Random numbers from the processor's generator and from the jitter of port reads. ChaCha rounds mix both sources, so
//! that one good source suffices.

use core::arch::asm;

use crate::cpu::{self, in8};

/// Number of timings; under a hypervisor, each one contributes a bit of entropy or more.
const TIMES: usize = 256;

/// A new secret.
pub fn secret() -> [u8; 32] {
    let mut state = [0; 16];
    for n in 0..TIMES {
        let (entropy, ticks) = (from_processor(n), cpu::ticks());
        let _ = in8(if n % 2 == 0 { 0x61 } else { 0x3fd });
        let end_ticks = cpu::ticks();
        for (index, word) in [entropy, entropy >> 32, ticks, end_ticks]
            .into_iter()
            .enumerate()
        {
            state[index + 4 * (n % 3)] ^= word as u32;
        }
        if n % 3 == 2 || n + 1 == TIMES {
            mix(&mut state);
        }
    }
    let mut secret = [0; 32];
    for (chunk, word) in secret.chunks_exact_mut(4).zip(state) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    secret
}

/// A word from the processor's generator for the first eight calls; 0 for later calls, or if the generator fails.
fn from_processor(n: usize) -> u64 {
    if n >= 8 || cpu::id(1, 0).ecx & 1 << 30 == 0 {
        return 0;
    }
    for _ in 0..10 {
        let (value, is_good): (u64, u8);
        // SAFETY: the processor has the instruction, which changes only the named registers.
        unsafe {
            asm!("rdrand {0}", "setc {1}", out(reg) value, out(reg_byte) is_good, options(nomem, nostack))
        }
        if is_good != 0 {
            return value;
        }
    }
    0
}

/// The ChaCha block function (RFC 8439, 2.3). The final addition of the initial state makes it one-way.
fn mix(state: &mut [u32; 16]) {
    let initial = *state;
    for _ in 0..10 {
        for [a, b, c, d] in [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]] {
            quarter_round(state, a, b, c, d);
        }
        for [a, b, c, d] in [[0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14]] {
            quarter_round(state, a, b, c, d);
        }
    }
    for (word, initial) in state.iter_mut().zip(initial) {
        *word = word.wrapping_add(initial);
    }
}

fn quarter_round(s: &mut [u32; 16], a: usize, b: usize, c: usize, d: usize) {
    for [x, y, z, turn] in [[a, b, d, 16], [c, d, b, 12], [a, b, d, 8], [c, d, b, 7]] {
        s[x] = s[x].wrapping_add(s[y]);
        s[z] = (s[z] ^ s[x]).rotate_left(turn as u32);
    }
}
