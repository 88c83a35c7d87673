//! Encodes the client's commands. This module is independent of the client's state.

use alloc::vec::Vec;

use crate::event::SqlValue;
use crate::packet;

const COM_QUERY: u8 = 0x03;
const COM_STMT_PREPARE: u8 = 0x16;
const COM_STMT_EXECUTE: u8 = 0x17;
const COM_STMT_CLOSE: u8 = 0x19;

/// The position of the statement's id in the packet written by [`execute`].
const ID_AT: usize = packet::HEAD_LEN + 1;

/// Writes COM_QUERY, which executes a statement without preparing it.
pub fn query(to: &mut Vec<u8>, statement: &str) {
    text(to, COM_QUERY, statement);
}

/// Writes COM_STMT_PREPARE, which prepares a statement.
pub fn prepare(to: &mut Vec<u8>, statement: &str) {
    text(to, COM_STMT_PREPARE, statement);
}

fn text(to: &mut Vec<u8>, command: u8, text: &str) {
    // A command starts a new sequence, so its sequence number is 0.
    let start = packet::begin(to, 0);
    to.push(command);
    to.extend_from_slice(text.as_bytes());
    packet::end(to, start);
}

/// Writes COM_STMT_CLOSE, which closes a prepared statement and has no reply.
pub fn close(to: &mut Vec<u8>, id: u32) {
    let start = packet::begin(to, 0);
    to.push(COM_STMT_CLOSE);
    to.extend_from_slice(&id.to_le_bytes());
    packet::end(to, start);
}

/// Writes COM_STMT_EXECUTE, which executes a prepared statement. Returns false, without writing, if the packet would be
/// longer than `len_max`.
#[inline]
pub fn execute<'v>(
    to: &mut Vec<u8>,
    id: u32,
    values: impl ExactSizeIterator<Item = SqlValue<'v>>,
    len_max: usize,
) -> bool {
    let initial_len = to.len();
    let start = packet::begin(to, 0);
    let count = values.len();
    to.push(COM_STMT_EXECUTE);
    to.extend_from_slice(&id.to_le_bytes());
    // There is no cursor, and the iteration count is 1.
    to.extend_from_slice(&[0, 1, 0, 0, 0]);
    if count > 0 {
        write_values(to, count, values);
    }
    if to.len() - start > len_max.min(packet::CONTINUED_LEN - 1) {
        // The output is restored, so the connection remains usable.
        to.truncate(initial_len);
        return false;
    }
    packet::end(to, start);
    true
}

/// Sets the statement's id in a packet written by [`execute`].
pub fn set_id(packet: &mut [u8], id: u32) {
    packet[ID_AT..ID_AT + 4].copy_from_slice(&id.to_le_bytes());
}

fn write_values<'v>(to: &mut Vec<u8>, count: usize, values: impl Iterator<Item = SqlValue<'v>>) {
    let nulls = to.len();
    to.resize(nulls + count.div_ceil(8), 0);
    // new_params_bind_flag tells that types follow: they may differ from the last execution.
    to.push(1);
    let types = to.len();
    to.resize(types + 2 * count, 0);
    for (at, value) in values.take(count).enumerate() {
        let (kind, flags) = write_value(to, value);
        to[types + 2 * at] = kind;
        to[types + 2 * at + 1] = flags;
        // NULL is a bit in the bitmap and has no value bytes.
        if value == SqlValue::Null {
            to[nulls + at / 8] |= 1 << (at % 8);
        }
    }
}

/// Writes a value; returns its type, and the flag for unsigned types.
#[inline]
fn write_value(to: &mut Vec<u8>, value: SqlValue<'_>) -> (u8, u8) {
    match value {
        SqlValue::Null => (6, 0),
        SqlValue::Int(number) => {
            to.extend_from_slice(&number.to_le_bytes());
            (8, 0)
        }
        SqlValue::UInt(number) => {
            to.extend_from_slice(&number.to_le_bytes());
            (8, 0x80)
        }
        SqlValue::Float(number) => {
            to.extend_from_slice(&number.to_le_bytes());
            (5, 0)
        }
        SqlValue::Text(text) => write_bytes(to, text.as_bytes(), 253),
        SqlValue::Bytes(bytes) => write_bytes(to, bytes, 252),
    }
}

fn write_bytes(to: &mut Vec<u8>, bytes: &[u8], kind: u8) -> (u8, u8) {
    packet::write_lenenc(to, bytes.len());
    to.extend_from_slice(bytes);
    (kind, 0)
}
