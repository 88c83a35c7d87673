//! Opens an archive: checks every number once and converts the tables to slices. Damaged archives are rejected here.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str;

use lowroad_http::content_coding::{CodingSet, ContentCoding};

use super::layout::{self, MAGIC, TableKind, kind};
use super::{
    ArchiveEntry, ArchiveTables, ArchivedErrorPage, ArchivedFile, FIELDS_AT, FileVariant, HashSlot,
    PageSource, PathEntry, SUMMED_LEN,
};

/// The reason that an archive can't be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The magic or the version is different.
    NotAnArchive,
    /// The length is not the one in the header.
    Length,
    /// A number is out of bounds.
    Damaged,
}

impl fmt::Display for OpenError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            OpenError::NotAnArchive => {
                "the site's archive is of another version: rebuild the image"
            }
            OpenError::Length => "the site's archive is truncated",
            OpenError::Damaged => "the site's archive is damaged",
        })
    }
}

impl core::error::Error for OpenError {}

impl From<OpenError> for String {
    fn from(error: OpenError) -> String {
        error.to_string()
    }
}

type ArchiveResult<T> = Result<T, OpenError>;

pub(super) fn tables(bytes: &'static [u8]) -> ArchiveResult<ArchiveTables> {
    let reader = ArchiveReader::new(bytes)?;
    let variants: &'static [FileVariant] = Box::leak(reader.variants()?.into_boxed_slice());
    let sources = reader.sources()?;
    let path_entries = reader.path_entries(variants, &sources)?;
    let slots = reader.slots(path_entries.len())?;
    let settings = reader.records::<{ layout::SETTING }>(TableKind::Settings)?;
    let settings = settings.map(|[key_at, key_len, at, len]| {
        Ok((reader.text(key_at, key_len)?, reader.text(at, len)?))
    });
    Ok(ArchiveTables {
        slots,
        path_entries,
        settings: settings.collect::<ArchiveResult<_>>()?,
        error_pages: reader.error_pages()?,
        sources,
    })
}

struct ArchiveReader {
    bytes: &'static [u8],
}

impl ArchiveReader {
    fn new(bytes: &'static [u8]) -> ArchiveResult<ArchiveReader> {
        let rest = bytes.strip_prefix(&MAGIC).ok_or(OpenError::NotAnArchive)?;
        let len = rest.first_chunk().ok_or(OpenError::Length)?;
        if u32::from_le_bytes(*len) as usize != bytes.len() || bytes.len() < layout::HEADER_LEN {
            return Err(OpenError::Length);
        }
        Ok(ArchiveReader { bytes })
    }

