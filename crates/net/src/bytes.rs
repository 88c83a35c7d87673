//! Reads and writes numbers in headers, in network byte order.

/// Reads two bytes; the constant length lets the compiler check the bound.
pub(crate) fn be16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn be32<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// A MAC address.
pub(crate) fn mac<const N: usize>(bytes: &[u8; N], at: usize) -> [u8; 6] {
    core::array::from_fn(|i| bytes[at + i])
}

/// Writes two bytes.
pub(crate) fn write_be16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Writes four bytes.
pub(crate) fn write_be32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// A length, at most that of a window or a frame, as a difference of sequence numbers.
pub(crate) fn len32(len: usize) -> u32 {
    len as u32
}

/// Folds a sum of 16-bit words to 16 bits (RFC 1071).
pub(crate) fn fold(mut sum: u32) -> u16 {
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    sum as u16
}

/// Whether `left` precedes `right` in sequence space (RFC 9293 §3.4).
pub(crate) fn before(left: u32, right: u32) -> bool {
    left.wrapping_sub(right).cast_signed() < 0
}
