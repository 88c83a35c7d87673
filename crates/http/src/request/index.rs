//! An index of the fields that the server reads often, so that the lines are not searched again. It records which
//! fields may come on several lines; it does not interpret values.

use crate::field_values::FieldLineValues;
use crate::fields::StandardHeader;

/// A field that the index records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexedField {
    // Fields that may come on several lines come first: each has an entry in `FieldIndex::more`.
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
    at: u32,
    len: u32,
}

/// The positions of field values in the lines of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldIndex {
    /// Bits of the fields that are present.
    once: u16,
    /// Bits of the fields that are present more than once.
    again: u16,
    /// The first value of each field.
    values: [LineSpan; COUNT],
    /// For each list field, the start of its second line.
    more: [u32; LIST_COUNT],
}

impl IndexedField {
    /// The index entry of a field with this name.
    #[inline(always)]
    pub(crate) const fn of(name: StandardHeader) -> Option<IndexedField> {
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
    pub(crate) const fn has_place(self) -> bool {
        (self as usize) < COUNT
    }

    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

impl FieldIndex {
    /// No fields.
    pub(crate) const EMPTY: FieldIndex = FieldIndex {
        once: 0,
        again: 0,
        values: [LineSpan { at: 0, len: 0 }; COUNT],
        more: [0; LIST_COUNT],
    };

    /// The fields that make a request conditional or ask for a part.
    pub(crate) const CONDITIONS: u16 = IndexedField::IfMatch.bit()
        | IndexedField::IfNoneMatch.bit()
        | IndexedField::IfModifiedSince.bit()
        | IndexedField::IfUnmodifiedSince.bit()
        | IndexedField::Range.bit();

    /// Fields that require a closer check before a stored response is used: all that decide its reuse, except the
    /// selecting fields of Vary and the preconditions that the cache evaluates by its validators.
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
        self.once |= field.bit();
    }

    /// Records a value. `value` and `line` (its line and all bytes after it) are slices of `lines`.
    #[inline(always)]
    pub(crate) fn add(&mut self, field: IndexedField, lines: &[u8], line: &[u8], value: &[u8]) {
        let bit = field.bit();
        if self.once & bit == 0 {
            self.once |= bit;
            self.values[field as usize] = LineSpan {
                at: offset(lines, value),
                len: saturated(value.len()),
            };
        } else if self.again & bit == 0 {
            // Only the start of the second line is kept: `FieldLineValues` scans on from there.
            self.again |= bit;
            if let Some(more) = self.more.get_mut(field as usize) {
                *more = offset(lines, line);
            }
        }
    }

    /// Like `FieldIndex::add`, with offsets instead of slices.
    #[inline]
    pub(crate) fn add_at(&mut self, field: IndexedField, line_at: u32, value_at: u32, len: u32) {
        let bit = field.bit();
        if self.once & bit == 0 {
            self.once |= bit;
            self.values[field as usize] = LineSpan { at: value_at, len };
        } else if self.again & bit == 0 {
            self.again |= bit;
            if let Some(more) = self.more.get_mut(field as usize) {
                *more = line_at;
            }
        }
    }

    /// Whether any of the fields in a bit set is present.
    #[inline]
    pub(crate) fn has_any_of(&self, bits: u16) -> bool {
        self.once & bits != 0
    }

    /// Whether a field came more than once.
    pub(crate) fn is_repeated(&self, field: IndexedField) -> bool {
        self.again & field.bit() != 0
    }

    /// The value of a field that is present exactly once.
    pub(crate) fn only<'b>(&self, field: IndexedField, lines: &'b [u8]) -> Option<&'b [u8]> {
        match self.is_repeated(field) {
            true => None,
            false => self.first(field, lines),
        }
    }

    /// The values of a field that may come on several lines.
    #[inline]
    pub(crate) fn values<'b>(&self, field: IndexedField, lines: &'b [u8]) -> FieldLineValues<'b> {
        // Evaluated only for repeated fields, which are rare.
        let more = || lines.get(*self.more.get(field as usize)? as usize..);
        match self.first(field, lines) {
            None => FieldLineValues::NONE,
            Some(first) if self.is_repeated(field) => FieldLineValues::from_lines(first, more()),
            Some(first) => FieldLineValues::one(first),
        }
    }

    #[inline]
    fn first<'b>(&self, field: IndexedField, lines: &'b [u8]) -> Option<&'b [u8]> {
        if !self.has_any_of(field.bit()) {
            return None;
        }
        let LineSpan { at, len } = *self.values.get(field as usize)?;
        lines.get(at as usize..)?.get(..len as usize)
    }
}

/// The offset of `part`, a slice of `whole`.
#[inline(always)]
pub(super) fn offset(whole: &[u8], part: &[u8]) -> u32 {
    saturated(part.as_ptr().addr().wrapping_sub(whole.as_ptr().addr()))
}

/// Converts an offset. No head exceeds `u32`; a larger offset becomes `u32::MAX`, at which look-ups return `None`.
#[inline(always)]
pub(super) fn saturated(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
