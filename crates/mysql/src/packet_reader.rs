//! Reads integers and strings from a packet, with bounds checks. This module is independent of the packets' meaning.

use crate::error::MySqlError;

/// The error for a packet that is too short for its contents.
pub const SHORT: MySqlError = MySqlError::Protocol("a packet ends too early");

/// The part of a packet that has not been read.
#[derive(Clone, Copy)]
pub struct PacketReader<'p>(pub &'p [u8]);

impl<'p> PacketReader<'p> {
    /// The next `len` bytes.
    #[inline]
    pub fn bytes(&mut self, len: usize) -> Result<&'p [u8], MySqlError> {
        let (value, rest) = self.0.split_at_checked(len).ok_or(SHORT)?;
        self.0 = rest;
        Ok(value)
    }

    /// The next `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], MySqlError> {
        let (value, rest) = self.0.split_first_chunk::<N>().ok_or(SHORT)?;
        self.0 = rest;
        Ok(*value)
    }

    pub fn u8(&mut self) -> Result<u8, MySqlError> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u16(&mut self) -> Result<u16, MySqlError> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, MySqlError> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, MySqlError> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a length-encoded integer.
    #[inline]
    pub fn lenenc(&mut self) -> Result<u64, MySqlError> {
        match self.u8()? {
            first @ 0..=250 => Ok(u64::from(first)),
            0xfc => self.u16().map(u64::from),
            0xfd => {
                let [a, b, c] = self.array()?;
                Ok(u64::from(u32::from_le_bytes([a, b, c, 0])))
            }
            0xfe => self.u64(),
            // 251 is NULL in text rows, which are not used; 255 is the start of an ERR packet.
            _ => Err(MySqlError::Protocol("a length begins with 251 or 255")),
        }
    }

    /// Reads a length-encoded string.
    #[inline]
    pub fn text(&mut self) -> Result<&'p [u8], MySqlError> {
        let len = self.lenenc()?;
        self.bytes(usize::try_from(len).map_err(|_| SHORT)?)
    }

    /// Reads a string up to a zero byte, which is consumed, or up to the end.
    pub fn until_zero(&mut self) -> &'p [u8] {
        // The last field of a packet may lack the terminating zero.
        let end = self.0.iter().position(|&byte| byte == 0);
        let value = &self.0[..end.unwrap_or(self.0.len())];
        self.0 = &self.0[end.map_or(self.0.len(), |at| at + 1)..];
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_encoded_integers_of_all_sizes_are_read() {
        for (bytes, number) in [
            (&[250][..], 250),
            (&[0xfc, 1, 2], 0x0201),
            (&[0xfd, 1, 2, 3], 0x03_0201),
            (&[0xfe, 1, 0, 0, 0, 0, 0, 0, 1], (1 << 56) + 1),
        ] {
            assert_eq!(PacketReader(bytes).lenenc(), Ok(number));
            assert_eq!(PacketReader(&bytes[..bytes.len() - 1]).lenenc(), Err(SHORT));
        }
        assert!(PacketReader(&[0xfb]).lenenc().is_err());
        assert!(PacketReader(&[0xff]).lenenc().is_err());
    }

    #[test]
    fn string_longer_than_packet_is_rejected() {
        assert_eq!(PacketReader(&[2, b'a', b'b', b'c']).text(), Ok(&b"ab"[..]));
        assert_eq!(PacketReader(&[3, b'a', b'b']).text(), Err(SHORT));
        assert_eq!(PacketReader(&[0xfe; 9]).text(), Err(SHORT));
        let mut reader = PacketReader(b"ab\0c");
        assert_eq!(
            (
                reader.until_zero(),
                reader.until_zero(),
                reader.until_zero()
            ),
            (&b"ab"[..], &b"c"[..], &b""[..])
        );
    }
}
