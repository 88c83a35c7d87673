//! A set of field names, compared without case (RFC 9110 §5.1).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Ordering;

/// A set of field names; a look-up takes time logarithmic in its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldNames<N = Box<[u8]>> {
    /// In ascending order of their lower-case form, without duplicates.
    sorted: Vec<N>,
}

impl<N> FieldNames<N> {
    /// No names.
    pub const NONE: FieldNames<N> = FieldNames { sorted: Vec::new() };

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }
}

impl<N> Default for FieldNames<N> {
    fn default() -> FieldNames<N> {
        FieldNames::NONE
    }
}

impl<N: AsRef<[u8]>> FieldNames<N> {
    /// Whether the set contains a name.
    #[must_use]
    pub fn has(&self, name: &[u8]) -> bool {
        let found = self
            .sorted
            .binary_search_by(|known| compare(known.as_ref(), name));
        found.is_ok()
    }
}

impl<N: AsRef<[u8]>> FromIterator<N> for FieldNames<N> {
    fn from_iter<I: IntoIterator<Item = N>>(names: I) -> FieldNames<N> {
        let mut sorted: Vec<N> = names.into_iter().collect();
        sorted.sort_unstable_by(|one, other| compare(one.as_ref(), other.as_ref()));
        sorted.dedup_by(|one, other| one.as_ref().eq_ignore_ascii_case(other.as_ref()));
        FieldNames { sorted }
    }
}

fn compare(one: &[u8], other: &[u8]) -> Ordering {
    let lower = |byte: &u8| byte.to_ascii_lowercase();
    one.iter().map(lower).cmp(other.iter().map(lower))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_case() {
        let names: FieldNames<&[u8]> = [&b"X-B"[..], b"set-cookie", b"a", b"A"]
            .into_iter()
            .collect();
        assert!(names.has(b"Set-Cookie") && names.has(b"x-b") && names.has(b"A"));
        assert!(!names.has(b"x-") && !names.has(b"x-bb") && !names.has(b""));
        assert!(FieldNames::<&[u8]>::NONE.is_empty() && !FieldNames::<&[u8]>::NONE.has(b"a"));
    }
}
