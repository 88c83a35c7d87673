//! Builds the content codings of a file with a stored identity: from a precompressed file, or by compression.

use std::sync::Arc;

use lowroad_engine::file::OpenFile;
use lowroad_file_stamp::FileStamp;
use lowroad_http::content_coding::{CodingSet, ContentCoding};
use lowroad_http::status::StatusCode;
use lowroad_store::ObjectArc;
use lowroad_store::object::{Representation, SourceFiles};

use super::representation::NewRepresentation;
use super::{ContentRead, FileLoader, LoadRequest, sibling, sibling_index};
use crate::compression;
use crate::etag;
use crate::file_headers::HeadFacts;
use crate::folder::{PathTarget, SiteFolder};

impl FileLoader {
    /// Builds the requested coding of `request.base`.
    pub(super) fn build_encoded(
        &self,
        request: &LoadRequest,
        checked_ms: u64,
    ) -> Result<ObjectArc, StatusCode> {
        let base = request.base.as_ref().ok_or(StatusCode::INTERNAL_ERROR)?;
        let identity = base.representation().ok_or(StatusCode::INTERNAL_ERROR)?;
        let sources = base.validity.sources().ok_or(StatusCode::INTERNAL_ERROR)?;
        let sibling_stamp =
            sibling_index(request.encoding).and_then(|index| sources.siblings[index]);
        let result = match sibling_stamp {
            Some(stamp) => self.build_from_sibling(request, identity, sources, stamp),
            None => self.build_compressed(request, identity, sources),
        };
        if result
            .as_ref()
            .is_err_and(|status| *status == StatusCode::SERVICE_UNAVAILABLE)
        {
            // A source file has changed.
            base.validity.end();
        }
        Ok(ObjectArc::new(result?.object(None, checked_ms)))
    }

    fn build_from_sibling(
        &self,
        request: &LoadRequest,
        identity: &Representation,
        sources: &Arc<SourceFiles>,
        stamp: FileStamp,
    ) -> Result<NewRepresentation, StatusCode> {
        let file = self.open_sibling(request, sources)?;
        // The precompressed file may have changed since the identity was loaded.
        if file.stamp != stamp {
            return Err(StatusCode::SERVICE_UNAVAILABLE);
        }
        let content = self.tag_digest(&request.rules, &file);
        let content = content.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
        let etag = content.map_or_else(|| etag::from_stamp(&stamp), etag::from_content);
        let etag = etag::with_encoding(&etag, request.encoding);
        let shared_fields = SharedHeadFields::new(request, identity, sources);
        let facts = shared_fields.facts(request, stamp.len, &etag, identity.modified.get());
        let info = self.describe(request, &facts, CodingSet::EMPTY, sources.clone());
        match self.read_into_memory(info, &Arc::new(file), content)? {
            ContentRead::Complete(representation) => Ok(*representation),
            ContentRead::Changed => Err(StatusCode::SERVICE_UNAVAILABLE),
        }
    }

    fn build_compressed(
        &self,
        request: &LoadRequest,
        identity: &Representation,
        sources: &Arc<SourceFiles>,
    ) -> Result<NewRepresentation, StatusCode> {
        let uncompressed = identity
            .body(0..identity.len() as usize)
            .ok_or(StatusCode::INTERNAL_ERROR)?;
        let Ok(Some(body)) = compression::compress(uncompressed, request.encoding) else {
            // The coding is removed, so that it is not tried again for this version of the file.
            identity.remove_encoding(request.encoding);
            return Err(StatusCode::NOT_ACCEPTABLE);
        };
        let tag = String::from_utf8_lossy(identity.validators().etag).into_owned();
        let etag = etag::with_encoding(&tag, request.encoding);
        let shared_fields = SharedHeadFields::new(request, identity, sources);
        let facts = shared_fields.facts(request, body.len() as u64, &etag, identity.modified.get());
        let info = self.describe(request, &facts, CodingSet::EMPTY, sources.clone());
        let representation = info.in_memory(&self.store, |buffer| {
            buffer.copy_from_slice(&body);
            Ok(())
        });
        // If there is no room, the identity is sent.
        representation.map_err(|_| StatusCode::NOT_ACCEPTABLE)
    }

    fn open_sibling(
        &self,
        request: &LoadRequest,
        sources: &SourceFiles,
    ) -> Result<OpenFile, StatusCode> {
        let (rules, path) = (&request.rules, file_path(request, sources));
        let location = rules.locate(&request.host, &path);
        let folder = SiteFolder::open(location.base, &location.folder, rules.config.symlinks)?;
        let relative = location.relative();
        match folder.find(&sibling(&relative, request.encoding))?.target {
            PathTarget::File(file) => Ok(file),
            PathTarget::Folder => Err(StatusCode::NOT_FOUND),
        }
    }
}

/// The fields of the identity's head that a coding's head shares.
struct SharedHeadFields {
    path: Vec<u8>,
    content_type: String,
}

impl SharedHeadFields {
    fn new(
        request: &LoadRequest,
        identity: &Representation,
        sources: &SourceFiles,
    ) -> SharedHeadFields {
        let content_type = String::from_utf8_lossy(identity.content_type()).into_owned();
        SharedHeadFields {
            path: file_path(request, sources),
            content_type,
        }
    }

    fn facts<'a>(
        &'a self,
        request: &LoadRequest,
        len: u64,
        etag: &'a str,
        modified_s: Option<u64>,
    ) -> HeadFacts<'a> {
        HeadFacts {
            path: &self.path,
            content_type: &self.content_type,
            encoding: request.encoding,
            coding: ContentCoding::Identity,
            varies: true,
            len,
            etag,
            modified_s,
        }
    }
}

/// The decoded path of the file itself; for a folder with the name of the index file.
fn file_path(request: &LoadRequest, sources: &SourceFiles) -> Vec<u8> {
    let index = sources.index.as_deref().unwrap_or("");
    [&request.path, index.as_bytes()].concat()
}
