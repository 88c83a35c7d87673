//! A sequence of validated field lines.

use super::{Known, Name};
use crate::list;
use crate::scan;

/// Iterator over validated field lines: name as received, value without surrounding whitespace.
/// Ends at the empty line or the end of the bytes.
#[derive(Clone, Debug)]
pub struct Lines<'b>(&'b [u8]);

impl<'b> Lines<'b> {
    /// No fields.
    pub const NONE: Lines<'static> = Lines(&[]);

    /// The fields of lines from [`crate::Request::lines`], or of a copy of them.
    #[must_use]
    pub fn of(lines: &'b [u8]) -> Lines<'b> {
        Lines(lines)
    }

    /// The lines, each with its CRLF.
    #[must_use]
    pub fn as_bytes(&self) -> &'b [u8] {
        self.0
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.first().is_none_or(|first| *first == b'\r')
    }

    /// The fields with their names resolved to `StandardHeader` where possible.
    pub fn named(self) -> impl Iterator<Item = (Name<'b>, &'b [u8])> {
        self.filter_map(|(name, value)| {
            let name = match Known::find(name) {
                Some(known) => Name::Known(known),
                // Names are tokens, hence ASCII: no field is skipped.
                None => Name::Other(str::from_utf8(name).ok()?),
            };
            Some((name, value))
        })
    }
}

impl<'b> Iterator for Lines<'b> {
    type Item = (&'b [u8], &'b [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let lines = core::mem::take(&mut self.0);
        // The lines are validated: only a line end can end the run of value bytes, and the first colon ends the name.
        let (line, rest) = lines.split_at_checked(scan::value_len(lines))?;
        let (name, value) = scan::split_at_colon(line)?;
        self.0 = rest.get(2..)?;
        Some((name, list::trim(value)))
    }
}
