//! QPACK: decodes and encodes field sections. Read RFC 9204.
//!
//! The decoder has a dynamic table, which the peer's encoder stream fills: a section that refers to entries that have
//! not arrived is blocked. The encoder uses the static table only, see `encoder`.

mod decoder;
mod encoder;
mod instructions;
mod static_table;
#[cfg(test)]
mod tests;

pub(super) use self::decoder::{QpackDecoder, SectionPrefix};
pub use self::encoder::{
    date_offset, put_date, put_field, put_field_short, put_field_u64, put_prefix, put_status,
};
pub(super) use self::instructions::check_decoder_stream;
use crate::field_coding::string::StringError;

/// Why a field section or an instruction cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpackError {
    /// An integer is truncated, or larger than every valid one.
    Integer,
    /// A reference to an entry that does not exist, or no longer.
    Index,
    /// A string is longer than the section.
    Truncated,
    /// Bytes that are not a Huffman code, or wrong padding.
    Huffman,
    /// A required insert count that no encoder can have, or a base below 0.
    InsertCount,
    /// A capacity of the dynamic table beyond its maximum.
    Capacity,
    /// An entry that is larger than the dynamic table.
    EntryTooLarge,
    /// An acknowledgement of insertions or sections that do not exist.
    Acknowledgement,
}

impl QpackError {
    /// The fault as text for the operator.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            QpackError::Integer => "an integer of QPACK is truncated or too long",
            QpackError::Index => "an index beyond the QPACK tables",
            QpackError::Truncated => "a string that exceeds its field section",
            QpackError::Huffman => "an invalid Huffman code",
            QpackError::InsertCount => "an invalid required insert count or base",
            QpackError::Capacity => "a capacity of the dynamic table beyond its maximum",
            QpackError::EntryTooLarge => "an entry larger than the dynamic table",
            QpackError::Acknowledgement => {
                "an acknowledgement without a reference to the dynamic table"
            }
        }
    }
}

impl From<StringError> for QpackError {
    fn from(fault: StringError) -> QpackError {
        match fault {
            StringError::Integer => QpackError::Integer,
            StringError::Truncated => QpackError::Truncated,
            StringError::Huffman => QpackError::Huffman,
        }
    }
}

/// Decodes field sections without a connection, for tests and fuzzing.
#[doc(hidden)]
pub mod probe {
    use super::{QpackDecoder, QpackError};
    use crate::field_coding::CollectedFields;
    pub use crate::field_coding::FieldPairs;
    use alloc::vec::Vec;

    /// A decoder.
    #[derive(Debug)]
    pub struct SectionProbe(QpackDecoder);

    impl SectionProbe {
        /// A decoder with a table of at most this capacity.
        #[must_use]
        pub fn new(capacity_max: usize) -> SectionProbe {
            SectionProbe(QpackDecoder::new(capacity_max))
        }

        /// Processes a part of the encoder stream, and returns the answer for the decoder stream.
        ///
        /// # Errors
        /// The first fault.
        pub fn instructions(&mut self, bytes: &[u8]) -> Result<Vec<u8>, QpackError> {
            let mut out = Vec::new();
            self.0.receive_instructions(bytes)?;
            self.0.put_increment(&mut out);
            Ok(out)
        }

        /// The name and value of each field of a section; `None` if the section is blocked.
        ///
        /// # Errors
        /// The first fault.
        pub fn decode(&mut self, section: &[u8]) -> Result<Option<FieldPairs>, QpackError> {
            let prefix = self.0.prefix(section)?;
            if self.0.is_blocked(&prefix) {
                return Ok(None);
            }
            let mut fields = CollectedFields::default();
            self.0.decode(&prefix, &mut fields)?;
            Ok(Some(fields.all))
        }
    }
}
