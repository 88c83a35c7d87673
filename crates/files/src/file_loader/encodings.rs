//! Content codings of a file with a loaded identity: from a precompressed sibling, or compressed now.

use std::sync::Arc;

use lowroad_engine::file::OpenFile;
use lowroad_file_stamp::FileStamp;
use lowroad_http::content_coding::{CodingSet, ContentCoding};
use lowroad_http::status::StatusCode;
use lowroad_store::ObjectArc;
use lowroad_store::object::{Representation, SourceFiles};

use super::representation::NewRepresentation;
use super::{ContentRead, FileLoader, LoadRequest, place_of, sibling};
use crate::compression;
use crate::etag;
use crate::file_headers::HeadFacts;
use crate::folder::{PathTarget, SiteFolder};

impl FileLoader {
    /// Builds a coding of `want.base`.
    pub(super) fn encoded(
        &self,
        want: &LoadRequest,
        checked_ms: u64,
    ) -> Result<ObjectArc, StatusCode> {
        let base = want.base.as_ref().ok_or(StatusCode::INTERNAL_ERROR)?;
        let identity = base.representation().ok_or(StatusCode::INTERNAL_ERROR)?;
        let sources = base.validity.sources().ok_or(StatusCode::INTERNAL_ERROR)?;
        let recorded = place_of(want.encoding).and_then(|at| sources.siblings[at]);
        let made = match recorded {
            Some(stamp) => self.sibling_of(want, identity, sources, stamp),
            None => self.compressed(want, identity, sources),
        };
        if made
            .as_ref()
            .is_err_and(|status| *status == StatusCode::SERVICE_UNAVAILABLE)
        {
            // A source file has changed.
            base.validity.end();
        }
        Ok(ObjectArc::new(made?.object(None, checked_ms)))
    }

    fn sibling_of(
        &self,
        want: &LoadRequest,
        identity: &Representation,
        sources: &Arc<SourceFiles>,
        stamp: FileStamp,
    ) -> Result<NewRepresentation, StatusCode> {
        let file = self.open_sibling(want, sources)?;
        // The identity was loaded with another version of the sibling.
        if file.stamp != stamp {
            return Err(StatusCode::SERVICE_UNAVAILABLE);
        }
        let content = self.tag_digest(&want.rules, &file);
        let content = content.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
        let etag = content.map_or_else(|| etag::from_stamp(&stamp), etag::from_content);
        let etag = etag::with_encoding(&etag, want.encoding);
        let said = SharedHeadFields::new(want, identity, sources);
        let facts = said.facts(want, stamp.len, &etag, identity.modified.get());
        let about = self.about(want, &facts, CodingSet::EMPTY, sources.clone());
        match self.take(about, &Arc::new(file), content)? {
            ContentRead::Made(made) => Ok(*made),
            ContentRead::Changed => Err(StatusCode::SERVICE_UNAVAILABLE),
        }
    }

    fn compressed(
        &self,
        want: &LoadRequest,
        identity: &Representation,
        sources: &Arc<SourceFiles>,
    ) -> Result<NewRepresentation, StatusCode> {
        let whole = identity
            .body(0..identity.len() as usize)
            .ok_or(StatusCode::INTERNAL_ERROR)?;
        let Ok(Some(body)) = compression::compress(whole, want.encoding) else {
            // Not tried again for this version of the file.
            identity.without(want.encoding);
            return Err(StatusCode::NOT_ACCEPTABLE);
        };
        let tag = String::from_utf8_lossy(identity.validators().etag).into_owned();
        let etag = etag::with_encoding(&tag, want.encoding);
        let said = SharedHeadFields::new(want, identity, sources);
        let facts = said.facts(want, body.len() as u64, &etag, identity.modified.get());
        let about = self.about(want, &facts, CodingSet::EMPTY, sources.clone());
        let made = about.in_memory(&self.store, |into| {
            into.copy_from_slice(&body);
            Ok(())
        });
        // Without room, the identity is sent, which is still valid.
        made.map_err(|_| StatusCode::NOT_ACCEPTABLE)
    }

    fn open_sibling(
        &self,
        want: &LoadRequest,
        sources: &SourceFiles,
    ) -> Result<OpenFile, StatusCode> {
        let (rules, path) = (&want.rules, file_path(want, sources));
        let below = rules.below(&want.host, &path);
        let folder = SiteFolder::open(below.base, &below.folder, rules.config.symlinks)?;
        let relative = below.relative();
        match folder.find(&sibling(&relative, want.encoding))?.place {
            PathTarget::File(file) => Ok(file),
            PathTarget::Folder => Err(StatusCode::NOT_FOUND),
        }
    }
}

/// The fields that a coding's head shares with the identity's.
struct SharedHeadFields {
    path: Vec<u8>,
    content_type: String,
}

impl SharedHeadFields {
    fn new(
        want: &LoadRequest,
        identity: &Representation,
        sources: &SourceFiles,
    ) -> SharedHeadFields {
        let content_type = String::from_utf8_lossy(identity.content_type()).into_owned();
        SharedHeadFields {
            path: file_path(want, sources),
            content_type,
        }
    }

    fn facts<'a>(
        &'a self,
        want: &LoadRequest,
        len: u64,
        etag: &'a str,
        modified_s: Option<u64>,
    ) -> HeadFacts<'a> {
        HeadFacts {
            path: &self.path,
            content_type: &self.content_type,
            encoding: want.encoding,
            coding: ContentCoding::Identity,
            varies: true,
            len,
            etag,
            modified_s,
        }
    }
}

/// The decoded path of the file itself, including the index file's name for a folder.
fn file_path(want: &LoadRequest, sources: &SourceFiles) -> Vec<u8> {
    let index = sources.index.as_deref().unwrap_or("");
    [&want.path, index.as_bytes()].concat()
}
