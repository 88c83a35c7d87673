//! Limits of the format. The encoder stays within them, and the reader refuses a block that claims more.

/// A longer text of a record is truncated to this.
pub const TEXT_LEN_MAX: usize = 32 * 1024;
/// A longer word of a record (outcome, level, version of TLS) is truncated to this.
pub const WORD_LEN_MAX: usize = 64;
/// A block closes at this many records.
pub const BLOCK_RECORDS_MAX: usize = 32 * 1024;
/// The columns of a block, uncompressed: the maximum size of a block within the limits above, rounded up.
pub const RAW_LEN_MAX: usize = 16 << 20;
/// The compressed columns of a block. zstd grows incompressible bytes by less than a half per cent.
pub const PAYLOAD_LEN_MAX: usize = RAW_LEN_MAX + RAW_LEN_MAX / 128;
/// The columns that a schema may name.
pub const COLUMNS_MAX: usize = 64;
/// The records of a dictionary.
pub const DICTIONARY_RECORDS_MAX: usize = 32 * 1024;
/// The columns of a dictionary, uncompressed.
pub const DICTIONARY_LEN_MAX: usize = 4 << 20;
