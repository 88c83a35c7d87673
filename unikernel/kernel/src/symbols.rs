//! Function names for stack traces. Layout of the symbol table: the number of functions; for each function its address
//! and the offset of its name, sorted by address (all numbers 4 bytes, little endian); then the names, each with a zero
//! byte at its end. Offsets count from the first name.

use crate::bytes::u32_at;

/// The function that contains `address`, and the offset within it.
#[must_use]
pub fn name_of(table: &[u8], address: u64) -> Option<(&str, u64)> {
    let count = u32_at(table, 0)? as usize;
    let entries = table.get(4..4 + count.checked_mul(8)?)?;
    let names = &table[4 + entries.len()..];
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low.midpoint(high);
        if u64::from(u32_at(entries, middle * 8)?) <= address {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let at = low.checked_sub(1)? * 8;
    let name = names.get(u32_at(entries, at + 4)? as usize..)?;
    let len = name.iter().position(|byte| *byte == 0)?;
    let start = u64::from(u32_at(entries, at)?);
    Some((core::str::from_utf8(&name[..len]).ok()?, address - start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_finds_the_preceding_function() {
        let mut table = vec![2, 0, 0, 0];
        for number in [0x1000_u32, 0, 0x2000, 4] {
            table.extend(number.to_le_bytes());
        }
        table.extend(b"one\0two\0");
        assert_eq!(name_of(&table, 0xfff), None);
        assert_eq!(name_of(&table, 0x1000), Some(("one", 0)));
        assert_eq!(name_of(&table, 0x1fff), Some(("one", 0xfff)));
        assert_eq!(name_of(&table, 0x2010), Some(("two", 0x10)));
        for len in 0..table.len() {
            let _ = name_of(&table[..len], 0x2010);
        }
    }
}
