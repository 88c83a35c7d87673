//! Builds archives. The same input always gives the same bytes. The caller supplies field lines and bodies.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use lowroad_http::content_coding::{CodingSet, ContentCoding};
use lowroad_http::head_writer::HeadWriter;
use lowroad_http::status::StatusCode;
use lowroad_wire::checksum::InternetChecksum;

use super::layout::{self, ALIGN, HEADER_LEN, MAGIC, TableKind, kind};
use super::{SUMMED_LEN, hash};

/// A file in one content coding, as input of the builder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewVariant {
    /// The content coding.
    pub encoding: ContentCoding,
    /// Field lines, `name: value\r\n` each, that are also sent with 304.
    pub shared_fields: Vec<u8>,
    /// Field lines that are sent only with content, without Content-Length.
    pub content_fields: Vec<u8>,
    /// The value of ETag, as in the field lines.
    pub etag: String,
    /// The value of Content-Type, as in the field lines.
    pub content_type: String,
    /// Time of the last change in seconds since 1970.
    pub last_modified_s: Option<u64>,
    /// The content.
    pub body: Vec<u8>,
}

/// The reason that an archive can't be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// Two resources at one path, or two sources with one name.
    Duplicate(String),
    /// A path without a leading slash.
    InvalidPath(String),
    /// The first variant is not identity, or a content coding occurs twice.
    InvalidEncodings(String),
    /// The archive exceeds 4 GiB.
    TooLong,
}

impl fmt::Display for BuildError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Duplicate(path) => write!(to, "two files have the path {path}"),
            BuildError::InvalidPath(path) => write!(to, "{path} is not a valid path"),
            BuildError::InvalidEncodings(path) => {
                write!(to, "{path} occurs twice in one content coding")
            }
            BuildError::TooLong => to.write_str("the site is longer than 4 GiB"),
        }
    }
}

impl core::error::Error for BuildError {}

/// Collects the parts of a site and writes the archive.
#[derive(Default)]
pub struct ArchiveBuilder {
    files: Vec<Vec<NewVariant>>,
    entries: BTreeMap<Vec<u8>, NewEntry>,
    /// The source texts of pages and parts, by name.
    sources: BTreeMap<String, String>,
    error_pages: BTreeMap<u16, (String, Vec<u8>)>,
    settings: Vec<(String, String)>,
}

enum NewEntry {
    /// A file, by its index in `files`.
    File(usize),
    Redirect(String),
    Forbidden,
    /// A page, by the name of its source.
    Page(String),
}

impl ArchiveBuilder {
    /// A builder without resources.
    #[must_use]
    pub fn new() -> ArchiveBuilder {
        ArchiveBuilder::default()
    }

    /// Adds a file at one or more paths. The paths are decoded, like those passed to `SiteArchive::find`.
    ///
    /// # Errors
    /// If a path is invalid or taken, if identity is not the first variant, or if a content coding occurs twice.
    pub fn file(&mut self, paths: &[&[u8]], variants: Vec<NewVariant>) -> Result<(), BuildError> {
        let mut codings = CodingSet::EMPTY;
        for (at, variant) in variants.iter().enumerate() {
            let is_first = at == 0;
            let is_identity = variant.encoding == ContentCoding::Identity;
            // Identity first, and only there: readers use the first variant as the fallback.
            if is_first != is_identity || codings.contains(variant.encoding) {
                return Err(BuildError::InvalidEncodings(to_lossy_string(
                    paths.first().unwrap_or(&&[][..]),
                )));
            }
            codings.insert(variant.encoding);
        }
        if variants.is_empty() {
            return Err(BuildError::InvalidEncodings(String::new()));
        }
        for path in paths {
            self.insert(path, NewEntry::File(self.files.len()))?;
        }
        self.files.push(variants);
        Ok(())
    }

    /// Adds a redirect from `path` to `location`, which is percent-encoded.
    ///
    /// # Errors
    /// If the path is invalid or taken.
    pub fn redirect(&mut self, path: &[u8], location: &str) -> Result<(), BuildError> {
        self.insert(path, NewEntry::Redirect(location.into()))
    }

    /// Adds a path with the response 403.
    ///
    /// # Errors
    /// If the path is invalid or taken.
    pub fn forbidden(&mut self, path: &[u8]) -> Result<(), BuildError> {
        self.insert(path, NewEntry::Forbidden)
    }

