//! A sequence of validated field lines.

use super::{FieldName, StandardHeader};
use crate::byte_scan;
use crate::list_values;

/// Iterator over validated field lines: name as received, value without surrounding whitespace.
/// Ends at the empty line or the end of the bytes.
#[derive(Clone, Debug)]
pub struct FieldLines<'b>(&'b [u8]);

impl<'b> FieldLines<'b> {
    /// No fields.
    pub const NONE: FieldLines<'static> = FieldLines(&[]);

    /// The fields of lines from [`crate::Request::lines`], or of a copy of them.
    #[must_use]
    pub fn new(lines: &'b [u8]) -> FieldLines<'b> {
        FieldLines(lines)
    }

    /// The lines, each with its CRLF.
    #[must_use]
    pub fn as_bytes(&self) -> &'b [u8] {
        self.0
    }

    /// Whether there are no fields.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.first().is_none_or(|first| *first == b'\r')
    }

    /// The fields with their names resolved to `StandardHeader` where possible.
    pub fn resolved_names(self) -> impl Iterator<Item = (FieldName<'b>, &'b [u8])> {
        self.filter_map(|(name, value)| {
            let name = match StandardHeader::find(name) {
                Some(header) => FieldName::Known(header),
                // Names are tokens, hence ASCII: the conversion never fails.
                None => FieldName::Other(str::from_utf8(name).ok()?),
            };
            Some((name, value))
        })
    }
}

impl<'b> Iterator for FieldLines<'b> {
    type Item = (&'b [u8], &'b [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let lines = core::mem::take(&mut self.0);
        // The lines are validated: only a line end can end the run of value bytes, and the first colon ends the name.
        let (line, rest) = lines.split_at_checked(byte_scan::value_len(lines))?;
        let (name, value) = byte_scan::split_at_colon(line)?;
        self.0 = rest.get(2..)?;
        Some((name, list_values::trim(value)))
    }
}
