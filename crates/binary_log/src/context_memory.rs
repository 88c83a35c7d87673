//! The last value of a column for each value of its context column. Blocks begin with the memory of their dictionary, so
//! changes are undone at the end of a block.

use crate::schema::COLUMNS;

/// The last values by the place of their context.
#[derive(Clone, Debug)]
pub struct ContextMemory<T> {
    /// The last values; None before there is one.
    values: Vec<Option<T>>,
    /// The last value of all.
    latest: Option<T>,
    base_latest: Option<T>,
    /// The number of contexts of the dictionary.
    base_len: usize,
    /// Values of the dictionary that were replaced, in order.
    replaced: Vec<(u32, Option<T>)>,
}

impl<T> Default for ContextMemory<T> {
    fn default() -> ContextMemory<T> {
        ContextMemory {
            values: Vec::new(),
            latest: None,
            base_latest: None,
            base_len: 0,
            replaced: Vec::new(),
        }
    }
}

impl<T: Copy + PartialEq> ContextMemory<T> {
    /// The last value that came with a context; for a new one the last value of all.
    #[inline]
    pub fn last(&self, context: u32) -> Option<T> {
        // Values of neighbouring records are often equal, so this is a better guess than none.
        self.last_of(context).or(self.latest)
    }

    /// The last value that came with a context; None for a new one.
    #[inline]
    pub fn last_of(&self, context: u32) -> Option<T> {
        self.values.get(context as usize).copied().flatten()
    }

    /// Notes a value that equals [`ContextMemory::last_of`], with the same effect as [`ContextMemory::note`].
    #[inline]
    pub fn repeat(&mut self, value: T) {
        self.latest = Some(value);
    }

    /// Notes a value. The caller bounds contexts by the number of values of their column.
    pub fn note(&mut self, context: u32, value: T) {
        let place = context as usize;
        if self.values.len() <= place {
            self.values.resize(place + 1, None);
        }
        // Encoder and decoder make the same calls in the same order, so both predict the same values.
        self.latest = Some(value);
        let before = self.values[place].replace(value);
        // Contexts beyond `base_len` are cut off by `restore`, and an equal value needs no undo.
        if place < self.base_len && before != Some(value) {
            self.replaced.push((context, before));
        }
    }

    /// Makes the current values those that each block begins with.
    pub fn freeze(&mut self) {
        self.base_len = self.values.len();
        self.base_latest = self.latest;
        self.replaced.clear();
    }

    /// Returns to the values at the last [`ContextMemory::freeze`].
    pub fn restore(&mut self) {
        self.values.truncate(self.base_len);
        self.latest = self.base_latest;
        // The last change is undone first, so a context that changed twice ends with its frozen value.
        while let Some((context, value)) = self.replaced.pop() {
            self.values[context as usize] = value;
        }
    }
}

/// The memory of all columns, for a decoder. A column uses one of the two.
#[derive(Default)]
pub struct BlockMemory {
    /// The last numbers, by the place of the column.
    pub numbers: [ContextMemory<u64>; COLUMNS.len()],
    /// The last places of values, by the place of the column.
    pub places: [ContextMemory<u32>; COLUMNS.len()],
}

impl BlockMemory {
    /// Makes the current values those that each block begins with.
    pub fn freeze(&mut self) {
        self.numbers.iter_mut().for_each(ContextMemory::freeze);
        self.places.iter_mut().for_each(ContextMemory::freeze);
    }

    /// Returns to the values at the last [`BlockMemory::freeze`].
    pub fn restore(&mut self) {
        self.numbers.iter_mut().for_each(ContextMemory::restore);
        self.places.iter_mut().for_each(ContextMemory::restore);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restore_returns_to_the_frozen_values() {
        let mut memory = ContextMemory::default();
        memory.note(1, 10);
        memory.freeze();
        for _ in 0..2 {
            assert_eq!([0, 1, 2].map(|it| memory.last(it)), [Some(10); 3]);
            memory.note(1, 11);
            memory.note(1, 12);
            memory.note(0, 13);
            memory.note(2, 14);
            assert_eq!(
                [0, 1, 2].map(|it| memory.last(it)),
                [Some(13), Some(12), Some(14)]
            );
            memory.restore();
        }
    }
}