    /// Adds a dynamic page at a path; `name` is the path of its file below the site's folder. A page may have several
    /// paths.
    ///
    /// # Errors
    /// If the path is invalid or taken, or if another page or part has this name with a different text.
    pub fn page(&mut self, path: &[u8], name: &str, text: &str) -> Result<(), BuildError> {
        self.part(name, text)?;
        self.insert(path, NewEntry::Page(name.into()))
    }

    /// Adds a part that pages include; clients can't request it.
    ///
    /// # Errors
    /// If another page or part has this name with a different text.
    pub fn part(&mut self, name: &str, text: &str) -> Result<(), BuildError> {
        // Several pages may include the same part, and each adds it; the texts must be equal.
        if self.sources.get(name).is_some_and(|other| other != text) {
            return Err(BuildError::Duplicate(name.into()));
        }
        self.sources.insert(name.into(), text.into());
        Ok(())
    }

    /// Sets the error page of a status code; replaces an earlier one.
    pub fn error_page(&mut self, status: u16, content_type: &str, body: &[u8]) {
        let page = (content_type.into(), body.to_vec());
        self.error_pages.insert(status, page);
    }

    /// Adds a setting; a key may have several values.
    pub fn setting(&mut self, key: &str, value: &str) {
        self.settings.push((key.into(), value.into()));
    }

    /// Writes the archive.
    ///
    /// # Errors
    /// If the archive is too long.
    pub fn finish(self) -> Result<Vec<u8>, BuildError> {
        let mut writer = ArchiveWriter::default();
        writer.out.resize(HEADER_LEN, 0);
        let first_variants = self.files.iter().map(|file| writer.file(file));
        let first_variants: Vec<u32> = first_variants.collect::<Result<_, _>>()?;
        for (path, entry) in &self.entries {
            let entry = match entry {
                NewEntry::File(file) => [
                    kind::FILE,
                    first_variants[*file],
                    number(self.files[*file].len())?,
                ],
                NewEntry::Redirect(location) => writer.redirect(location)?,
                NewEntry::Forbidden => [kind::FORBIDDEN, 0, 0],
                // A `BTreeMap` is sorted, so the index of a source is the number of smaller names.
                NewEntry::Page(name) => {
                    let smaller = self.sources.range::<String, _>(..name);
                    [kind::PAGE, number(smaller.count())?, 0]
                }
            };
            let path = writer.append(path)?;
            writer.entries.extend(path.into_iter().chain(entry));
        }
        for (name, text) in &self.sources {
            let name = writer.append(name.as_bytes())?;
            let text = writer.append(text.as_bytes())?;
            writer.sources.extend(name.into_iter().chain(text));
        }
        for (status, (content_type, body)) in &self.error_pages {
            let content_type = writer.append(content_type.as_bytes())?;
            let body = writer.append(body)?;
            writer.error_pages.push(u32::from(*status));
            writer
                .error_pages
                .extend(content_type.into_iter().chain(body));
        }
        for (key, value) in &self.settings {
            let key = writer.append(key.as_bytes())?;
            let value = writer.append(value.as_bytes())?;
            writer.settings.extend(key.into_iter().chain(value));
        }
        writer.slots = slots(self.entries.keys());
        writer.finish()
    }

    fn insert(&mut self, path: &[u8], entry: NewEntry) -> Result<(), BuildError> {
        if path.first() != Some(&b'/') {
            return Err(BuildError::InvalidPath(to_lossy_string(path)));
        }
        if self.entries.contains_key(path) {
            return Err(BuildError::Duplicate(to_lossy_string(path)));
        }
        self.entries.insert(path.to_vec(), entry);
        Ok(())
    }
}

fn to_lossy_string(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// Builds the hash table. It is at most half full, so that probe sequences are short and each ends at an empty slot.
fn slots<'p>(paths: impl ExactSizeIterator<Item = &'p Vec<u8>>) -> Vec<u32> {
    let count = (paths.len() * 2 + 1).next_power_of_two();
    let mut slots = alloc::vec![[0; layout::SLOT]; count];
    for (number, path) in (1..).zip(paths) {
        let (mut at, mark) = hash::probe_start(path);
        // Linear probing; the table is at most half full.
        while slots[at & (count - 1)][1] != 0 {
            at = at.wrapping_add(1);
        }
        slots[at & (count - 1)] = [mark, number];
    }
    slots.into_flattened()
}

