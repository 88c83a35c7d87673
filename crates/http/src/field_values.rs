//! The values of a field that may be on several lines (RFC 9110 §5.3), without a copy.
//!
//! Nearly always such a field is on one line, and its value is a single slice. If there are more lines, iteration scans
//! the rest of the head, which has been validated before.

use crate::fields::FieldLines;

/// The values of one field, line by line.
#[derive(Clone, Copy, Debug)]
pub struct FieldLineValues<'b> {
    first: Option<&'b [u8]>,
    /// The head from the second line with this name on, if there is one. It begins with the name, so the name is not
    /// stored.
    following_lines: Option<&'b [u8]>,
}

impl<'b> FieldLineValues<'b> {
    /// The field is absent.
    pub const NONE: FieldLineValues<'static> = FieldLineValues {
        first: None,
        following_lines: None,
    };

    /// A field on one line with this value (without surrounding whitespace).
    pub const fn from_value(value: &'b [u8]) -> FieldLineValues<'b> {
        FieldLineValues {
            first: Some(value),
            following_lines: None,
        }
    }

    /// A field on several lines. `following_lines` are the bytes from its second line on, at least to the end of the
    /// head.
    pub(crate) const fn from_lines(
        first: &'b [u8],
        following_lines: Option<&'b [u8]>,
    ) -> FieldLineValues<'b> {
        FieldLineValues {
            first: Some(first),
            following_lines,
        }
    }

    /// Whether the field is absent. A field with an empty value is not absent.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The value of each line, without surrounding whitespace.
    pub fn iter(&self) -> ValuesIter<'b> {
        let following_lines = FieldLines::new(self.following_lines.unwrap_or_default());
        ValuesIter {
            first: self.first,
            // `following_lines` begins with a line of this name.
            name: following_lines.clone().next().map_or(&[], |(name, _)| name),
            following_lines,
        }
    }
}

impl<'b> IntoIterator for &FieldLineValues<'b> {
    type Item = &'b [u8];
    type IntoIter = ValuesIter<'b>;

    fn into_iter(self) -> ValuesIter<'b> {
        self.iter()
    }
}

/// Iterator of [`FieldLineValues::iter`].
#[derive(Clone, Debug)]
pub struct ValuesIter<'b> {
    first: Option<&'b [u8]>,
    name: &'b [u8],
    following_lines: FieldLines<'b>,
}

impl<'b> Iterator for ValuesIter<'b> {
    type Item = &'b [u8];

    fn next(&mut self) -> Option<&'b [u8]> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let has_name = |(name, _): &(&[u8], &[u8])| name.eq_ignore_ascii_case(self.name);
        self.following_lines
            .by_ref()
            .find(has_name)
            .map(|(_, value)| value)
    }
}
