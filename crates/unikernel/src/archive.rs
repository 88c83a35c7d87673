//! The site archive: a whole site in one block of memory, built by `lowroad image build` and used without unpacking.
//!
//! Opening checks the whole archive once. Afterwards a lookup costs one hash and one comparison, and yields slices of
//! the archive. `layout` describes the format.

mod builder;
mod hash;
mod layout;
mod open;

use alloc::vec::Vec;

use lowroad_http::content_coding::{CodingSet, ContentCoding};
use lowroad_http::head_writer::date_offset;
use lowroad_http::status::StatusCode;

pub use builder::{ArchiveBuilder, BuildError, NewVariant};
pub use open::OpenError;

/// Offset of the date (29 bytes) in the stored response of a variant. The archive has zeros there.
pub const DATE_AT: usize = date_offset(StatusCode::OK);
/// Offset of the fields after the Date line in the stored response of a variant.
pub const FIELDS_AT: usize = DATE_AT + 31;
/// Bytes of the body covered by one checksum: the payload of a full segment on Ethernet.
pub const SUMMED_LEN: usize = 1460;

/// A site in static memory.
#[derive(Clone, Copy)]
pub struct SiteArchive {
    tables: &'static ArchiveTables,
}

/// The parsed tables of an archive.
struct ArchiveTables {
    /// Slots of a hash table: a power of two in number, at least one of them empty.
    slots: Vec<HashSlot>,
    path_entries: Vec<PathEntry>,
    settings: Vec<(&'static str, &'static str)>,
    /// Sorted by status code.
    error_pages: Vec<(u16, ArchivedErrorPage)>,
    /// Sorted by name.
    sources: Vec<PageSource>,
}

/// A slot of the hash table.
#[derive(Clone, Copy)]
struct HashSlot {
    /// The upper half of the hash of the path.
    mark: u32,
    /// Index in `path_entries` plus one; 0 for an empty slot.
    path_index: u32,
}

struct PathEntry {
    path: &'static [u8],
    entry: ArchiveEntry,
}

/// The resource at a path.
#[derive(Clone, Copy, Debug)]
pub enum ArchiveEntry {
    /// A static file.
    File(ArchivedFile),
    /// A folder without its trailing slash.
    Redirect {
        /// The target, percent-encoded; the request's query is appended.
        location: &'static str,
    },
    /// A folder without an index file: 403.
    Forbidden,
    /// A dynamic page, generated for each request.
    Page(PageSource),
}

/// A file with its content codings.
#[derive(Clone, Copy, Debug)]
pub struct ArchivedFile {
    /// The content codings besides identity.
    pub encodings: CodingSet,
    variants: &'static [FileVariant],
}

/// A file in one content coding.
#[derive(Clone, Copy, Debug)]
pub struct FileVariant {
    /// The content coding.
    pub encoding: ContentCoding,
    /// The whole 200 response for a persistent HTTP/1.1 connection, head and body, with zeros for the date
    /// ([`DATE_AT`]). Aligned to eight bytes in the archive.
    pub response: &'static [u8],
    /// Length of the head in bytes, with the empty line.
    pub head_len: usize,
    /// The field lines without Date and Content-Length, as sent with 200 and 206.
    pub fields: &'static [u8],
    /// The part of `fields` that is also sent with 304.
    pub shared_fields: &'static [u8],
    /// The value of ETag, with quotes.
    pub etag: &'static str,
    /// The value of Content-Type.
    pub content_type: &'static str,
    /// Time of the last change in seconds since 1970, if known.
    pub last_modified_s: Option<u64>,
    /// For each [`SUMMED_LEN`] bytes of the body: the ones' complement sum of their 16-bit big-endian words, folded and
    /// not inverted (RFC 1071).
    pub sums: &'static [u16],
}

/// The source text of a page, or of a part that pages include.
#[derive(Clone, Copy, Debug)]
pub struct PageSource {
    /// The file's path below the site's folder, as `shop/item.lrp`.
    pub name: &'static str,
    /// The source text.
    pub text: &'static str,
}

