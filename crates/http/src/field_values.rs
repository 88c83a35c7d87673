//! The values of a field that may come on several lines (RFC 9110 §5.3), without a copy.
//!
//! Nearly always such a field comes once and is a single slice. If it comes more often, iteration scans the rest of the
//! head, which is validated by then.

use crate::fields::FieldLines;

/// The lines of one field in their order.
#[derive(Clone, Copy, Debug)]
pub struct FieldLineValues<'b> {
    first: Option<&'b [u8]>,
    /// The bytes from the second line with this name on, if there is one. They begin with the name, so it is not
    /// stored.
    more: Option<&'b [u8]>,
}

impl<'b> FieldLineValues<'b> {
    /// The field is absent.
    pub const NONE: FieldLineValues<'static> = FieldLineValues {
        first: None,
        more: None,
    };

    /// A field on one line with this value (without surrounding whitespace).
    pub const fn one(value: &'b [u8]) -> FieldLineValues<'b> {
        FieldLineValues {
            first: Some(value),
            more: None,
        }
    }

    /// A field on several lines; `more` are the bytes from its second line on, at least to the end of the head.
    pub(crate) const fn from_lines(first: &'b [u8], more: Option<&'b [u8]>) -> FieldLineValues<'b> {
        FieldLineValues {
            first: Some(first),
            more,
        }
    }

    /// Whether the field is absent. A field with an empty value is not absent.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The value of each line, without surrounding whitespace.
    pub fn iter(&self) -> ValuesIter<'b> {
        let more = FieldLines::new(self.more.unwrap_or_default());
        ValuesIter {
            first: self.first,
            // The bytes begin with a line of this name.
            name: more.clone().next().map_or(&[], |(name, _)| name),
            more,
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
    more: FieldLines<'b>,
}

impl<'b> Iterator for ValuesIter<'b> {
    type Item = &'b [u8];

    fn next(&mut self) -> Option<&'b [u8]> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let same = |(name, _): &(&[u8], &[u8])| name.eq_ignore_ascii_case(self.name);
        self.more.by_ref().find(same).map(|(_, value)| value)
    }
}
