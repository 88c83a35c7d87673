//! The Huffman code of HPACK and QPACK. Read RFC 7541 §5.2 and appendix B.
//!
//! The code is canonical: symbols sorted by length, then by value, have ascending codes. So the lengths define the
//! code, and the tables are computed from the lengths at compile time. Codes of up to 8 bits, nearly all of a typical
//! field value, are looked up in a table; longer codes are found by their length.

use alloc::vec::Vec;

const SYMBOLS: usize = 257;
/// The end-of-string symbol; a string that contains it is an error (RFC 7541 §5.2).
const EOS: u16 = 256;
const LEN_MAX: usize = 30;

/// The number of bits of each symbol's code.
#[rustfmt::skip]
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11,
    10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8,
    15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5,
    6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23,
    23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21,
    23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25,
    26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26,
    28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

/// The tables that the lengths imply.
struct HuffmanCodes {
    /// The code of each symbol.
    codes: [u32; SYMBOLS],
    /// The symbols in the order of their codes.
    order: [u16; SYMBOLS],
    /// The first code of each length.
    first: [u32; LEN_MAX + 1],
    /// For each length, the start of its symbols in `order`.
    start: [u16; LEN_MAX + 2],
    /// Indexed by the next 8 bits: the length and the symbol of the code at their start; 0 if the code is longer.
    short: [u16; 256],
}

static CODES: HuffmanCodes = codes();

const fn codes() -> HuffmanCodes {
    let mut tables = HuffmanCodes {
        codes: [0; SYMBOLS],
        order: [0; SYMBOLS],
        first: [0; LEN_MAX + 1],
        start: [0; LEN_MAX + 2],
        short: [0; 256],
    };
    let (mut len, mut code, mut at) = (1, 0_u32, 0);
    while len <= LEN_MAX {
        tables.first[len] = code;
        tables.start[len] = at as u16;
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == len {
                tables.codes[symbol] = code;
                tables.order[at] = symbol as u16;
                // Each byte that begins with this code gets an entry.
                if len <= 8 {
                    let mut byte = (code as usize) << (8 - len);
                    let end = byte + (1 << (8 - len));
                    while byte < end {
                        tables.short[byte] = (len << 8) as u16 | symbol as u16;
                        byte += 1;
                    }
                }
                code += 1;
                at += 1;
            }
            symbol += 1;
        }
        // The codes of the next length continue with one more bit.
        code <<= 1;
        len += 1;
    }
    tables.start[LEN_MAX + 1] = at as u16;
    tables
}

/// Bits that were read but not consumed, left-aligned.
struct BitReader<'b> {
    bits: u64,
    count: u32,
    rest: &'b [u8],
}

impl BitReader<'_> {
    /// Ensures at least 32 bits, unless the input has fewer.
    #[inline(always)]
    fn refill(&mut self) {
        if self.count >= 32 {
            return;
        }
        // Fewer than 32 bits are left, so 32 more fit into the 64.
        if let Some((four, rest)) = self.rest.split_first_chunk::<4>() {
            self.bits |= u64::from(u32::from_be_bytes(*four)) << (32 - self.count);
            self.count += 32;
            self.rest = rest;
            return;
        }
        for byte in core::mem::take(&mut self.rest) {
            self.bits |= u64::from(*byte) << (56 - self.count);
            self.count += 8;
        }
    }

    fn skip(&mut self, count: u32) {
        self.bits <<= count;
        self.count -= count;
    }

    /// Whether the remaining bits are valid padding: fewer than 8, all ones (RFC 7541 §5.2).
    fn is_padding(&self) -> bool {
        self.count < 8 && self.bits.leading_ones() >= self.count
    }

    /// Decodes a symbol with a code of more than 8 bits.
    fn long(&mut self) -> Option<u8> {
        // No code has 9 bits.
        for len in 10..=LEN_MAX.min(self.count as usize) {
            let code = (self.bits >> (64 - len)) as u32;
            let offset = code.checked_sub(CODES.first[len])?;
            let at = usize::from(CODES.start[len]) + offset as usize;
            if at < usize::from(CODES.start[len + 1]) {
                self.skip(len as u32);
                let symbol = *CODES.order.get(at)?;
                return (symbol != EOS).then_some(symbol as u8);
            }
        }
        None
    }
}

/// Appends the decoded string; 5 bytes decode to at most 8. `None` if `bytes` are not a valid code.
pub(crate) fn decode(bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut bits = BitReader {
        bits: 0,
        count: 0,
        rest: bytes,
    };
    // The shortest codes have 5 bits.
    out.reserve(bytes.len() * 8 / 5);
    loop {
        bits.refill();
        let short = CODES.short[(bits.bits >> 56) as usize];
        let len = u32::from(short >> 8);
        if len != 0 && len <= bits.count {
            out.push(short as u8);
            bits.skip(len);
        } else if bits.is_padding() {
            return Some(());
        } else {
            out.push(bits.long()?);
        }
    }
}

/// The number of bytes of `bytes` when encoded.
pub(crate) fn encoded_len(bytes: &[u8]) -> usize {
    let bits = bytes.iter().map(|byte| LENGTHS[usize::from(*byte)]);
    bits.map(usize::from).sum::<usize>().div_ceil(8)
}

/// Appends `bytes` encoded.
pub(crate) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut count) = (0_u64, 0);
    for byte in bytes {
        let len = u32::from(LENGTHS[usize::from(*byte)]);
        bits = bits << len | u64::from(CODES.codes[usize::from(*byte)]);
        count += len;
        while count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    if count > 0 {
        // The padding is the start of the EOS code: all ones.
        let padding = 8 - count;
        out.push((bits << padding) as u8 | ((1 << padding) - 1) as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc7541_huffman_examples() {
        // RFC 7541 appendices C.4 and C.6.
        for (text, bytes) in [
            (
                "www.example.com",
                &[
                    0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff,
                ][..],
            ),
            ("no-cache", &[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf]),
            ("302", &[0x64, 0x02]),
            ("", &[]),
        ] {
            let mut out = Vec::new();
            encode(text.as_bytes(), &mut out);
            assert_eq!((&out[..], out.len()), (bytes, encoded_len(text.as_bytes())));
            let mut again = Vec::new();
            assert_eq!(decode(bytes, &mut again), Some(()));
            assert_eq!(again, text.as_bytes());
        }
    }

    #[test]
    fn huffman_round_trips_every_byte() {
        for first in 0..=255_u8 {
            for second in [0, b'a', first, 255] {
                let (text, mut out, mut again) = ([first, second, b'x'], Vec::new(), Vec::new());
                encode(&text, &mut out);
                assert_eq!(decode(&out, &mut again), Some(()));
                assert_eq!(again, text);
            }
        }
    }

    #[test]
    fn invalid_padding_and_encoded_eos_are_errors() {
        // RFC 7541 §5.2: all of these are decoding errors.
        let bad = |bytes: &[u8]| decode(bytes, &mut Vec::new()).is_none();
        assert!(bad(&[0xff]), "eight bits of padding");
        assert!(bad(&[0x1f, 0xff]), "a and eleven bits");
        assert!(!bad(&[0x1f]), "a and three bits");
        assert!(bad(&[0x18]), "padding with a zero");
        assert!(bad(&[0xff, 0xff, 0xff, 0xff]), "EOS");
        assert!(bad(&[0xff, 0xff, 0xff, 0xfc, 0x1f]), "EOS");
    }
}
