//! Puts a representation where it stays: head and body in the arena, side by side if they are
//! short, apart if the body is long enough to be sent by its pages.
//!
//! Knows nothing of where the bytes come from.

use std::sync::Arc;

use lowroad_config as config;
use lowroad_engine::arena::PAGED_LEN_MIN;
use lowroad_engine::file::OpenFile;
use lowroad_http::encoding::EncodingSet;

use crate::heads::{self, HeadFacts};
use crate::store::SharedStore;
use crate::stored::{Bytes, Content, Kind, Representation, Sources, Stored};
use crate::watch::Trust;

/// What a stored answer costs besides its bytes.
pub const OVERHEAD: u64 = size_of::<Stored>() as u64 + 16;

/// A representation and its account.
pub struct Made {
    representation: Representation,
    size: u64,
}

/// Why there is no representation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unplaced {
    /// The arena has no room; what it holds may still be on its way to slow clients.
    NoRoom,
    /// The bytes changed while they were taken.
    Changed,
    /// The bytes could not be read.
    Failed,
}

/// What the bytes belong to, and what is known of them.
#[derive(Clone)]
pub struct About<'a> {
    /// What the head says.
    pub facts: &'a HeadFacts<'a>,
    /// The rules of the site.
    pub rules: &'a config::Site,
    /// Encodings to be had besides this one.
    pub encodings: EncodingSet,
    /// The files behind it.
    pub sources: Sources,
    /// The hash of its key: whose shard makes room.
    pub hash: u64,
}

impl Made {
    /// The stored answer.
    pub fn stored(self, trust: Trust, checked_ms: u64) -> Stored {
        Stored::new(
            Kind::Representation(self.representation),
            self.size,
            trust,
            checked_ms,
        )
    }
}

/// A representation whose body stays in its file.
pub fn in_file(about: About<'_>, file: Arc<OpenFile>) -> Made {
    let (head, map) = heads::build(about.facts, about.rules);
    let representation = about.finish(Bytes::Heap(head.into()), map, Content::File(file));
    Made {
        representation,
        size: OVERHEAD,
    }
}

/// A representation in memory, its body written by `fill`.
///
/// # Errors
/// As `fill` says, or that there is no room.
pub fn in_memory(
    store: &SharedStore,
    about: About<'_>,
    fill: impl FnOnce(&mut [u8]) -> Result<(), Unplaced>,
) -> Result<Made, Unplaced> {
    let (mut head, map) = heads::build(about.facts, about.rules);
    head.extend_from_slice(b"\r\n");
    let body_len = about.facts.len as usize; // bounded by who asks, far below 2^64
    let whole_len = head.len() + body_len;
    if whole_len < PAGED_LEN_MIN {
        let bytes = filled(store, about.hash, whole_len, |into| {
            into[..head.len()].copy_from_slice(&head);
            fill(&mut into[head.len()..])
        })?;
        let size = account(whole_len);
        return Ok(Made {
            representation: about.finish(bytes, map, Content::Inline),
            size,
        });
    }
    let paged_len = body_len.max(PAGED_LEN_MIN);
    let content = match filled(store, about.hash, paged_len, |into| {
        fill(&mut into[..body_len])
    })? {
        Bytes::Block(block) => Content::Block(block),
        Bytes::Heap(bytes) => Content::Heap(bytes.into()),
    };
    let bytes = filled(store, about.hash, head.len(), |into| {
        into.copy_from_slice(&head);
        Ok(())
    })?;
    let size = account(head.len()) + paged_len.next_multiple_of(4096) as u64;
    Ok(Made {
        representation: about.finish(bytes, map, content),
        size,
    })
}

impl About<'_> {
    fn finish(self, bytes: Bytes, map: crate::stored::HeadMap, content: Content) -> Representation {
        let facts = self.facts;
        Representation {
            bytes,
            head: map,
            content,
            len: facts.len,
            modified_s: facts.modified_s,
            encoding: facts.encoding,
            encoding_bits: self.encodings.bits().into(),
            sources: self.sources,
        }
    }
}

fn account(len: usize) -> u64 {
    len.next_multiple_of(64) as u64 + OVERHEAD
}

fn filled(
    store: &SharedStore,
    hash: u64,
    len: usize,
    fill: impl FnOnce(&mut [u8]) -> Result<(), Unplaced>,
) -> Result<Bytes, Unplaced> {
    if !store.has_arena() {
        // Nothing is to be stored: the bytes live as long as the answers made of them.
        let mut bytes = vec![0; len].into_boxed_slice();
        fill(&mut bytes)?;
        return Ok(Bytes::Heap(bytes));
    }
    let mut draft = store.allocate(hash, len).ok_or(Unplaced::NoRoom)?;
    fill(&mut draft)?;
    Ok(Bytes::Block(draft.finish()))
}