/// An error page that the site supplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchivedErrorPage {
    /// The value of Content-Type.
    pub content_type: &'static str,
    /// The body.
    pub body: &'static [u8],
}

impl SiteArchive {
    /// Opens an archive and checks every offset, so that later reads are in bounds. The memory of the tables is never
    /// freed, so call this once.
    ///
    /// # Errors
    /// The bytes are no archive of this version, or damaged.
    pub fn open(bytes: &'static [u8]) -> Result<SiteArchive, OpenError> {
        let tables = alloc::boxed::Box::leak(alloc::boxed::Box::new(open::tables(bytes)?));
        Ok(SiteArchive { tables })
    }

    /// Finds the resource at a path, which must be decoded as by [`lowroad_http::target::decode`]. Allocates no memory.
    #[inline]
    #[must_use]
    pub fn find(&self, path: &[u8]) -> Option<&'static ArchiveEntry> {
        let (mut at, mark) = hash::probe_start(path);
        let last = self.tables.slots.len().wrapping_sub(1);
        // The loop ends, since at least one slot is empty.
        loop {
            at &= last;
            let slot = self.tables.slots.get(at)?;
            // An empty slot ends the search.
            let path_index = slot.path_index.checked_sub(1)?;
            // Comparing the marks first avoids most comparisons of paths.
            if slot.mark == mark {
                let path_entry = self.tables.path_entries.get(path_index as usize)?;
                if path_entry.path == path {
                    return Some(&path_entry.entry);
                }
            }
            at = at.wrapping_add(1);
        }
    }

    /// All paths and their resources, sorted by the bytes of the paths.
    pub fn entries(&self) -> impl Iterator<Item = (&'static [u8], &'static ArchiveEntry)> {
        let tables = self.tables;
        tables
            .path_entries
            .iter()
            .map(|path_entry| (path_entry.path, &path_entry.entry))
    }

    /// The first value of a setting.
    #[must_use]
    pub fn setting(&self, key: &str) -> Option<&'static str> {
        self.settings(key).next()
    }

    /// The values of a setting, in the order in which they were added.
    pub fn settings(&self, key: &str) -> impl Iterator<Item = &'static str> {
        let matches = self
            .tables
            .settings
            .iter()
            .filter(move |setting| setting.0 == key);
        matches.map(|setting| setting.1)
    }

    /// The source text of a page or of an included part, by its path below the site's folder.
    #[must_use]
    pub fn source(&self, name: &str) -> Option<&'static str> {
        let sources = &self.tables.sources;
        let at = sources
            .binary_search_by_key(&name, |source| source.name)
            .ok()?;
        sources.get(at).map(|source| source.text)
    }

    /// The site's error page for a status code of 300 or more.
    #[must_use]
    pub fn error_page(&self, status: u16) -> Option<&'static ArchivedErrorPage> {
        let pages = &self.tables.error_pages;
        let at = pages.binary_search_by_key(&status, |page| page.0).ok()?;
        pages.get(at).map(|page| &page.1)
    }
}

impl ArchivedFile {
    /// All variants; identity is the first.
    #[must_use]
    pub fn variants(&self) -> &'static [FileVariant] {
        self.variants
    }

    /// The variant with a content coding; identity if there is no such variant.
    #[inline]
    #[must_use]
    pub fn variant(&self, encoding: ContentCoding) -> Option<&'static FileVariant> {
        let mut all = self.variants.iter();
        all.find(|variant| variant.encoding == encoding)
            .or(self.variants.first())
    }
}

impl FileVariant {
    /// The head, including the empty line.
    #[inline]
    #[must_use]
    pub fn head(&self) -> &'static [u8] {
        self.response.get(..self.head_len).unwrap_or_default()
    }

    /// The body in this content coding.
    #[inline]
    #[must_use]
    pub fn body(&self) -> &'static [u8] {
        self.response.get(self.head_len..).unwrap_or_default()
    }
}