#[derive(Default)]
struct ArchiveWriter {
    out: Vec<u8>,
    slots: Vec<u32>,
    entries: Vec<u32>,
    variants: Vec<u32>,
    sums: Vec<u16>,
    error_pages: Vec<u32>,
    settings: Vec<u32>,
    sources: Vec<u32>,
}

impl ArchiveWriter {
    /// Appends bytes and returns their offset and length.
    fn append(&mut self, bytes: &[u8]) -> Result<[u32; 2], BuildError> {
        let at = number(self.out.len())?;
        self.out.extend_from_slice(bytes);
        number(self.out.len())?;
        Ok([at, number(bytes.len())?])
    }

    /// Appends a file. Returns the index of its first variant.
    fn file(&mut self, variants: &[NewVariant]) -> Result<u32, BuildError> {
        let first = number(self.variants.len() / layout::VARIANT)?;
        for variant in variants {
            self.variant(variant)?;
        }
        Ok(first)
    }

    fn variant(&mut self, variant: &NewVariant) -> Result<(), BuildError> {
        let [etag_at, etag_len] = self.append(variant.etag.as_bytes())?;
        let [type_at, type_len] = self.append(variant.content_type.as_bytes())?;
        let mut response = head(variant);
        let head_len = number(response.len())?;
        response.extend_from_slice(&variant.body);
        self.out.resize(self.out.len().next_multiple_of(ALIGN), 0);
        let [at, len] = self.append(&response)?;
        let first_sum = number(self.sums.len())?;
        self.sums.extend(variant.body.chunks(SUMMED_LEN).map(sum));
        let modified_s = variant.last_modified_s.unwrap_or(layout::NO_TIME);
        self.variants.extend([
            layout::number_of(variant.encoding),
            at,
            len,
            head_len,
            number(variant.shared_fields.len())?,
            number(variant.content_fields.len())?,
            etag_at,
            etag_len,
            type_at,
            type_len,
            first_sum,
            modified_s as u32, // its lower half
            (modified_s >> 32) as u32,
        ]);
        Ok(())
    }

    fn redirect(&mut self, location: &str) -> Result<[u32; 3], BuildError> {
        let [at, len] = self.append(location.as_bytes())?;
        Ok([kind::REDIRECT, at, len])
    }

    fn finish(mut self) -> Result<Vec<u8>, BuildError> {
        let sums: Vec<u8> = self.sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
        let tables = [
            (TableKind::Slots, bytes(&self.slots)),
            (TableKind::Entries, bytes(&self.entries)),
            (TableKind::Variants, bytes(&self.variants)),
            (TableKind::Sums, sums),
            (TableKind::ErrorPages, bytes(&self.error_pages)),
            (TableKind::Settings, bytes(&self.settings)),
            (TableKind::Sources, bytes(&self.sources)),
        ];
        let mut header = MAGIC.to_vec();
        header.resize(HEADER_LEN, 0);
        for (table, bytes) in tables {
            self.out.resize(self.out.len().next_multiple_of(ALIGN), 0);
            let location = self.append(&bytes)?.map(u32::to_le_bytes).concat();
            let at = MAGIC.len() + 4 + table as usize * 8;
            header[at..at + 8].copy_from_slice(&location);
        }
        let len = number(self.out.len())?.to_le_bytes();
        header[MAGIC.len()..MAGIC.len() + 4].copy_from_slice(&len);
        self.out[..HEADER_LEN].copy_from_slice(&header);
        Ok(self.out)
    }
}

/// The head of a 200 response on a persistent connection, with zeros for the date.
fn head(variant: &NewVariant) -> Vec<u8> {
    let mut out = Vec::new();
    let mut head = HeadWriter::start(&mut out, StatusCode::OK, &[0; 29]);
    head.lines(&variant.shared_fields);
    head.lines(&variant.content_fields);
    head.field_u64("Content-Length", variant.body.len() as u64);
    head.finish();
    out
}

fn sum(bytes: &[u8]) -> u16 {
    !InternetChecksum::default().bytes(bytes).checksum()
}

fn bytes(numbers: &[u32]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect()
}

fn number(len: usize) -> Result<u32, BuildError> {
    u32::try_from(len).map_err(|_| BuildError::TooLong)
}
