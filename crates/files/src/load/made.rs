//! The result of a load: a representation with its head, or the fact that there is none.

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

/// A representation before it is placed.
#[derive(Clone)]
pub(super) struct About<'a> {
    pub facts: &'a HeadFacts<'a>,
    pub rules: &'a SiteRules,
    /// The other available codings.
    pub encodings: EncodingSet,
    /// Its source files.
    pub sources: Arc<Sources>,
    /// Its key.
    pub key: &'a [u8],
    /// The key's hash.
    pub hash: u64,
}

/// A representation and its source files.
pub(super) struct Made {
    pub representation: Representation,
    pub sources: Arc<Sources>,
}

impl About<'_> {
    /// Leaves the body in its file.
    pub fn in_file(&self, file: Arc<OpenFile>) -> Made {
        let (bytes, head) =
            heads::build(self.facts, &self.rules.config, &self.rules.header_patterns);
        self.made(Placed {
            bytes: Bytes::Heap(Box::new(bytes.into())),
            head,
            // Not stored, so it needs no key.
            key_len: 0,
            content: Content::File(file),
            size: 0,
        })
    }

    /// Places the body in memory, written by `fill`.
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
    /// Creates the object to store.
    pub fn object(self, trust: Trust, checked_ms: u64) -> Object {
        Object {
            kind: Kind::Representation(self.representation),
            validity: Validity::of_files(trust, checked_ms).made_of(self.sources),
        }
    }
}

/// Whether an object may be stored. Objects with an open file are not: each would hold a descriptor.
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

/// An object for a refusal.
pub(super) fn refused(status: Status, key: &[u8], trust: Trust, checked_ms: u64) -> Object {
    bare(Kind::Refused(status, key.into()), trust, checked_ms)
}

/// An object without bytes.
pub(super) fn bare(kind: Kind, trust: Trust, checked_ms: u64) -> Object {
    Object {
        kind,
        validity: Validity::of_files(trust, checked_ms),
    }
}
