//! HPACK: decodes and encodes field blocks. Read RFC 7541.

mod decoder;
mod encoder;
mod static_table;
#[cfg(test)]
mod tests;

pub(super) use self::decoder::HpackDecoder;
pub use self::encoder::{
    date_offset, put_date, put_field, put_field_short, put_field_u64, put_status, status_len,
};
pub(super) use self::encoder::{put_pseudo, put_unindexed};

/// Why a field block cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HpackError {
    /// An integer is truncated, or larger than every valid one.
    Integer,
    /// The tables have no entry with that index.
    Index,
    /// A string is longer than the block.
    Truncated,
    /// Bytes that are not a Huffman code, or wrong padding.
    Huffman,
    /// A size update that exceeds the limit, or is not at the start of a block.
    SizeUpdate,
}

impl HpackError {
    /// The fault as text for the operator.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            HpackError::Integer => "an integer of HPACK is too long",
            HpackError::Index => "an index beyond the HPACK tables",
            HpackError::Truncated => "a string that exceeds its field block",
            HpackError::Huffman => "an invalid Huffman code",
            HpackError::SizeUpdate => "a size of the dynamic table beyond its maximum",
        }
    }
}

/// Decodes field blocks without a connection, for tests and fuzzing.
#[doc(hidden)]
pub mod probe {
    use super::{HpackDecoder, HpackError};
    use crate::field_coding::CollectedFields;
    pub use crate::field_coding::FieldPairs as Pairs;

    /// A decoder.
    #[derive(Debug)]
    pub struct DecoderProbe(HpackDecoder);

    impl DecoderProbe {
        /// A decoder with a table of this size.
        #[must_use]
        pub fn new(size: usize) -> DecoderProbe {
            DecoderProbe(HpackDecoder::new(size))
        }

        /// The name and value of each field of a block.
        ///
        /// # Errors
        /// The first fault.
        pub fn decode(&mut self, block: &[u8]) -> Result<Pairs, HpackError> {
            let mut fields = CollectedFields::default();
            self.0.decode(block, &mut fields)?;
            Ok(fields.all)
        }
    }
}