    fn slice(&self, at: u32, len: u32) -> ArchiveResult<&'static [u8]> {
        let from = self.bytes.get(at as usize..);
        from.and_then(|from| from.get(..len as usize))
            .ok_or(OpenError::Damaged)
    }

    fn text(&self, at: u32, len: u32) -> ArchiveResult<&'static str> {
        str::from_utf8(self.slice(at, len)?).map_err(|_| OpenError::Damaged)
    }

    /// A table. Its length must be a multiple of `len` bytes.
    fn table(&self, table: TableKind, len: usize) -> ArchiveResult<&'static [u8]> {
        let at = MAGIC.len() + 4 + table as usize * 8;
        let location = self.bytes.get(at..).ok_or(OpenError::Damaged)?;
        let ([at, table_len], _) = location
            .as_chunks::<4>()
            .0
            .split_first_chunk()
            .ok_or(OpenError::Damaged)?;
        let table_bytes = self.slice(u32::from_le_bytes(*at), u32::from_le_bytes(*table_len))?;
        // A partial record at the end would otherwise be ignored.
        match table_bytes.len().is_multiple_of(len) {
            true => Ok(table_bytes),
            false => Err(OpenError::Damaged),
        }
    }

    fn records<const N: usize>(
        &self,
        table: TableKind,
    ) -> ArchiveResult<impl Iterator<Item = [u32; N]> + use<N>> {
        let (numbers, _) = self.table(table, N * 4)?.as_chunks::<4>();
        let (records, _) = numbers.as_chunks::<N>();
        Ok(records.iter().map(|record| record.map(u32::from_le_bytes)))
    }

    fn variants(&self) -> ArchiveResult<Vec<FileVariant>> {
        let (sums, _) = self.table(TableKind::Sums, 2)?.as_chunks::<2>();
        let sums: Vec<u16> = sums.iter().map(|sum| u16::from_le_bytes(*sum)).collect();
        let sums: &'static [u16] = Box::leak(sums.into_boxed_slice());
        let records = self.records(TableKind::Variants)?;
        records.map(|record| self.variant(record, sums)).collect()
    }

    fn variant(
        &self,
        record: [u32; layout::VARIANT],
        sums: &'static [u16],
    ) -> ArchiveResult<FileVariant> {
        let [
            encoding,
            at,
            len,
            head_len,
            shared_len,
            content_fields_len,
            ..,
        ] = record;
        let [
            ..,
            etag_at,
            etag_len,
            type_at,
            type_len,
            first_sum,
            low,
            high,
        ] = record;
        let response = self.slice(at, len)?;
        let head_len = head_len as usize;
        let head = response.get(..head_len).ok_or(OpenError::Damaged)?;
        let fields = head.get(FIELDS_AT..).ok_or(OpenError::Damaged)?;
        let shared_fields = fields
            .get(..shared_len as usize)
            .ok_or(OpenError::Damaged)?;
        // In a damaged archive the sum may overflow.
        let fields_len = (shared_len as usize).checked_add(content_fields_len as usize);
        let fields = fields_len
            .and_then(|len| fields.get(..len))
            .ok_or(OpenError::Damaged)?;
        let sums = sums.get(first_sum as usize..).ok_or(OpenError::Damaged)?;
        let sums = sums
            .get(..response.len().saturating_sub(head_len).div_ceil(SUMMED_LEN))
            .ok_or(OpenError::Damaged)?;
        let modified_s = u64::from(high) << 32 | u64::from(low);
        Ok(FileVariant {
            encoding: layout::encoding_of(encoding).ok_or(OpenError::Damaged)?,
            response,
            head_len,
            fields,
            shared_fields,
            etag: self.text(etag_at, etag_len)?,
            content_type: self.text(type_at, type_len)?,
            last_modified_s: (modified_s != layout::NO_TIME).then_some(modified_s),
            sums,
        })
    }

    fn path_entries(
        &self,
        variants: &'static [FileVariant],
        sources: &[PageSource],
    ) -> ArchiveResult<Vec<PathEntry>> {
        let records = self.records::<{ layout::ENTRY }>(TableKind::Entries)?;
        let path_entries = records.map(|[at, len, kind, first, second]| {
            let path = self.slice(at, len)?;
            let entry = self.entry([kind, first, second], variants, sources)?;
            Ok(PathEntry { path, entry })
        });
        path_entries.collect()
    }

    fn entry(
        &self,
        [kind, first, second]: [u32; 3],
        variants: &'static [FileVariant],
        sources: &[PageSource],
    ) -> ArchiveResult<ArchiveEntry> {
        match kind {
            kind::FILE => {
                let file_variants = variants
                    .get(first as usize..)
                    .and_then(|file_variants| file_variants.get(..second as usize));
                Ok(ArchiveEntry::File(file(
                    file_variants.ok_or(OpenError::Damaged)?,
                )?))
            }
            kind::REDIRECT => {
                let location = self.text(first, second)?;
                Ok(ArchiveEntry::Redirect { location })
            }
            kind::FORBIDDEN => Ok(ArchiveEntry::Forbidden),
            kind::PAGE => {
                let source = sources.get(first as usize);
                Ok(ArchiveEntry::Page(*source.ok_or(OpenError::Damaged)?))
            }
            _ => Err(OpenError::Damaged),
        }
    }

    fn sources(&self) -> ArchiveResult<Vec<PageSource>> {
        let records = self.records::<{ layout::SOURCE }>(TableKind::Sources)?;
        let sources = records.map(|[name_at, name_len, at, len]| {
            let (name, text) = (self.text(name_at, name_len)?, self.text(at, len)?);
            Ok(PageSource { name, text })
        });
        let sources: Vec<_> = sources.collect::<ArchiveResult<_>>()?;
        // `SiteArchive::source` uses binary search.
        match sources.is_sorted_by_key(|source| source.name) {
            true => Ok(sources),
            false => Err(OpenError::Damaged),
        }
    }

    fn slots(&self, entry_count: usize) -> ArchiveResult<Vec<HashSlot>> {
        let records = self.records::<{ layout::SLOT }>(TableKind::Slots)?;
        let slots: Vec<HashSlot> = records
            .map(|[mark, path_index]| HashSlot { mark, path_index })
            .collect();
        // Without an empty slot, a lookup of a missing path would not end.
        let has_valid_indices = slots
            .iter()
            .all(|slot| slot.path_index as usize <= entry_count);
        let has_empty_slot = slots.iter().any(|slot| slot.path_index == 0);
        match has_valid_indices && has_empty_slot && slots.len().is_power_of_two() {
            true => Ok(slots),
            false => Err(OpenError::Damaged),
        }
    }

    fn error_pages(&self) -> ArchiveResult<Vec<(u16, ArchivedErrorPage)>> {
        let records = self.records::<{ layout::ERROR_PAGE }>(TableKind::ErrorPages)?;
        let pages = records.map(|[status, type_at, type_len, at, len]| {
            let status = u16::try_from(status).map_err(|_| OpenError::Damaged)?;
            let content_type = self.text(type_at, type_len)?;
            let body = self.slice(at, len)?;
            Ok((status, ArchivedErrorPage { content_type, body }))
        });
        let pages: Vec<_> = pages.collect::<ArchiveResult<_>>()?;
        match pages.is_sorted_by_key(|page| page.0) {
            true => Ok(pages),
            false => Err(OpenError::Damaged),
        }
    }
}

/// Checks that the first variant is identity and that no content coding occurs twice.
fn file(variants: &'static [FileVariant]) -> ArchiveResult<ArchivedFile> {
    let (first, encoded) = variants.split_first().ok_or(OpenError::Damaged)?;
    let mut encodings = CodingSet::EMPTY;
    for variant in encoded {
        if variant.encoding == ContentCoding::Identity || encodings.contains(variant.encoding) {
            return Err(OpenError::Damaged);
        }
        encodings.insert(variant.encoding);
    }
    match first.encoding {
        ContentCoding::Identity => Ok(ArchivedFile {
            encodings,
            variants,
        }),
        _ => Err(OpenError::Damaged),
    }
}
