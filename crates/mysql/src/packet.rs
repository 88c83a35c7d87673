//! Packet framing: three bytes of length, one of sequence number, then the payload. Splits a byte stream into packets,
//! and builds packets. Independent of payloads.

use alloc::vec::Vec;

use crate::error::MySqlError;

/// Bytes of a packet's header.
pub const HEAD_LEN: usize = 4;

/// A packet of this length continues in the next one; this client's limits exclude it.
pub const LEN_END: usize = 0xff_ffff;

/// The first packet in some bytes.
pub struct FirstPacket<'b> {
    /// Its sequence number in the exchange.
    pub sequence: u8,
    /// Its payload.
    pub payload: &'b [u8],
}

/// The first packet and the bytes after it; `None` while it is incomplete.
///
/// # Errors
/// Its announced length exceeds the limit.
#[inline]
pub fn first(bytes: &[u8], len_max: usize) -> Result<Option<(FirstPacket<'_>, &[u8])>, MySqlError> {
    let Some((&[a, b, c, sequence], rest)) = bytes.split_first_chunk::<HEAD_LEN>() else {
        return Ok(None);
    };
    let len = u32::from_le_bytes([a, b, c, 0]) as usize;
    // Checked as soon as the header is there, before any payload is buffered.
    if len > len_max || len >= LEN_END {
        return Err(MySqlError::PacketTooLong);
    }
    let whole = rest.split_at_checked(len);
    Ok(whole.map(|(payload, rest)| (FirstPacket { sequence, payload }, rest)))
}

/// The number of bytes missing from the first packet in `bytes`, if known.
///
/// # Errors
/// Its announced length exceeds the limit.
pub fn missing(bytes: &[u8], len_max: usize) -> Result<usize, MySqlError> {
    let Some(&[a, b, c, _]) = bytes.first_chunk::<HEAD_LEN>() else {
        return Ok(HEAD_LEN - bytes.len());
    };
    let len = u32::from_le_bytes([a, b, c, 0]) as usize;
    if len > len_max || len >= LEN_END {
        return Err(MySqlError::PacketTooLong);
    }
    Ok((HEAD_LEN + len).saturating_sub(bytes.len()))
}

/// Begins a packet at the end of `to`; returns the argument of [`end`].
pub fn begin(to: &mut Vec<u8>, sequence: u8) -> usize {
    to.extend_from_slice(&[0, 0, 0, sequence]);
    to.len()
}

/// Ends a packet. Its payload is shorter than 16 MiB, since callers check their limits first.
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
    fn a_packet_is_taken_when_it_is_whole() {
        let bytes = [2, 0, 0, 7, b'a', b'b', 9];
        for len in 0..6 {
            assert!(first(&bytes[..len], 10).unwrap().is_none());
            let left = if len < 4 { 4 - len } else { 6 - len };
            assert_eq!(missing(&bytes[..len], 10), Ok(left));
        }
        let (packet, rest) = first(&bytes, 10).unwrap().expect("whole");
        assert_eq!(
            (packet.sequence, packet.payload, rest),
            (7, &b"ab"[..], &[9][..])
        );
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_it_is_read() {
        assert!(first(&[11, 0, 0, 0], 10).is_err());
        assert!(first(&[0xff, 0xff, 0xff, 0], usize::MAX).is_err());
        assert!(missing(&[11, 0, 0, 0], 10).is_err());
    }

    #[test]
    fn what_is_put_together_can_be_taken_apart() {
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
