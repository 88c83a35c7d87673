//! Stores handlers' responses: at once, or while the body arrives. `reuse` decides which responses are storable.

use std::sync::Arc;

use bytes::Bytes;
use lowroad_cache::cache_status::CacheResult;
use lowroad_cache::request::RequestDirectives;
use lowroad_cache::vary::SelectingFields;
use lowroad_engine::shared_body::SharedBodyReader;
use lowroad_engine::stream::{BodyReceiver, StreamItem};
use lowroad_handler::executor::ResponseExecutor;
use lowroad_handler::{HandlerResponse, ResponseContent as Made, ResponseFields};
use lowroad_http::date;
use lowroad_http::fields::FieldNames;
use lowroad_http::status::StatusCode;
use lowroad_http::stored_head::EncodedHead;
use lowroad_routes::routes::Route;
use lowroad_site_rules::{SiteFields, SiteRules};
use lowroad_store::clock;
use lowroad_store::in_flight::InFlightTable;
use lowroad_store::key::HashedKey;
use lowroad_store::object::{ObjectKind, PlacedResponse, Representation};
use lowroad_store::placement;
use lowroad_store::purge_epoch::PurgeEpoch;
use lowroad_store::streaming_object::{StreamedHead, StreamingObject};
use lowroad_store::validity::{ObjectValidity, StoredExpiry};
use lowroad_store::{ObjectArc, SharedStore, StoredObject};

use crate::handler_outcome::{HandlerOutcome, OutcomeWaiter};
use crate::reply::HandlerReply;
use crate::reuse::{CacheKey, RequestedPart, ReuseJudge, StorageDecision, is_plain_range};
use crate::stored_heads;
use crate::validation::RequestLines;

mod cache_fill;
mod disk_copy;
mod parts;

use cache_fill::CacheFill;

/// A stored response for one of the requests that wait for it.
pub struct StoredResponse {
    /// The object; its body may still be arriving.
    pub object: ObjectArc,
    /// The reader of an arriving body.
    pub body: Option<SharedBodyReader>,
    /// The kind of hit.
    pub way: HitKind,
    /// The reason for the handler's call, if there was one.
    pub why: CacheResult,
    /// Fields of the response that are for this client only (RFC 9111 §5.2.2.4, §5.2.2.7).
    pub own: Option<Box<ResponseFields>>,
    /// The store accepted it: it is not too large and was not purged in the meantime.
    pub is_kept: bool,
}

/// The source of a stored response for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HitKind {
    /// It was in the store.
    Hit,
    /// The handler was called for this request.
    Made,
    /// The handler was called for an equal request.
    Shared,
    /// It was in the store, and the origin validated it.
    Validated,
    /// It was in the store and stale, and the origin failed.
    OnError,
}

impl HitKind {
    /// Whether the response is for this request, so that its selecting fields need no comparison.
    pub fn is_own(self) -> bool {
        self != HitKind::Shared
    }
}

impl StoredResponse {
    /// Creates it from an object in the store.
    pub fn from_object(object: &ObjectArc, way: HitKind) -> StoredResponse {
        let body = match &object.kind {
            ObjectKind::Filling(filling, _) => filling.read(),
            _ => None,
        };
        StoredResponse {
            object: object.clone(),
            body,
            way,
            why: CacheResult::UriMiss,
            own: None,
            is_kept: true,
        }
    }

    /// Whether followers may use it: no validation per request is required, or the origin failed.
    pub fn is_for_others(&self) -> bool {
        let lifetime = self.object.validity.lifetime();
        self.way == HitKind::OnError || lifetime.is_none_or(|lifetime| lifetime.was_useful())
    }

    /// The same response for a follower.
    pub fn for_other(&self) -> StoredResponse {
        StoredResponse {
            is_kept: self.is_kept,
            why: self.why,
            ..StoredResponse::from_object(&self.object, HitKind::Shared)
        }
    }

