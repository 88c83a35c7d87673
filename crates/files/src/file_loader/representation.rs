//! Builds the object that results from a load: a representation with its head, or an object without content.

use std::sync::Arc;

use lowroad_cache::vary::SelectingFields;
use lowroad_engine::file::OpenFile;
use lowroad_http::content_coding::CodingSet;
use lowroad_http::status::StatusCode;
use lowroad_site_rules::SiteRules;
use lowroad_store::key::HashedKey;
use lowroad_store::object::{
    BodyLocation, ObjectKind, PlacedResponse, Representation, SourceFiles, StoredBytes,
};
use lowroad_store::placement::{self, PlacementError};
use lowroad_store::validity::ObjectValidity;
use lowroad_store::watch::WatchTrust;
use lowroad_store::{SharedStore, StoredObject};

use crate::file_headers::{self, HeadFacts};

/// A representation that is not placed in memory yet.
#[derive(Clone)]
pub(super) struct RepresentationInfo<'a> {
    pub facts: &'a HeadFacts<'a>,
    pub rules: &'a SiteRules,
    /// The other available codings.
    pub encodings: CodingSet,
    /// The source files.
    pub sources: Arc<SourceFiles>,
    /// The key in the store.
    pub key: &'a [u8],
    /// The key's hash.
    pub hash: u64,
}

/// A representation and its source files.
pub(super) struct NewRepresentation {
    pub representation: Representation,
    pub sources: Arc<SourceFiles>,
}

impl RepresentationInfo<'_> {
    /// Makes a representation with a body that is sent from the file.
    pub fn in_file(&self, file: Arc<OpenFile>) -> NewRepresentation {
        let head = file_headers::build(self.facts, &self.rules.config, &self.rules.header_patterns);
        self.to_representation(PlacedResponse {
            bytes: StoredBytes::Heap(Box::new(head.text.into())),
            head: head.map,
            // Such an object is not stored, so it needs no key.
            key_len: 0,
            content: BodyLocation::File(file),
            size: 0,
        })
    }

    /// Makes a representation with the body in memory, where `fill` writes it.
    pub fn in_memory(
        &self,
        store: &SharedStore,
        fill: impl FnOnce(&mut [u8]) -> Result<(), PlacementError>,
    ) -> Result<NewRepresentation, PlacementError> {
        let head = file_headers::build(self.facts, &self.rules.config, &self.rules.header_patterns);
        let len = self.facts.len as usize; // limited by the callers, far below 2^64
        Ok(self.to_representation(placement::place_response(
            store,
            HashedKey {
                hash: self.hash,
                bytes: self.key,
            },
            head,
            len,
            fill,
        )?))
    }

    fn to_representation(&self, placed: PlacedResponse) -> NewRepresentation {
        NewRepresentation {
            representation: Representation::new(
                placed,
                self.facts.len,
                self.facts.modified_s,
                SelectingFields::default(),
            )
            .with_encoding(self.facts.encoding, self.encodings),
            sources: self.sources.clone(),
        }
    }
}

impl NewRepresentation {
    /// Creates the object to store.
    pub fn object(self, trust: WatchTrust, checked_ms: u64) -> StoredObject {
        StoredObject {
            kind: ObjectKind::Representation(self.representation),
            validity: ObjectValidity::from_files(trust, checked_ms).with_sources(self.sources),
        }
    }
}

/// Whether an object may be stored. Objects with an open file are not, since each would need a file descriptor.
pub(super) fn is_storable(kind: &ObjectKind) -> bool {
    match kind {
        ObjectKind::Representation(representation) => {
            !matches!(representation.content(), BodyLocation::File(_))
        }
        // Server errors are not stored, since they may be temporary.
        ObjectKind::Refused(status, _) => status.code() < 500,
        ObjectKind::Folder(_) | ObjectKind::NoIndex(_) | ObjectKind::Index(..) => true,
        ObjectKind::Streaming(..) | ObjectKind::Parts(_) => false,
    }
}

/// An object for an error status.
pub(super) fn refused_object(
    status: StatusCode,
    key: &[u8],
    trust: WatchTrust,
    checked_ms: u64,
) -> StoredObject {
    empty_object(ObjectKind::Refused(status, key.into()), trust, checked_ms)
}

/// An object without bytes.
pub(super) fn empty_object(kind: ObjectKind, trust: WatchTrust, checked_ms: u64) -> StoredObject {
    StoredObject {
        kind,
        validity: ObjectValidity::from_files(trust, checked_ms),
    }
}
