//! Converts dates and times of the binary protocol to MariaDB's text format, without validating them.

use crate::error::MySqlError;
use crate::packet_reader::PacketReader;

/// The maximum text length, which suffices for 32-bit days, too.
pub const LEN_MAX: usize = 32;

/// A short ASCII text, without an allocation.
pub struct ShortText {
    bytes: [u8; LEN_MAX],
    len: usize,
}

const WRONG: MySqlError = MySqlError::Protocol("a date or time has a wrong length");

impl ShortText {
    pub fn new() -> ShortText {
        ShortText {
            bytes: [0; LEN_MAX],
            len: 0,
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        // Only ASCII is appended, so this never fails.
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }

    fn push(&mut self, byte: u8) {
        // `LEN_MAX` suffices for every value; the check only avoids a panic path.
        if let Some(slot) = self.bytes.get_mut(self.len) {
            *slot = byte;
            self.len += 1;
        }
    }

    /// Appends a number with at least `width` digits (up to 10).
    fn number(&mut self, number: u32, width: usize) {
        let mut digits = [b'0'; 10];
        let mut rest = number;
        let mut at = digits.len();
        while rest > 0 || digits.len() - at < width {
            at -= 1;
            digits[at] += (rest % 10) as u8;
            rest /= 10;
        }
        digits[at..].iter().for_each(|digit| self.push(*digit));
    }

    /// Appends `.123`, with the number of decimals of the column.
    fn fraction(&mut self, micros: u32, decimals: u8) {
        if !(1..=6).contains(&decimals) {
            return;
        }
        // The protocol always sends microseconds; the column determines the number of decimals.
        let divisor = 10_u32.pow(6 - u32::from(decimals));
        self.push(b'.');
        self.number(micros.min(999_999) / divisor, usize::from(decimals));
    }

    fn clock(&mut self, hours: u32, minutes: u8, seconds: u8) {
        self.number(hours, 2);
        self.push(b':');
        self.number(u32::from(minutes), 2);
        self.push(b':');
        self.number(u32::from(seconds), 2);
    }
}

/// Reads a date; with `decimals`, a date and time.
pub fn date(from: &mut PacketReader<'_>, decimals: Option<u8>) -> Result<ShortText, MySqlError> {
    let len = from.u8()?;
    let mut fields = PacketReader(from.bytes(usize::from(len))?);
    // Trailing parts that are zero are omitted; the length shows which are present.
    if !matches!(len, 0 | 4 | 7 | 11) {
        return Err(WRONG);
    }
    let (year, month, day) = match len {
        0 => (0, 0, 0),
        _ => (fields.u16()?, fields.u8()?, fields.u8()?),
    };
    let mut text = ShortText::new();
    text.number(u32::from(year), 4);
    text.push(b'-');
    text.number(u32::from(month), 2);
    text.push(b'-');
    text.number(u32::from(day), 2);
    let Some(decimals) = decimals else {
        return Ok(text);
    };
    let [hours, minutes, seconds] = if len >= 7 { fields.array()? } else { [0; 3] };
    let micros = if len == 11 { fields.u32()? } else { 0 };
    text.push(b' ');
    text.clock(u32::from(hours), minutes, seconds);
    text.fraction(micros, decimals);
    Ok(text)
}

/// Reads a time, which can be negative, and longer than a day.
pub fn time(from: &mut PacketReader<'_>, decimals: u8) -> Result<ShortText, MySqlError> {
    let len = from.u8()?;
    let mut fields = PacketReader(from.bytes(usize::from(len))?);
    if !matches!(len, 0 | 8 | 12) {
        return Err(WRONG);
    }
    let mut text = ShortText::new();
    if len == 0 {
        text.clock(0, 0, 0);
        text.fraction(0, decimals);
        return Ok(text);
    }
    if fields.u8()? != 0 {
        text.push(b'-');
    }
    let days = fields.u32()?;
    let [hours, minutes, seconds] = fields.array()?;
    let micros = if len == 12 { fields.u32()? } else { 0 };
    text.clock(
        // Days are sent separately; MariaDB prints them as hours.
        days.saturating_mul(24).saturating_add(u32::from(hours)),
        minutes,
        seconds,
    );
    text.fraction(micros, decimals);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn date_text(bytes: &[u8], decimals: Option<u8>) -> Result<alloc::string::String, MySqlError> {
        date(&mut PacketReader(bytes), decimals).map(|text| text.as_str().into())
    }

    fn time_text(bytes: &[u8], decimals: u8) -> Result<alloc::string::String, MySqlError> {
        time(&mut PacketReader(bytes), decimals).map(|text| text.as_str().into())
    }

    #[test]
    fn dates_and_times_are_formatted_as_by_mariadb() {
        assert_eq!(
            date_text(&[4, 0xea, 7, 11, 23], None).unwrap(),
            "2026-11-23"
        );
        assert_eq!(date_text(&[0], None).unwrap(), "0000-00-00");
        assert_eq!(
            date_text(&[4, 0xea, 7, 11, 23], Some(0)).unwrap(),
            "2026-11-23 00:00:00"
        );
        assert_eq!(
            date_text(&[7, 0xea, 7, 11, 23, 8, 5, 9], Some(0)).unwrap(),
            "2026-11-23 08:05:09"
        );
        let micros = [11, 0xea, 7, 11, 23, 8, 5, 9, 0x40, 0xe2, 1, 0];
        assert_eq!(
            date_text(&micros, Some(6)).unwrap(),
            "2026-11-23 08:05:09.123456"
        );
        assert_eq!(
            date_text(&micros, Some(2)).unwrap(),
            "2026-11-23 08:05:09.12"
        );
        assert_eq!(
            time_text(&[8, 1, 1, 0, 0, 0, 6, 0, 1], 0).unwrap(),
            "-30:00:01"
        );
        assert_eq!(time_text(&[0], 3).unwrap(), "00:00:00.000");
        assert_eq!(
            time_text(&[8, 0, 34, 0, 0, 0, 22, 59, 59], 0).unwrap(),
            "838:59:59"
        );
    }

    #[test]
    fn wrong_length_is_rejected_and_large_numbers_fit() {
        assert!(date_text(&[5, 0, 0, 0, 0, 0], None).is_err());
        assert!(date_text(&[7, 0, 0], Some(0)).is_err());
        assert!(time_text(&[1, 0], 0).is_err());
        let too_long = time_text(&[0xff; 13].map(|b: u8| b), 6);
        assert!(too_long.is_err());
        let mut bytes = [0xff; 13];
        bytes[0] = 12;
        assert_eq!(time_text(&bytes, 6).unwrap(), "-4294967295:255:255.999999");
        bytes[0] = 11;
        assert_eq!(
            date_text(&bytes, Some(6)).unwrap(),
            "65535-255-255 255:255:255.999999"
        );
    }
}