    /// Returns the response if its body has begun or is whole. Otherwise the waiter gets it once the body begins, or
    /// must call the handler itself. The leader always gets it back.
    pub fn unless_quiet(
        mut self,
        waiter: impl FnOnce() -> OutcomeWaiter,
    ) -> Option<StoredResponse> {
        let object = self.object.clone();
        let ObjectKind::Filling(filling, _) = &object.kind else {
            return Some(self);
        };
        let joins = matches!(self.way, HitKind::Hit | HitKind::Shared);
        if let Some(body) = self.body.take_if(|_| joins) {
            let (later, waiter) = (self.without_body(), waiter());
            let tell = Box::new(move |body: Option<SharedBodyReader>| {
                let outcome = match body {
                    None => HandlerOutcome::Alone,
                    body => HandlerOutcome::Stored(StoredResponse { body, ..later }),
                };
                waiter.wake(outcome);
            });
            self.body = Some(filling.wait(body, clock::now_ms(), tell)?);
        }
        Some(self)
    }

    /// The response for when its body begins, without the fields for one client.
    fn without_body(&self) -> StoredResponse {
        StoredResponse {
            object: self.object.clone(),
            body: None,
            own: None,
            ..*self
        }
    }
}

/// Stores the response to one request.
pub struct StoreRequest {
    /// The key under which the response is stored.
    pub key: CacheKey,
    /// The purge epoch before the handler was called.
    pub purges: PurgeEpoch,
    /// The time of the call, monotonic ms.
    pub begun_ms: u64,
    /// The request's cache directives.
    pub asked: RequestDirectives,
    /// The store that receives the response.
    pub store: Arc<SharedStore>,
    /// The table of calls in flight.
    pub makings: Arc<InFlightTable<OutcomeWaiter>>,
    /// The route that the request belongs to.
    pub route: Arc<Route>,
    /// The site, for its header rules.
    pub rules: Arc<SiteRules>,
    /// Runs the transfer of the body into the store.
    pub executor: ResponseExecutor,
    /// The reason for the call, for Cache-Status.
    pub why: CacheResult,
    /// The origin has answered a single-range request with the whole.
    pub ignores_range: bool,
    /// The stored parts, if the request asks for the one missing range.
    pub completes: Option<ObjectArc>,
}

/// The head of a response before its body is stored.
struct PendingHead {
    built: EncodedHead,
    about: HeadDetails,
}

/// Properties that are not in the encoded head.
struct HeadDetails {
    modified_s: Option<u64>,
    lifetime: StoredExpiry,
    selecting: SelectingFields,
}

/// The terms under which a response is stored.
struct StorageTerms {
    decision: StorageDecision,
    /// The request fields that select the response.
    selecting: SelectingFields,
}

