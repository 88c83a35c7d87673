//! What of a program's response goes to the disk: what memory has no room for, as it comes, and a copy of what will be of use
//! for a while. Whatever is newer in memory and does not go there is forgotten there. Without a disk nothing is done here.

use std::sync::Arc;

use bytes::Bytes;
use lowroad_engine::stream::Sender;
use lowroad_store::ObjectArc;
use lowroad_store::clock;
use lowroad_store::disk_cache::{self, Held, Primary, Response, Source, Tier, Unfinished};
use lowroad_store::object::{Content, Kind};
use lowroad_store::validity::Lifetime;

use super::{Fill, Head, Storing};

/// What is of use for less than that is not written for the memory's sake, ms: it would be gone before it is evicted.
const USEFUL_MIN_MS: u64 = 10_000;

/// What the disk is told of a response.
pub struct ForDisk {
    tier: Arc<Tier>,
    primary: Primary,
    response: Response,
}

impl Storing {
    /// A longer body is not stored.
    pub(super) fn body_len_max(&self) -> u64 {
        let on_disk = self.tier().map_or(0, |tier| tier.body_len_max());
        self.store.body_len_max().max(on_disk)
    }

    /// The disk, if it is for responses like this.
    fn tier(&self) -> Option<&Arc<Tier>> {
        self.store.tier().filter(|_| self.route.is_origin)
    }

    fn primary(&self) -> Option<Primary> {
        disk_cache::primary(&self.rules.disk_id, &self.key.bytes)
    }

    /// What the disk is told of a response with this head, if there is one.
    pub(super) fn for_disk(&self, head: &Head) -> Option<ForDisk> {
        let tier = self.tier()?.clone();
        let response = Response {
            generation: self.purges.generation,
            id: tier.number(),
            head: head.built.clone(),
            modified_s: head.about.modified_s,
            lifetime: head.about.lifetime.clone(),
            selecting: head.about.selecting.clone(),
        };
        Some(ForDisk {
            primary: self.primary()?,
            tier,
            response,
        })
    }

    /// Writes a copy of what is in memory, if it will be of use.
    pub(super) fn copy_to_disk(&self, for_disk: Option<ForDisk>, body: &Bytes) {
        self.keep_whole(for_disk, vec![body.clone()], None);
    }

    /// The same of a body in parts; if memory has no room for it, it is written in any case, and held until then.
    pub(super) fn keep_whole(
        &self,
        for_disk: Option<ForDisk>,
        parts: Vec<Bytes>,
        held: Option<Arc<Held>>,
    ) {
        let Some(for_disk) = for_disk else { return };
        if held.is_none() && !is_useful(&for_disk.response.lifetime) {
            for_disk.tier.skip();
            return for_disk.tier.forget_older(&for_disk.primary);
        }
        let len = parts.iter().map(|part| part.len() as u64).sum();
        if let Some((to, _)) = self.begin_on_disk(for_disk, Some(len), held) {
            // Whoever writes has all of it, or gave up.
            let is_open = |part: Bytes| to.push(part).is_ok();
            if parts.into_iter().all(is_open) {
                to.end();
            }
        }
    }

    /// Writes what an origin said anew of a response. A body in memory is written once more, since nobody knows whether it
    /// is on the disk.
    pub(super) fn renew_on_disk(&self, for_disk: Option<ForDisk>, object: &ObjectArc) {
        let (Some(for_disk), Some(renewed)) = (for_disk, object.representation()) else {
            return;
        };
        let Content::Segment(segment) = renewed.content() else {
            let body = Bytes::from_owner(BodyOf(object.clone()));
            return self.copy_to_disk(Some(for_disk), &body);
        };
        let ForDisk { tier, response, .. } = for_disk;
        let response = Response {
            id: segment.renewable.id,
            ..response
        };
        let in_memory = (self.key.hash, &self.key.bytes, object);
        tier.renew(&self.store, &segment.renewable, response, in_memory);
    }

    /// Forgets a response that may not be stored any more.
    pub(super) fn forget_on_disk(&self) {
        if let (Some(tier), Some(primary)) = (self.tier(), self.primary()) {
            tier.forget_older(&primary);
        }
    }

    /// Where the body of a response goes; `None`: the disk does not take it. If it is in memory, and so nothing is `held`
    /// until it is written, the disk forgets what it had instead.
    fn begin_on_disk(
        &self,
        for_disk: ForDisk,
        len: Option<u64>,
        held: Option<Arc<Held>>,
    ) -> Option<(Sender, Arc<Unfinished>)> {
        let ForDisk {
            tier,
            primary,
            response,
        } = for_disk;
        let source = Source {
            store: &self.store,
            hash: self.key.hash,
            primary,
            purges: self.purges,
        };
        let is_in_memory = held.is_none();
        let begun = tier.write(&source, response, len, held);
        if begun.is_none() && is_in_memory {
            tier.forget_older(&source.primary);
        }
        begun
    }
}

impl Fill {
    /// Has the body go to the disk, since memory has no room for it: what has come of it, and the rest as it comes. Whether it
    /// goes there.
    pub(super) fn go_on_disk(&mut self, parts: Vec<Bytes>) -> bool {
        let Kind::Filling(filling, _) = &self.object.kind else {
            return false;
        };
        if let Some(for_disk) = self.for_disk.take() {
            let held = self.held.clone();
            let begun = self.storing.begin_on_disk(for_disk, filling.len, held);
            if let Some(to) = begun {
                filling.keep(to, parts);
            }
        }
        filling.is_kept()
    }
}

impl Storing {
    /// What keeps an object that fills in memory until the disk has its body, if there is a disk.
    pub(super) fn hold(&self, object: &ObjectArc) -> Option<Arc<Held>> {
        self.tier().map(|_| {
            Arc::new(Held {
                store: self.store.clone(),
                hash: self.key.hash,
                key: self.key.bytes.clone(),
                object: object.clone(),
            })
        })
    }
}

/// Whether it can be used without a wait for its origin for long enough.
fn is_useful(lifetime: &Lifetime) -> bool {
    let times = lifetime.times();
    let until_ms = times.until_ms.max(times.swr_until_ms);
    !times.no_cache && until_ms.saturating_sub(clock::now_ms()) >= USEFUL_MIN_MS
}

/// The body of an object in memory, which stays there as long as this.
struct BodyOf(ObjectArc);

impl AsRef<[u8]> for BodyOf {
    fn as_ref(&self) -> &[u8] {
        let body = self.0.representation().and_then(|representation| {
            let len = usize::try_from(representation.len()).ok()?;
            representation.body(0..len)
        });
        body.unwrap_or_default()
    }
}
