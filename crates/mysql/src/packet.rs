//! Packet framing: a header (three bytes of length, one byte of sequence number) and a payload. Splits a byte stream
//! into packets, and builds packets. This module is independent of payloads.

use alloc::vec::Vec;

use crate::error::MySqlError;

/// The length of a packet's header in bytes.
pub const HEAD_LEN: usize = 4;

/// A packet of this length continues in the next packet. This client's limits exclude such packets.
pub const CONTINUED_LEN: usize = 0xff_ffff;

/// The first packet in a byte stream.
pub struct FirstPacket<'b> {
    /// The packet's sequence number.
    pub sequence: u8,
    /// The packet's payload.
    pub payload: &'b [u8],
}

/// Splits off the first packet; `None` if it is incomplete.
///
/// # Errors
/// The length in the header exceeds the limit.
#[inline]
pub fn first(bytes: &[u8], len_max: usize) -> Result<Option<(FirstPacket<'_>, &[u8])>, MySqlError> {
    let Some((&[a, b, c, sequence], rest)) = bytes.split_first_chunk::<HEAD_LEN>() else {
        return Ok(None);
    };
    let len = u32::from_le_bytes([a, b, c, 0]) as usize;
    // The length is checked as soon as the header is complete, before any payload is buffered.
    if len > len_max || len >= CONTINUED_LEN {
        return Err(MySqlError::PacketTooLong);
    }
    let whole = rest.split_at_checked(len);
    Ok(whole.map(|(payload, rest)| (FirstPacket { sequence, payload }, rest)))
}

/// The number of bytes that complete the first packet in `bytes`, or its header.
///
/// # Errors
/// The length in the header exceeds the limit.
pub fn missing(bytes: &[u8], len_max: usize) -> Result<usize, MySqlError> {
    let Some(&[a, b, c, _]) = bytes.first_chunk::<HEAD_LEN>() else {
        return Ok(HEAD_LEN - bytes.len());
    };
    let len = u32::from_le_bytes([a, b, c, 0]) as usize;
    if len > len_max || len >= CONTINUED_LEN {
        return Err(MySqlError::PacketTooLong);
    }
    Ok((HEAD_LEN + len).saturating_sub(bytes.len()))
}

/// Starts a packet at the end of `to`; returns the position of its payload, for [`end`].
pub fn begin(to: &mut Vec<u8>, sequence: u8) -> usize {
    to.extend_from_slice(&[0, 0, 0, sequence]);
    to.len()
}

/// Sets the length of a packet. The payload is shorter than 16 MiB, since callers check their limits first.
pub fn end(to: &mut [u8], start: usize) {
    let [a, b, c, _] = ((to.len() - start) as u32).to_le_bytes();
    to[start - HEAD_LEN..start - 1].copy_from_slice(&[a, b, c]);
}

/// Writes a length-encoded integer.
#[inline]
pub fn write_lenenc(to: &mut Vec<u8>, number: usize) {
    let bytes = (number as u64).to_le_bytes();
    match number {
        0..=250 => to.push(bytes[0]),
        251..=0xffff => {
            to.push(0xfc);
            to.extend_from_slice(&bytes[..2]);
        }
        0x1_0000..=0xff_ffff => {
            to.push(0xfd);
            to.extend_from_slice(&bytes[..3]);
        }
        _ => {
            to.push(0xfe);
            to.extend_from_slice(&bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_is_returned_once_complete() {
        let bytes = [2, 0, 0, 7, b'a', b'b', 9];
        for len in 0..6 {
            assert!(first(&bytes[..len], 10).unwrap().is_none());
            let missing_len = if len < 4 { 4 - len } else { 6 - len };
            assert_eq!(missing(&bytes[..len], 10), Ok(missing_len));
        }
        let (packet, rest) = first(&bytes, 10).unwrap().expect("whole");
        assert_eq!(
            (packet.sequence, packet.payload, rest),
            (7, &b"ab"[..], &[9][..])
        );
    }

    #[test]
    fn length_over_limit_is_rejected_from_header() {
        assert!(first(&[11, 0, 0, 0], 10).is_err());
        assert!(first(&[0xff, 0xff, 0xff, 0], usize::MAX).is_err());
        assert!(missing(&[11, 0, 0, 0], 10).is_err());
    }

    #[test]
    fn written_packets_and_lengths_can_be_read() {
        for len in [0, 250, 251, 0xffff, 0x1_0000, 0xff_ffff, 0x100_0000] {
            let mut bytes = Vec::new();
            write_lenenc(&mut bytes, len);
            assert_eq!(
                crate::packet_reader::PacketReader(&bytes).lenenc(),
                Ok(len as u64)
            );
        }
        let mut bytes = alloc::vec![1];
        let start = begin(&mut bytes, 3);
        bytes.extend_from_slice(b"abc");
        end(&mut bytes, start);
        assert_eq!(bytes, [1, 3, 0, 0, 3, b'a', b'b', b'c']);
    }
}
