//! Where what stands in an archive. All numbers are 32 bits, the lowest byte first; a place is its offset from
//! the archive's beginning and its length in bytes.
//!
//! ```text
//! magic               8 bytes, with the version
//! length              of the whole archive
//! tables              each a place:
//!   slots             mark, entry + 1 or 0; a power of two of them
//!   entries           path, kind, two numbers that the kind explains
//!   variants          see VARIANT
//!   sums              16 bits each
//!   error pages       status, content type, body
//!   settings          key, value
//!   sources           name, text, sorted by name
//! texts, responses    where the tables say; responses at multiples of eight
//! ```

use lowroad_http::encoding::Encoding;

/// What an archive begins with; the last byte is the version.
pub const MAGIC: [u8; 8] = *b"lowroad\x02";
/// Bytes before what tables point to.
pub const HEADER_LEN: usize = MAGIC.len() + 4 + TABLES * 8;
/// Number of tables.
pub const TABLES: usize = 7;
/// Responses begin at multiples of it.
pub const ALIGN: usize = 8;

/// The place of a table among the tables.
#[derive(Clone, Copy)]
pub enum Table {
    /// The hash table.
    Slots,
    /// Paths, sorted.
    Entries,
    /// Files in an encoding.
    Variants,
    /// Sums of responses.
    Sums,
    /// What refusals say.
    ErrorPages,
    /// Texts of the operator.
    Settings,
    /// Pages, and what pages include.
    Sources,
}

/// Numbers of a slot: mark, entry + 1.
pub const SLOT: usize = 2;
/// Numbers of an entry: path's place, kind, and two more. File: first variant and their count.
/// Redirect: the location's place. Page: the number of its source, and 0.
pub const ENTRY: usize = 5;
/// Numbers of a variant: encoding, response's place, head's length, length of the shared fields and of the
/// others, places of etag and content type, the first sum, time of the last change (low half, high half; all
/// ones for none).
pub const VARIANT: usize = 13;
/// Numbers of an error page.
pub const ERROR_PAGE: usize = 5;
/// Numbers of a setting.
pub const SETTING: usize = 4;
/// Numbers of a source.
pub const SOURCE: usize = 4;

/// No time of the last change.
pub const NO_TIME: u64 = u64::MAX;

/// Kinds of entries.
pub mod kind {
    /// A file.
    pub const FILE: u32 = 0;
    /// A redirect.
    pub const REDIRECT: u32 = 1;
    /// Nothing for clients.
    pub const FORBIDDEN: u32 = 2;
    /// A page's source.
    pub const PAGE: u32 = 3;
}

/// The number of an encoding.
pub fn number_of(encoding: Encoding) -> u32 {
    match encoding {
        Encoding::Identity => 0,
        Encoding::Gzip => 1,
        Encoding::Brotli => 2,
        Encoding::Zstd => 3,
    }
}

/// The encoding with a number.
pub fn encoding_of(number: u32) -> Option<Encoding> {
    Encoding::ALL
        .into_iter()
        .find(|encoding| number_of(*encoding) == number)
}
