//! Random numbers for identifiers: xoroshiro128++ (Blackman, Vigna). Identifiers must differ, but need not be secret.

use crate::context::{SpanId, TraceId};

/// Generates the identifiers of one worker.
#[derive(Debug)]
pub struct IdGenerator {
    state: [u64; 2],
}

impl IdGenerator {
    /// Starts with a random seed. The identifiers of generators with different seeds differ.
    pub fn new(seed: [u64; 2]) -> IdGenerator {
        // With a state of zeros, the generator returns only zeros.
        let state = if seed == [0, 0] { [1, 2] } else { seed };
        IdGenerator { state }
    }

    /// A random number.
    pub fn next_u64(&mut self) -> u64 {
        let [first, mut second] = self.state;
        let sum = first.wrapping_add(second);
        let result = sum.rotate_left(17).wrapping_add(first);
        second ^= first;
        self.state = [
            first.rotate_left(49) ^ second ^ (second << 21),
            second.rotate_left(28),
        ];
        result
    }

    /// The identifier of a new trace.
    pub fn trace_id(&mut self) -> TraceId {
        let high = u128::from(self.next_u64()) << 64;
        TraceId::from_random(high | u128::from(self.next_u64()))
    }

    /// The identifier of a new span.
    pub fn span_id(&mut self) -> SpanId {
        SpanId::from_random(self.next_u64())
    }
}

/// The number with this index in the sequence of a seed (SplitMix64). For the spans of a request, which several threads
/// may start.
pub fn nth(seed: u64, index: u64) -> u64 {
    let mut bits = seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_reference_implementation() {
        // Of the published C code with the state 1, 2.
        let mut generator = IdGenerator::new([1, 2]);
        let numbers: Vec<u64> = (0..4).map(|_| generator.next_u64()).collect();
        assert_eq!(
            numbers,
            [
                393217,
                669327710093319,
                1732421326133921491,
                11394790081659126983
            ]
        );
        // SplitMix64 with the seed 1234567: the published test values.
        let numbers: Vec<u64> = (1..4).map(|index| nth(1234567, index)).collect();
        assert_eq!(
            numbers,
            [
                6457827717110365317,
                3203168211198807973,
                9817491932198370423
            ]
        );
    }

    #[test]
    fn identifiers_differ() {
        let mut generator = IdGenerator::new([0, 0]);
        assert_ne!(generator.trace_id(), generator.trace_id());
        assert_ne!(generator.span_id(), generator.span_id());
    }
}