impl StoreRequest {
    /// Stores a response if it is storable. `path` is the decoded path and `lines` the field lines of its request. A
    /// streaming body starts to arrive only when this task yields, so followers can join with all of it.
    ///
    /// # Errors
    /// It must not be stored, or there is no room: the response.
    #[expect(
        clippy::result_large_err,
        reason = "it goes on at once, and a box is an allocation a call"
    )]
    pub fn store(
        mut self,
        mut reply: HandlerReply,
        path: &[u8],
        lines: &[u8],
    ) -> Result<StoredResponse, HandlerReply> {
        let is_part = reply.response.status == StatusCode::PARTIAL_CONTENT;
        if is_part && reply.response.made_from.is_some() {
            return Err(reply);
        }
        if is_part && !self.completed(&mut reply) {
            return Err(parts::keep(self, reply, path, lines));
        }
        // An origin that does not take ranges sends all (RFC 9110 §14.2).
        let is_whole_for_part = self.key.wants == RequestedPart::Part
            && self.route.is_origin
            && reply.response.status == StatusCode::OK;
        if is_whole_for_part {
            self.key = self.key.without_range();
        }
        // The client gets a longer body directly, without a copy in the store.
        if !self.key.is_whole() || !is_short(&reply.response.content, self.body_len_max()) {
            return Err(reply);
        }
        let judge = self.judge();
        let mut judged = match judge.lifetime(reply.response.status, &reply.response.fields) {
            Ok(judged) => judged,
            Err(why) => {
                // For `explain`: the reason is not visible in the store later.
                self.store.refusals.record(self.key.hash, why);
                return Err(reply);
            }
        };
        if let Some(name) = &reply.response.made_from {
            judged.lifetime = judged.lifetime.tagged(name);
        }
        let Some(selecting) = judge.selecting(&reply.response.fields, lines) else {
            return Err(reply);
        };
        self.ignores_range = is_whole_for_part && is_plain_range(lines);
        let own = own_fields(&reply.response.fields, &judged.left_out);
        let HandlerResponse { status, fields, .. } = &reply.response;
        let head = self.head(
            *status,
            fields,
            path,
            StorageTerms {
                decision: judged,
                selecting,
            },
        );
        match &mut reply.response.content {
            Made::Bytes(body) => {
                let for_disk = self.for_disk(&head);
                let parts = std::slice::from_ref(body);
                let Some(object) = whole(&self.store, self.under(), head, parts) else {
                    return Err(reply);
                };
                let object = ObjectArc::new(object);
                let is_kept = self.insert(object.clone());
                self.copy_to_disk(for_disk, body);
                Ok(StoredResponse {
                    own,
                    is_kept,
                    why: self.why,
                    ..StoredResponse::from_object(&object, HitKind::Made)
                })
            }
            Made::Stream { len, stream } => {
                let (unused, rest) = lowroad_engine::stream::stream(0);
                // Ends the stream that replaces the body: it is never read.
                drop(unused);
                let (len, from) = (*len, std::mem::replace(stream, rest));
                Ok(StoredResponse {
                    own,
                    ..self.fill(head, len, from)
                })
            }
            Made::Stored(_) | Made::Upgrade(_) | Made::Local(_) => Err(reply),
        }
    }

    /// Stores a response again that its origin has validated, with the updated fields. `None`: it must not be stored
    /// any more.
    pub fn renew(
        &self,
        representation: &Representation,
        fields: &ResponseFields,
        request: RequestLines<'_>,
    ) -> Option<ObjectArc> {
        let status = representation.head.status();
        // Vary may name other fields than before; the values are those of this request.
        let judge = self.judge();
        let selecting = judge.selecting(fields, request.lines)?;
        let StorageDecision { lifetime, left_out } = judge.lifetime(status, fields).ok()?;
        let rules = SiteFields::new(&self.rules, request.path, status);
        let head = PendingHead {
            built: stored_heads::write_head(status, fields, &left_out, &rules),
            about: HeadDetails {
                modified_s: representation.modified.get(),
                lifetime,
                selecting,
            },
        };
        let for_disk = self.for_disk(&head);
        let object = ObjectArc::new(with_body_of(
            &self.store,
            self.under(),
            head,
            representation,
        )?);
        self.insert(object.clone());
        self.renew_on_disk(for_disk, &object);
        Some(object)
    }

    /// The key's bytes and hash.
    fn under(&self) -> HashedKey<'_> {
        HashedKey {
            hash: self.key.hash,
            bytes: &self.key.bytes,
        }
    }

    fn judge(&self) -> ReuseJudge<'_> {
        ReuseJudge {
            policy: &self.route.policy,
            asked: &self.asked,
            begun_ms: self.begun_ms,
            now_ms: clock::now_ms(),
            purges: self.purges,
        }
    }

    fn head(
        &self,
        status: StatusCode,
        fields: &ResponseFields,
        path: &[u8],
        terms: StorageTerms,
    ) -> PendingHead {
        let rules = SiteFields::new(&self.rules, path, status);
        // Without Last-Modified, conditions compare with Date (RFC 9111 §4.3.2).
        let date = fields.date().map(|date| &date[..]);
        let modified = fields.values("Last-Modified").next().or(date);
        let now_s = (clock::unix_ns() / 1_000_000_000) as u64;
        PendingHead {
            built: stored_heads::write_head(status, fields, &terms.decision.left_out, &rules),
            about: HeadDetails {
                modified_s: modified.and_then(|value| date::parse(value, now_s)),
                lifetime: terms.decision.lifetime,
                selecting: terms.selecting,
            },
        }
    }

    /// Deletes a response that must not be stored any more, unless only this request's directives forbid it.
    pub fn forget(&self, stale: &ObjectArc) {
        let CacheKey { hash, bytes, .. } = &self.key;
        // Else any client could delete responses of others with a field.
        if !self.asked.no_store && !self.asked.is_authorized {
            self.forget_on_disk();
            self.store.remove(*hash, bytes, stale);
        }
    }

    /// Inserts an object, unless it was purged in the meantime or is too large; returns whether it was stored.
    /// Followers get it in any case.
    fn insert(&self, object: ObjectArc) -> bool {
        let CacheKey { hash, bytes, .. } = &self.key;
        let is_kept = self.store.insert_selected(*hash, bytes, object);
        if is_kept {
            // Equal requests may wait for each other again.
            self.makings.mark(*hash, true);
            if self.ignores_range {
                self.makings.mark(self.key.part_mark(), true);
            }
            self.route.begin_storing();
        }
        is_kept
    }

    /// Stores a response with an arriving body, and starts the transfer.
    fn fill(self, head: PendingHead, len: Option<u64>, from: BodyReceiver) -> StoredResponse {
        let for_disk = self.for_disk(&head);
        let PendingHead { built, about } = head;
        let head = StreamedHead {
            bytes: built.text.into(),
            map: built.map,
            modified_s: about.modified_s,
            len,
            selecting: about.selecting,
        };
        let filling = StreamingObject::new(head, self.store.body_len_max(), clock::now_ms());
        let object = ObjectArc::new(StoredObject {
            // Outside the arena until the body is whole.
            kind: ObjectKind::Filling(Box::new(filling), self.key.bytes[..].into()),
            validity: ObjectValidity::Lifetime(about.lifetime),
        });
        let is_kept = self.insert(object.clone());
        let has_room = len.is_none_or(|len| len <= self.store.object_len_max());
        let mut stored = StoredResponse {
            is_kept: is_kept && has_room,
            why: self.why,
            ..StoredResponse::from_object(&object, HitKind::Made)
        };
        let executor = self.executor.clone();
        let mut fill = CacheFill {
            held: self.hold(&object),
            storing: self,
            object,
            for_disk,
            ended: StreamItem::Cut,
        };
        if !has_room {
            stored.is_kept = is_kept && fill.go_on_disk(Vec::new());
        }
        // Independent of this request: followers may read after its client has gone.
        executor.spawn(fill.run(from));
        stored
    }
}

