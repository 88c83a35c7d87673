//! The site as one piece of memory, made by `lowroad image build` and read without being unpacked.
//!
//! Everything is looked at once, when it is opened: after that a path is found by one hash and one
//! comparison, and what is found are slices of the archive. Knows no files, no encoders and no requests;
//! `layout` says where what stands.

mod builder;
mod hash;
mod layout;
mod open;

use alloc::vec::Vec;

use lowroad_http::encoding::{Encoding, EncodingSet};
use lowroad_http::head::date_offset;
use lowroad_http::status::Status;

pub use builder::{BuildError, Builder, NewVariant};
pub use open::OpenError;

/// Where the 29 bytes of the date stand in each [`Variant::response`]. They are zero in the archive.
pub const DATE_AT: usize = date_offset(Status::OK);
/// Where [`Variant::fields`] begin in the response: after the date's line.
pub const FIELDS_AT: usize = DATE_AT + 31;
/// Bytes of a body that have one sum: the payload of a full segment on Ethernet.
pub const SUMMED_LEN: usize = 1460;

/// A site in memory that stays where it is.
#[derive(Clone, Copy)]
pub struct Archive {
    tables: &'static Tables,
}

/// What opening makes of the archive's tables.
struct Tables {
    /// A power of two of them, with at least one that is empty.
    slots: Vec<Slot>,
    named: Vec<Named>,
    settings: Vec<(&'static str, &'static str)>,
    /// By status, ascending.
    error_pages: Vec<(u16, ErrorPage)>,
    /// By name, ascending.
    sources: Vec<Page>,
}

/// A place in the hash table.
#[derive(Clone, Copy)]
struct Slot {
    /// The upper half of the path's hash.
    mark: u32,
    /// Its place in `named`, and one more; 0 if the slot is empty.
    named: u32,
}

struct Named {
    path: &'static [u8],
    entry: Entry,
}

/// What is at a path.
#[derive(Clone, Copy, Debug)]
pub enum Entry {
    /// Bytes.
    File(File),
    /// A folder named without its slash.
    Redirect {
        /// Where to go, percent-encoded; the request's query belongs behind it.
        location: &'static str,
    },
    /// A folder without an index file: 403.
    Forbidden,
    /// A page to be made for each request.
    Page(Page),
}

/// A file in the encodings that it is there in.
#[derive(Clone, Copy, Debug)]
pub struct File {
    /// The encodings besides the identity, to choose from.
    pub encodings: EncodingSet,
    variants: &'static [Variant],
}

/// A file in one encoding.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// Which one.
    pub encoding: Encoding,
    /// The whole 200 response for a kept HTTP/1.1 connection, head and body, with zeros in place of the date
    /// ([`DATE_AT`]). At a multiple of eight bytes from the archive's beginning.
    pub response: &'static [u8],
    /// Bytes of the head, with the empty line.
    pub head_len: usize,
    /// The lines of the head without the status, Date, Content-Length and the empty line: for 200 and 206.
    pub fields: &'static [u8],
    /// Those of `fields` that a 304 has too.
    pub shared_fields: &'static [u8],
    /// The value of ETag, with its quotes.
    pub etag: &'static str,
    /// The value of Content-Type.
    pub content_type: &'static str,
    /// Seconds since 1970, if it is known.
    pub last_modified_s: Option<u64>,
    /// For each [`SUMMED_LEN`] bytes of the body their ones' complement sum as of 16-bit big-endian words,
    /// folded and not inverted (RFC 1071).
    pub sums: &'static [u16],
}

/// The source of a page, or of a part of pages.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// The file's path below the site's folder, as `shop/item.lrp`.
    pub name: &'static str,
    /// What stands in it.
    pub text: &'static str,
}

/// What a refusal says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorPage {
    /// The value of Content-Type.
    pub content_type: &'static str,
    /// The body.
    pub body: &'static [u8],
}

impl Archive {
    /// Checks every offset of the archive, so that nothing read later can be out of bounds. Takes memory for
    /// the tables, for good: to be called once.
    ///
    /// # Errors
    /// When it is no archive of this version, or damaged.
    pub fn open(bytes: &'static [u8]) -> Result<Archive, OpenError> {
        let tables = alloc::boxed::Box::leak(alloc::boxed::Box::new(open::tables(bytes)?));
        Ok(Archive { tables })
    }

    /// What is at a path, decoded as [`lowroad_http::target::decode`] does. Takes no memory.
    #[inline]
    #[must_use]
    pub fn find(&self, path: &[u8]) -> Option<&'static Entry> {
        let (mut at, mark) = hash::place(path);
        let last = self.tables.slots.len().wrapping_sub(1);
        // It ends: a slot is empty.
        loop {
            at &= last;
            let slot = self.tables.slots.get(at)?;
            let named = slot.named.checked_sub(1)?;
            if slot.mark == mark {
                let named = self.tables.named.get(named as usize)?;
                if named.path == path {
                    return Some(&named.entry);
                }
            }
            at = at.wrapping_add(1);
        }
    }

    /// All paths and what is there, in the order of the paths' bytes.
    pub fn entries(&self) -> impl Iterator<Item = (&'static [u8], &'static Entry)> {
        let tables = self.tables;
        tables.named.iter().map(|named| (named.path, &named.entry))
    }

    /// The value of a setting; the first, if there are several.
    #[must_use]
    pub fn setting(&self, key: &str) -> Option<&'static str> {
        self.settings(key).next()
    }

    /// The values of a setting, in the order in which they were given.
    pub fn settings(&self, key: &str) -> impl Iterator<Item = &'static str> {
        let of_key = self.tables.settings.iter().filter(move |one| one.0 == key);
        of_key.map(|one| one.1)
    }

    /// The source of a page, or of what a page includes, by its path below the site's folder.
    #[must_use]
    pub fn source(&self, name: &str) -> Option<&'static str> {
        let sources = &self.tables.sources;
        let at = sources
            .binary_search_by_key(&name, |source| source.name)
            .ok()?;
        sources.get(at).map(|source| source.text)
    }

    /// What is said with a status of 300 or more, if the archive has something for it.
    #[must_use]
    pub fn error_page(&self, status: u16) -> Option<&'static ErrorPage> {
        let pages = &self.tables.error_pages;
        let at = pages.binary_search_by_key(&status, |page| page.0).ok()?;
        pages.get(at).map(|page| &page.1)
    }
}

impl File {
    /// All variants; the identity is the first.
    #[must_use]
    pub fn variants(&self) -> &'static [Variant] {
        self.variants
    }

    /// The variant in an encoding; the identity if there is none in it.
    #[inline]
    #[must_use]
    pub fn variant(&self, encoding: Encoding) -> Option<&'static Variant> {
        let mut all = self.variants.iter();
        all.find(|variant| variant.encoding == encoding)
            .or(self.variants.first())
    }
}

impl Variant {
    /// The head, up to and with the empty line.
    #[inline]
    #[must_use]
    pub fn head(&self) -> &'static [u8] {
        self.response.get(..self.head_len).unwrap_or_default()
    }

    /// The body.
    #[inline]
    #[must_use]
    pub fn body(&self) -> &'static [u8] {
        self.response.get(self.head_len..).unwrap_or_default()
    }
}
