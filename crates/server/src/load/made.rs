//! What a look at the file system comes to: a representation with its head, or the news that there is none. Knows nothing
//! of folders and names.

use std::sync::Arc;

use lowroad_cache::vary::Selecting;
use lowroad_config as config;
use lowroad_engine::file::OpenFile;
use lowroad_http::encoding::EncodingSet;
use lowroad_http::status::Status;

use crate::heads::{self, HeadFacts};
use crate::store::object::{Bytes, Content, Kind, Representation, Sources};
use crate::store::place::{self, OVERHEAD, Placed, Unplaced};
use crate::store::validity::Validity;
use crate::store::{Object, SharedStore};
use crate::watch::Trust;

/// What is known of a representation before it has a place.
#[derive(Clone)]
pub(super) struct About<'a> {
    pub facts: &'a HeadFacts<'a>,
    pub rules: &'a config::Site,
    /// Encodings to be had besides this one.
    pub encodings: EncodingSet,
    /// The files behind it.
    pub sources: Arc<Sources>,
    /// The hash of its key.
    pub hash: u64,
}

/// A representation and its account.
pub(super) struct Made {
    pub representation: Representation,
    pub size: u64,
}

impl About<'_> {
    /// The body stays in its file.
    pub fn in_file(&self, file: Arc<OpenFile>) -> Made {
        let (bytes, head) = heads::build(self.facts, self.rules);
        self.made(Placed {
            bytes: Bytes::Heap(bytes.into()),
            head,
            content: Content::File(file),
            size: OVERHEAD,
        })
    }

    /// The body is written into memory by `fill`.
    pub fn in_memory(
        &self,
        store: &SharedStore,
        fill: impl FnOnce(&mut [u8]) -> Result<(), Unplaced>,
    ) -> Result<Made, Unplaced> {
        let head = heads::build(self.facts, self.rules);
        let len = self.facts.len as usize; // bounded by who asks, far below 2^64
        Ok(self.made(place::in_memory(store, self.hash, head, len, fill)?))
    }

    fn made(&self, placed: Placed) -> Made {
        Made {
            representation: Representation {
                bytes: placed.bytes,
                head: placed.head,
                content: placed.content,
                len: self.facts.len,
                modified: self.facts.modified_s.into(),
                encoding: self.facts.encoding,
                encoding_bits: self.encodings.bits().into(),
                selecting: Selecting::default(),
                sources: Some(self.sources.clone()),
            },
            size: placed.size,
        }
    }
}

impl Made {
    /// What is stored.
    pub fn object(self, trust: Trust, checked_ms: u64) -> Object {
        Object {
            kind: Kind::Representation(self.representation),
            size: self.size,
            validity: Validity::of_files(trust, checked_ms),
        }
    }
}

/// Whether an object may be stored: an open file would hold a descriptor for as long as it is.
pub(super) fn keeps(kind: &Kind) -> bool {
    match kind {
        Kind::Representation(representation) => !matches!(representation.content, Content::File(_)),
        Kind::Refused(status) => status.code() < 500,
        Kind::Folder | Kind::Index(_) => true,
        Kind::Filling(_) | Kind::Parts(_) => false,
    }
}

/// The news that there is nothing, or nothing for clients.
pub(super) fn refused(status: Status, trust: Trust, checked_ms: u64) -> Object {
    bare(Kind::Refused(status), trust, checked_ms)
}

/// An object without bytes of its own.
pub(super) fn bare(kind: Kind, trust: Trust, checked_ms: u64) -> Object {
    Object {
        kind,
        size: OVERHEAD,
        validity: Validity::of_files(trust, checked_ms),
    }
}
