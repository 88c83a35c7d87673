//! Rows of the binary protocol: a bitmap of NULLs, then the values. Uses columns; independent of connections.

use crate::column::{Column, Kind};
use crate::error::Error;
use crate::event::Value;
use crate::moment;
use crate::read::Reader;

/// Reports the values of a row one after the other.
///
/// # Errors
/// The row's length does not match its columns.
#[inline]
pub fn read(
    payload: &[u8],
    columns: &[Column],
    mut give: impl FnMut(Value<'_>),
) -> Result<(), Error> {
    let mut from = Reader(payload);
    from.u8()?;
    // The bitmap of binary rows begins with two reserved bits.
    let nulls = from.bytes((columns.len() + 2).div_ceil(8))?;
    for (at, column) in columns.iter().enumerate() {
        let bit = at + 2;
        if nulls[bit / 8] & 1 << (bit % 8) != 0 {
            give(Value::Null);
        } else {
            value(&mut from, column, &mut give)?;
        }
    }
    // Surplus bytes show that client and server disagree about the columns.
    if !from.0.is_empty() {
        return Err(Error::Protocol("a row is longer than its columns"));
    }
    Ok(())
}

#[inline]
fn value(
    from: &mut Reader<'_>,
    column: &Column,
    give: &mut impl FnMut(Value<'_>),
) -> Result<(), Error> {
    let whole = |signed: i64, unsigned: u64| match column.is_unsigned {
        true => Value::UInt(unsigned),
        false => Value::Int(signed),
    };
    let value = match column.kind {
        Kind::Text => text(from.text()?),
        Kind::Bytes => Value::Bytes(from.text()?),
        Kind::LongLong => {
            let bits = from.u64()?;
            whole(bits as i64, bits)
        }
        Kind::Long => {
            let bits = from.u32()?;
            whole(i64::from(bits as i32), u64::from(bits))
        }
        Kind::Short => {
            let bits = from.u16()?;
            whole(i64::from(bits as i16), u64::from(bits))
        }
        Kind::Tiny => {
            let bits = from.u8()?;
            whole(i64::from(bits as i8), u64::from(bits))
        }
        Kind::Float => Value::Float(f64::from(f32::from_bits(from.u32()?))),
        Kind::Double => Value::Float(f64::from_bits(from.u64()?)),
        Kind::Bit => bits(from.text()?)?,
        Kind::Null => Value::Null,
        Kind::Date => return moment::date(from, None).map(|date| give(Value::Text(date.as_str()))),
        Kind::DateTime => {
            let date = moment::date(from, Some(column.decimals))?;
            give(Value::Text(date.as_str()));
            return Ok(());
        }
        Kind::Time => {
            let time = moment::time(from, column.decimals)?;
            give(Value::Text(time.as_str()));
            return Ok(());
        }
    };
    give(value);
    Ok(())
}

/// A text. The session uses UTF-8; invalid text is returned as bytes.
fn text(bytes: &[u8]) -> Value<'_> {
    core::str::from_utf8(bytes).map_or(Value::Bytes(bytes), Value::Text)
}

/// BIT: up to 64 bits in big-endian order.
fn bits(bytes: &[u8]) -> Result<Value<'static>, Error> {
    if bytes.len() > 8 {
        return Err(Error::Protocol("BIT has more than 64 bits"));
    }
    let number = bytes
        .iter()
        .fold(0, |number, &byte| number << 8 | u64::from(byte));
    Ok(Value::UInt(number))
}
