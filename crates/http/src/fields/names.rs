//! A set of field names, compared case-insensitively (RFC 9110 §5.1).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Ordering;

/// A set of field names; a look-up takes time logarithmic in its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldNames<N = Box<[u8]>> {
    /// The names in ascending order of their lower-case form, without duplicates.
    sorted: Vec<N>,
}

impl<N> FieldNames<N> {
    /// No names.
    pub const NONE: FieldNames<N> = FieldNames { sorted: Vec::new() };

    /// Whether the set is empty.
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
    pub fn contains(&self, name: &[u8]) -> bool {
        let position = self
            .sorted
            .binary_search_by(|candidate| compare(candidate.as_ref(), name));
        position.is_ok()
    }
}

impl<N: AsRef<[u8]>> FromIterator<N> for FieldNames<N> {
    fn from_iter<I: IntoIterator<Item = N>>(names: I) -> FieldNames<N> {
        let mut sorted: Vec<N> = names.into_iter().collect();
        sorted.sort_unstable_by(|a, b| compare(a.as_ref(), b.as_ref()));
        sorted.dedup_by(|a, b| a.as_ref().eq_ignore_ascii_case(b.as_ref()));
        FieldNames { sorted }
    }
}

fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let lower = |byte: &u8| byte.to_ascii_lowercase();
    a.iter().map(lower).cmp(b.iter().map(lower))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_names_match_case_insensitively() {
        let names: FieldNames<&[u8]> = [&b"X-B"[..], b"set-cookie", b"a", b"A"]
            .into_iter()
            .collect();
        assert!(names.contains(b"Set-Cookie") && names.contains(b"x-b") && names.contains(b"A"));
        assert!(!names.contains(b"x-") && !names.contains(b"x-bb") && !names.contains(b""));
        assert!(FieldNames::<&[u8]>::NONE.is_empty() && !FieldNames::<&[u8]>::NONE.contains(b"a"));
    }
}