/// Builds a complete object, if there is room.
fn whole(
    store: &SharedStore,
    under: HashedKey<'_>,
    head: PendingHead,
    parts: &[Bytes],
) -> Option<StoredObject> {
    let len: usize = parts.iter().map(Bytes::len).sum();
    let copy = |mut into: &mut [u8]| {
        for part in parts {
            let (here, rest) = into.split_at_mut(part.len());
            here.copy_from_slice(part);
            into = rest;
        }
        Ok(())
    };
    let mut built = head.built;
    // The stored head always has the length, even if the handler's response was chunked.
    built.map.set_length(&mut built.text, len as u64);
    let placed = placement::in_memory(store, under, built, len, copy).ok()?;
    Some(complete_object(placed, len as u64, head.about))
}

/// Builds a complete object with a new head and the body of a stored one.
fn with_body_of(
    store: &SharedStore,
    under: HashedKey<'_>,
    head: PendingHead,
    representation: &Representation,
) -> Option<StoredObject> {
    // Inline bodies share their block with the old head, so they are copied.
    let Some(content) = representation.content().elsewhere() else {
        let len = usize::try_from(representation.len()).ok()?;
        let body = Bytes::copy_from_slice(representation.body(0..len)?);
        return whole(store, under, head, &[body]);
    };
    let mut built = head.built;
    let len = representation.len();
    built.map.set_length(&mut built.text, len);
    let placed = placement::head_alone(store, under, built, content).ok()?;
    Some(complete_object(placed, len, head.about))
}

/// Builds the object of a handler's response.
fn complete_object(placed: PlacedResponse, len: u64, about: HeadDetails) -> StoredObject {
    // Handlers choose the content coding themselves, so the coding here is identity.
    let representation = Representation::new(placed, len, about.modified_s, about.selecting);
    StoredObject {
        kind: ObjectKind::Representation(representation),
        validity: ObjectValidity::Lifetime(about.lifetime),
    }
}

/// The fields that are not stored.
fn own_fields(fields: &ResponseFields, left_out: &FieldNames) -> Option<Box<ResponseFields>> {
    let own: ResponseFields = fields
        .iter()
        .filter(|(name, _)| left_out.has(name.as_bytes()))
        .collect();
    (!own.is_empty()).then(|| Box::new(own))
}

/// Whether a body may be within the limit.
fn is_short(content: &Made, len_max: u64) -> bool {
    match content {
        Made::Bytes(body) => body.len() as u64 <= len_max,
        Made::Stream { len, .. } => len.is_none_or(|len| len <= len_max),
        Made::Stored(_) | Made::Upgrade(_) | Made::Local(_) => false,
    }
}

#[cfg(test)]
mod tests;
