//! An index of the fields that the server uses often, so that the lines are not searched again. Values are not
//! interpreted.

use crate::field_values::FieldLineValues;
use crate::fields::StandardHeader;

/// A field that the index records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexedField {
    // Fields that may be on several lines are listed first: each has an entry in `FieldIndex::second_lines`.
    AcceptEncoding,
    IfMatch,
    IfNoneMatch,
    IfModifiedSince,
    IfRange,
    IfUnmodifiedSince,
    Range,
    Referer,
    UserAgent,
    // Only the presence of the following fields is recorded.
    Authorization,
    CacheControl,
    Pragma,
    /// Any field that frameworks read as a method override.
    MethodOverride,
    /// A Connection field that names another field.
    ConnectionOption,
}

const COUNT: usize = IndexedField::UserAgent as usize + 1;
const LIST_COUNT: usize = IndexedField::IfNoneMatch as usize + 1;

/// A range of bytes in the lines.
#[derive(Clone, Copy, Debug)]
struct LineSpan {
    start: u32,
    len: u32,
}

/// The positions of field values in the lines of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldIndex {
    /// Bits of the fields that are present.
    present: u16,
    /// Bits of the fields that are present more than once.
    repeated: u16,
    /// The first value of each field.
    values: [LineSpan; COUNT],
    /// For each list field, the start of its second line.
    second_lines: [u32; LIST_COUNT],
}

impl IndexedField {
    /// The index entry of a field with this name.
    #[inline(always)]
    pub(crate) const fn from_header(name: StandardHeader) -> Option<IndexedField> {
        Some(match name {
            StandardHeader::AcceptEncoding => IndexedField::AcceptEncoding,
            StandardHeader::IfMatch => IndexedField::IfMatch,
            StandardHeader::IfNoneMatch => IndexedField::IfNoneMatch,
            StandardHeader::IfModifiedSince => IndexedField::IfModifiedSince,
            StandardHeader::IfRange => IndexedField::IfRange,
            StandardHeader::IfUnmodifiedSince => IndexedField::IfUnmodifiedSince,
            StandardHeader::Range => IndexedField::Range,
            StandardHeader::Referer => IndexedField::Referer,
            StandardHeader::UserAgent => IndexedField::UserAgent,
            StandardHeader::Authorization => IndexedField::Authorization,
            StandardHeader::CacheControl => IndexedField::CacheControl,
            StandardHeader::Pragma => IndexedField::Pragma,
            StandardHeader::XHttpMethod
            | StandardHeader::XHttpMethodOverride
            | StandardHeader::XMethodOverride => IndexedField::MethodOverride,
            _ => return None,
        })
    }

    /// Whether the position of the value is recorded, not only its presence.
    #[inline(always)]
    pub(crate) const fn has_position(self) -> bool {
        (self as usize) < COUNT
    }

    pub(crate) const fn bit(self) -> u16 {
        1 << self as u16
    }
}

impl FieldIndex {
    /// No fields.
    pub(crate) const EMPTY: FieldIndex = FieldIndex {
        present: 0,
        repeated: 0,
        values: [LineSpan { start: 0, len: 0 }; COUNT],
        second_lines: [0; LIST_COUNT],
    };

    /// The fields that make a request conditional, and Range.
    pub(crate) const CONDITIONS: u16 = IndexedField::IfMatch.bit()
        | IndexedField::IfNoneMatch.bit()
        | IndexedField::IfModifiedSince.bit()
        | IndexedField::IfUnmodifiedSince.bit()
        | IndexedField::Range.bit();

    /// Fields that require a closer check before a stored response is used: all fields that decide its reuse, except
    /// the selecting fields of Vary and the preconditions that the cache evaluates with the validators.
    pub(crate) const FOR_CACHES: u16 = IndexedField::Authorization.bit()
        | IndexedField::CacheControl.bit()
        | IndexedField::Pragma.bit()
        | IndexedField::ConnectionOption.bit()
        | IndexedField::MethodOverride.bit()
        | IndexedField::IfMatch.bit()
        | IndexedField::IfUnmodifiedSince.bit();

    /// Records that a field is present.
    #[inline(always)]
    pub(crate) fn mark(&mut self, field: IndexedField) {
        self.present |= field.bit();
    }

    /// Records a value. `value` and `line` (its line and all bytes after it) are slices of `lines`.
    #[inline(always)]
    pub(crate) fn add(&mut self, field: IndexedField, lines: &[u8], line: &[u8], value: &[u8]) {
        let bit = field.bit();
        if self.present & bit == 0 {
            self.present |= bit;
            self.values[field as usize] = LineSpan {
                start: offset(lines, value),
                len: saturated(value.len()),
            };
        } else if self.repeated & bit == 0 {
            // Only the start of the second line is stored: `FieldLineValues` continues to scan from there.
            self.repeated |= bit;
            if let Some(second_line) = self.second_lines.get_mut(field as usize) {
                *second_line = offset(lines, line);
            }
        }
    }

    /// Like `FieldIndex::add`, with offsets instead of slices.
    #[inline]
    pub(crate) fn add_at(&mut self, field: IndexedField, line_at: u32, value_at: u32, len: u32) {
        let bit = field.bit();
        if self.present & bit == 0 {
            self.present |= bit;
            self.values[field as usize] = LineSpan {
                start: value_at,
                len,
            };
        } else if self.repeated & bit == 0 {
            self.repeated |= bit;
            if let Some(second_line) = self.second_lines.get_mut(field as usize) {
                *second_line = line_at;
            }
        }
    }

    /// Whether any of the fields in a bit set is present.
    #[inline]
    pub(crate) fn has_any_of(&self, bits: u16) -> bool {
        self.present & bits != 0
    }

    /// Whether a field is present more than once.
    pub(crate) fn is_repeated(&self, field: IndexedField) -> bool {
        self.repeated & field.bit() != 0
    }

    /// The value of a field that is present exactly once.
    pub(crate) fn single_value<'b>(
        &self,
        field: IndexedField,
        lines: &'b [u8],
    ) -> Option<&'b [u8]> {
        match self.is_repeated(field) {
            true => None,
            false => self.first(field, lines),
        }
    }

    /// The values of a field that may be on several lines.
    #[inline]
    pub(crate) fn values<'b>(&self, field: IndexedField, lines: &'b [u8]) -> FieldLineValues<'b> {
        // The closure is called only for repeated fields, which are rare.
        let following_lines = || lines.get(*self.second_lines.get(field as usize)? as usize..);
        match self.first(field, lines) {
            None => FieldLineValues::NONE,
            Some(first) if self.is_repeated(field) => {
                FieldLineValues::from_lines(first, following_lines())
            }
            Some(first) => FieldLineValues::from_value(first),
        }
    }

    #[inline]
    fn first<'b>(&self, field: IndexedField, lines: &'b [u8]) -> Option<&'b [u8]> {
        if !self.has_any_of(field.bit()) {
            return None;
        }
        let LineSpan { start, len } = *self.values.get(field as usize)?;
        lines.get(start as usize..)?.get(..len as usize)
    }
}

/// The offset of `part`, a slice of `whole`.
#[inline(always)]
pub(super) fn offset(whole: &[u8], part: &[u8]) -> u32 {
    saturated(part.as_ptr().addr().wrapping_sub(whole.as_ptr().addr()))
}

/// Converts an offset. No head is longer than `u32::MAX`; a larger offset is saturated, and look-ups at it return
/// `None`.
#[inline(always)]
pub(super) fn saturated(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
