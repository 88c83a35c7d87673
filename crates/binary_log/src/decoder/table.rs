//! A column of values that repeat.

use super::columns::{ColumnSource, ColumnValues};
use crate::context_memory::ContextMemory;
use crate::limits::TEXT_LEN_MAX;
use crate::symbols::{NEW, PLACE, SAME, take_symbols};
use crate::varint::{take_bytes, take_number};

/// Reads a table column. None if the bytes are no such column.
pub fn decode(source: &ColumnSource<'_>, memory: &mut ContextMemory<u32>) -> Option<ColumnValues> {
    let known_count = source.known.map_or(0, ColumnValues::value_count);
    let mut rest = source.bytes;
    let mut values = Vec::new();
    let symbols = match rest {
        // Each value is that of its context.
        [] => vec![SAME; source.count],
        _ => {
            let value_count = usize::try_from(take_number(&mut rest)?).ok()?;
            // Each new value has a record that introduced it; a greater count would only claim memory.
            if value_count > source.count {
                return None;
            }
            let mut lens = Vec::with_capacity(value_count);
            for _ in 0..value_count {
                let len = usize::try_from(take_number(&mut rest)?).ok()?;
                // An encoder truncates texts; a longer one would only make a small file print a lot.
                if len > TEXT_LEN_MAX {
                    return None;
                }
                lens.push(len);
            }
            values.reserve(value_count);
            for len in lens {
                // Values stay in the raw bytes of the block: a copy of each would double the memory.
                let start = source.start + source.bytes.len() - rest.len();
                take_bytes(&mut rest, len)?;
                values.push(start..start + len);
            }
            take_symbols(&mut rest, source.count)?
        }
    };
    let count = (known_count + values.len()) as u32;
    // New values follow those of the dictionary, in the order in which records first have them.
    let mut next = known_count as u32;
    let mut places = Vec::with_capacity(symbols.len());
    for (record, symbol) in symbols.into_iter().enumerate() {
        let context = match source.context {
            Some(context) => *context.get(record)?,
            None => 0,
        };
        let place = match symbol {
            NEW => {
                next += 1;
                next - 1
            }
            // None before the first value: the encoder never writes this symbol there.
            SAME => memory.last(context)?,
            symbol => symbol - PLACE,
        };
        // Checked once here, so that the look-up of a record's value needs no error.
        if place >= count {
            return None;
        }
        memory.note(context, place);
        places.push(place);
    }
    let values = ColumnValues::Table { values, places };
    rest.is_empty().then_some(values)
}
