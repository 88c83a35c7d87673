//! Reads rows of the binary protocol: a bitmap of NULLs, then the values. This module is independent of connections.

use crate::column::{ColumnInfo, ColumnType};
use crate::date_time;
use crate::error::MySqlError;
use crate::event::SqlValue;
use crate::packet_reader::PacketReader;

/// Reports the values of a row, one by one.
///
/// # Errors
/// The length of the row does not match its columns.
#[inline]
pub fn read(
    payload: &[u8],
    columns: &[ColumnInfo],
    mut emit: impl FnMut(SqlValue<'_>),
) -> Result<(), MySqlError> {
    let mut from = PacketReader(payload);
    from.u8()?;
    // The bitmap of binary rows starts with two reserved bits.
    let nulls = from.bytes((columns.len() + 2).div_ceil(8))?;
    for (at, column) in columns.iter().enumerate() {
        let bit = at + 2;
        if nulls[bit / 8] & 1 << (bit % 8) != 0 {
            emit(SqlValue::Null);
        } else {
            value(&mut from, column, &mut emit)?;
        }
    }
    // Surplus bytes show that the client and the server disagree about the columns.
    if !from.0.is_empty() {
        return Err(MySqlError::Protocol("a row is longer than its columns"));
    }
    Ok(())
}

#[inline]
fn value(
    from: &mut PacketReader<'_>,
    column: &ColumnInfo,
    emit: &mut impl FnMut(SqlValue<'_>),
) -> Result<(), MySqlError> {
    let integer = |signed: i64, unsigned: u64| match column.is_unsigned {
        true => SqlValue::UInt(unsigned),
        false => SqlValue::Int(signed),
    };
    let value = match column.kind {
        ColumnType::Text => text(from.text()?),
        ColumnType::Bytes => SqlValue::Bytes(from.text()?),
        ColumnType::LongLong => {
            let bits = from.u64()?;
            integer(bits as i64, bits)
        }
        ColumnType::Long => {
            let bits = from.u32()?;
            integer(i64::from(bits as i32), u64::from(bits))
        }
        ColumnType::Short => {
            let bits = from.u16()?;
            integer(i64::from(bits as i16), u64::from(bits))
        }
        ColumnType::Tiny => {
            let bits = from.u8()?;
            integer(i64::from(bits as i8), u64::from(bits))
        }
        ColumnType::Float => SqlValue::Float(f64::from(f32::from_bits(from.u32()?))),
        ColumnType::Double => SqlValue::Float(f64::from_bits(from.u64()?)),
        ColumnType::Bit => bits(from.text()?)?,
        ColumnType::Null => SqlValue::Null,
        ColumnType::Date => {
            return date_time::date(from, None).map(|date| emit(SqlValue::Text(date.as_str())));
        }
        ColumnType::DateTime => {
            let date = date_time::date(from, Some(column.decimals))?;
            emit(SqlValue::Text(date.as_str()));
            return Ok(());
        }
        ColumnType::Time => {
            let time = date_time::time(from, column.decimals)?;
            emit(SqlValue::Text(time.as_str()));
            return Ok(());
        }
    };
    emit(value);
    Ok(())
}

/// A text value. The session uses UTF-8; invalid UTF-8 is returned as bytes.
fn text(bytes: &[u8]) -> SqlValue<'_> {
    core::str::from_utf8(bytes).map_or(SqlValue::Bytes(bytes), SqlValue::Text)
}

/// A value of type BIT: up to 64 bits, big-endian.
fn bits(bytes: &[u8]) -> Result<SqlValue<'static>, MySqlError> {
    if bytes.len() > 8 {
        return Err(MySqlError::Protocol("BIT has more than 64 bits"));
    }
    let number = bytes
        .iter()
        .fold(0, |number, &byte| number << 8 | u64::from(byte));
    Ok(SqlValue::UInt(number))
}
