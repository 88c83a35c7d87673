//! The format of an archive. All numbers have 32 bits, little endian. A location is an offset from the beginning of the
//! archive, and a length in bytes.
//!
//! ```text
//! magic               8 bytes, with the version
//! length              of the whole archive
//! tables              a location each:
//!   slots             mark, entry + 1 or 0; a power of two of them
//!   entries           path, kind, two numbers that the kind explains
//!   variants          see VARIANT
//!   sums              16 bits each
//!   error pages       status, content type, body
//!   settings          key, value
//!   sources           name, text, sorted by name
//! texts, responses    at the locations in the tables; responses at multiples of eight
//! ```

use lowroad_http::content_coding::ContentCoding;

/// The first bytes of an archive; the last of them is the version.
pub const MAGIC: [u8; 8] = *b"lowroad\x02";
/// Length of the header in bytes: magic, length, and the locations of the tables.
pub const HEADER_LEN: usize = MAGIC.len() + 4 + TABLES * 8;
/// Number of tables.
pub const TABLES: usize = 7;
/// The alignment of responses and tables.
pub const ALIGN: usize = 8;

/// A table; the value is its index in the header.
#[derive(Clone, Copy)]
pub enum TableKind {
    Slots,
    /// Paths and their resources, sorted by path.
    Entries,
    /// Variants of files: each is a file in one content coding.
    Variants,
    /// Checksums of bodies.
    Sums,
    /// Error pages of the site.
    ErrorPages,
    /// Settings of the site.
    Settings,
    /// Sources of pages and of included parts.
    Sources,
}

/// Numbers in a slot: the mark, and the index of the entry plus one (0 for an empty slot).
pub const SLOT: usize = 2;
/// Numbers in an entry: location of the path, kind, and two numbers that depend on the kind. File: index of the first
/// variant, number of variants. Redirect: location of the target. Page: index of the source, 0.
pub const ENTRY: usize = 5;
/// Numbers in a variant: content coding, location of the response, length of the head, length of the shared fields,
/// length of the other fields, location of ETag, location of Content-Type, index of the first checksum, time of the
/// last change (low half, high half; [`NO_TIME`] if unknown).
pub const VARIANT: usize = 13;
/// Numbers in an error page: status, location of Content-Type, location of the body.
pub const ERROR_PAGE: usize = 5;
/// Numbers in a setting: location of the key, location of the value.
pub const SETTING: usize = 4;
/// Numbers in a source: location of the name, location of the text.
pub const SOURCE: usize = 4;

/// The value for an unknown time of the last change.
pub const NO_TIME: u64 = u64::MAX;

/// Kinds of entries.
pub mod kind {
    pub const FILE: u32 = 0;
    pub const REDIRECT: u32 = 1;
    /// A folder without an index file: the response is 403.
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
