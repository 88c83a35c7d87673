//! What a look at the file system comes to: a representation with its head, or the news that there is none. Knows nothing
//! of folders and names.

use std::sync::Arc;

use lowroad_cache::vary::Selecting;
use lowroad_engine::file::OpenFile;
use lowroad_http::encoding::EncodingSet;
use lowroad_http::status::Status;
use lowroad_site_rules::SiteRules;
use lowroad_store::object::{Bytes, Content, Kind, Placed, Representation, Sources};
use lowroad_store::place::{self, Unplaced};
use lowroad_store::validity::Validity;
use lowroad_store::watch::Trust;
use lowroad_store::{Object, SharedStore};

use crate::heads::{self, HeadFacts};

/// What is known of a representation before it has a place.
#[derive(Clone)]
pub(super) struct About<'a> {
    pub facts: &'a HeadFacts<'a>,
    pub rules: &'a SiteRules,
    /// Encodings to be had besides this one.
    pub encodings: EncodingSet,
    /// The files behind it.
    pub sources: Arc<Sources>,
    /// Its key, and that one's hash.
    pub key: &'a [u8],
    /// See there.
    pub hash: u64,
}

/// A representation and its account.
pub(super) struct Made {
    pub representation: Representation,
    pub sources: Arc<Sources>,
}

impl About<'_> {
    /// The body stays in its file.
    pub fn in_file(&self, file: Arc<OpenFile>) -> Made {
        let (bytes, head) =
            heads::build(self.facts, &self.rules.config, &self.rules.header_patterns);
        self.made(Placed {
            bytes: Bytes::Heap(Box::new(bytes.into())),
            head,
            // It is not stored.
            key_len: 0,
            content: Content::File(file),
            size: 0,
        })
    }

    /// The body is written into memory by `fill`.
    pub fn in_memory(
        &self,
        store: &SharedStore,
        fill: impl FnOnce(&mut [u8]) -> Result<(), Unplaced>,
    ) -> Result<Made, Unplaced> {
        let head = heads::build(self.facts, &self.rules.config, &self.rules.header_patterns);
        let len = self.facts.len as usize; // bounded by who asks, far below 2^64
        Ok(self.made(place::in_memory(
            store,
            (self.hash, self.key),
            head,
            len,
            fill,
        )?))
    }

    fn made(&self, placed: Placed) -> Made {
        Made {
            representation: Representation::new(
                placed,
                self.facts.len,
                self.facts.modified_s,
                Selecting::default(),
            )
            .in_encoding(self.facts.encoding, self.encodings),
            sources: self.sources.clone(),
        }
    }
}

impl Made {
    /// What is stored.
    pub fn object(self, trust: Trust, checked_ms: u64) -> Object {
        Object {
            kind: Kind::Representation(self.representation),
            validity: Validity::of_files(trust, checked_ms).made_of(self.sources),
        }
    }
}

/// Whether an object may be stored: an open file would hold a descriptor for as long as it is.
pub(super) fn keeps(kind: &Kind) -> bool {
    match kind {
        Kind::Representation(representation) => {
            !matches!(representation.content(), Content::File(_))
        }
        Kind::Refused(status, _) => status.code() < 500,
        Kind::Folder(_) | Kind::NoIndex(_) | Kind::Index(..) => true,
        Kind::Filling(..) | Kind::Parts(_) => false,
    }
}

/// The news that there is nothing, or nothing for clients.
pub(super) fn refused(status: Status, key: &[u8], trust: Trust, checked_ms: u64) -> Object {
    bare(Kind::Refused(status, key.into()), trust, checked_ms)
}

/// An object without bytes of its own.
pub(super) fn bare(kind: Kind, trust: Trust, checked_ms: u64) -> Object {
    Object {
        kind,
        validity: Validity::of_files(trust, checked_ms),
    }
}
