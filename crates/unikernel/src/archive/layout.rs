//! The format of an archive. All numbers have 32 bits, little endian; a place is an offset from the archive's
//! beginning and a length in bytes.
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
//! texts, responses    at the places in the tables; responses at multiples of eight
//! ```

use lowroad_http::content_coding::ContentCoding;

/// The first bytes of an archive; the last one is the version.
pub const MAGIC: [u8; 8] = *b"lowroad\x02";
/// Bytes of the header: magic, length and the places of the tables.
pub const HEADER_LEN: usize = MAGIC.len() + 4 + TABLES * 8;
/// Number of tables.
pub const TABLES: usize = 7;
/// The alignment of responses and tables.
pub const ALIGN: usize = 8;

/// A table, by its index in the header.
#[derive(Clone, Copy)]
pub enum TableKind {
    Slots,
    /// Paths, sorted.
    Entries,
    /// Files in a content coding.
    Variants,
    /// Checksums of responses.
    Sums,
    /// The site's error pages.
    ErrorPages,
    /// Settings of the operator.
    Settings,
    /// Pages and included parts.
    Sources,
}

/// Numbers in a slot: mark, entry + 1.
pub const SLOT: usize = 2;
/// Numbers in an entry: the path's place, the kind, and two more. File: first variant and their count. Redirect: the
/// location's place. Page: the number of its source, and 0.
pub const ENTRY: usize = 5;
/// Numbers in a variant: content coding, the response's place, length of the head, length of the shared fields and of
/// the others, places of ETag and content type, the first checksum, time of the last change (low half, high half; all
/// ones for none).
pub const VARIANT: usize = 13;
/// Numbers in an error page.
pub const ERROR_PAGE: usize = 5;
/// Numbers in a setting.
pub const SETTING: usize = 4;
/// Numbers in a source.
pub const SOURCE: usize = 4;

/// The time of the last change is unknown.
pub const NO_TIME: u64 = u64::MAX;

/// Kinds of entries.
pub mod kind {
    pub const FILE: u32 = 0;
    pub const REDIRECT: u32 = 1;
    /// A folder that answers 403.
    pub const FORBIDDEN: u32 = 2;
    /// A dynamic page.
    pub const PAGE: u32 = 3;
}

/// The number of a content coding.
pub fn number_of(encoding: ContentCoding) -> u32 {
    match encoding {
        ContentCoding::Identity => 0,
        ContentCoding::Gzip => 1,
        ContentCoding::Brotli => 2,
        ContentCoding::Zstd => 3,
    }
}

/// The content coding with a number.
pub fn encoding_of(number: u32) -> Option<ContentCoding> {
    ContentCoding::ALL
        .into_iter()
        .find(|encoding| number_of(*encoding) == number)
}
