//! Stores the responses of handlers: immediately, or while the body arrives. `reuse` decides which responses are
//! storable.

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
use lowroad_routes::cache_rules::CacheRuleSet;
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

/// A stored response to be sent to one of the requests that wait for it.
pub struct StoredResponse {
    /// The object; its body may still be arriving.
    pub object: ObjectArc,
    /// The reader of an arriving body.
    pub body: Option<SharedBodyReader>,
    /// The kind of hit.
    pub hit_kind: HitKind,
    /// Why the handler was called, if it was; for Cache-Status.
    pub reason: CacheResult,
    /// Fields of the response that are sent to this client but not stored (RFC 9111 §5.2.2.4, §5.2.2.7).
    pub client_fields: Option<Box<ResponseFields>>,
    /// The object is in the store: it was not too large, and was not purged in the meantime.
    pub is_stored: bool,
}

/// Where a stored response for a request came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HitKind {
    /// The store had the response.
    Hit,
    /// The handler was called for this request.
    Fetched,
    /// The handler was called for an equal request (request coalescing).
    Coalesced,
    /// The store had the response, and the origin validated it.
    Validated,
    /// The store had the response, stale, and the origin failed.
    StaleIfError,
}

impl HitKind {
    /// Whether the response was fetched or validated for this very request, so that its selecting fields match.
    pub fn is_for_request(self) -> bool {
        self != HitKind::Coalesced
    }
}

impl StoredResponse {
    /// Creates a response from an object in the store.
    pub fn from_object(object: &ObjectArc, hit_kind: HitKind) -> StoredResponse {
        let body = match &object.kind {
            ObjectKind::Streaming(streaming, _) => streaming.add_reader(),
            _ => None,
        };
        StoredResponse {
            object: object.clone(),
            body,
            hit_kind,
            reason: CacheResult::UriMiss,
            client_fields: None,
            is_stored: true,
        }
    }

    /// Whether followers may use the response: it needs no validation for each request, or the origin failed.
    pub fn can_serve_followers(&self) -> bool {
        let lifetime = self.object.validity.lifetime();
        self.hit_kind == HitKind::StaleIfError
            || lifetime.is_none_or(|lifetime| lifetime.was_reusable_on_arrival())
    }

    /// A copy of the response for a follower.
    pub fn for_follower(&self) -> StoredResponse {
        StoredResponse {
            is_stored: self.is_stored,
            reason: self.reason,
            ..StoredResponse::from_object(&self.object, HitKind::Coalesced)
        }
    }

    /// Returns the response if it can begin now. If its body is stalled, the waiter gets the response when more bytes
    /// arrive, or must call the handler itself. For the leader, the response is always returned.
    pub fn unless_stalled(
        mut self,
        waiter: impl FnOnce() -> OutcomeWaiter,
    ) -> Option<StoredResponse> {
        let object = self.object.clone();
        let ObjectKind::Streaming(streaming, _) = &object.kind else {
            return Some(self);
        };
        let can_join = matches!(self.hit_kind, HitKind::Hit | HitKind::Coalesced);
        if let Some(body) = self.body.take_if(|_| can_join) {
            let (body_less, waiter) = (self.without_body(), waiter());
            let callback = Box::new(move |body: Option<SharedBodyReader>| {
                let outcome = match body {
                    None => HandlerOutcome::NotShareable,
                    body => HandlerOutcome::Stored(StoredResponse { body, ..body_less }),
                };
                waiter.wake(outcome);
            });
            self.body = Some(streaming.wait(body, clock::now_ms(), callback)?);
        }
        Some(self)
    }

    /// A copy without the body, and without the fields for one client.
    fn without_body(&self) -> StoredResponse {
        StoredResponse {
            object: self.object.clone(),
            body: None,
            client_fields: None,
            ..*self
        }
    }
}

/// All that is needed to store the response to a request.
pub struct StoreRequest {
    /// The key under which the response is stored.
    pub key: CacheKey,
    /// The purge epoch before the handler was called.
    pub purges: PurgeEpoch,
    /// The time of the call, monotonic ms.
    pub request_time_ms: u64,
    /// The request's cache directives.
    pub directives: RequestDirectives,
    /// The rules of the route's cache that may apply.
    pub cache_rules: CacheRuleSet,
    /// The store that receives the response.
    pub store: Arc<SharedStore>,
    /// The table of calls in flight.
    pub in_flight: Arc<InFlightTable<OutcomeWaiter>>,
    /// The route that the request belongs to.
    pub route: Arc<Route>,
    /// The site, for its header rules.
    pub rules: Arc<SiteRules>,
    /// Runs the transfer of the body into the store.
    pub executor: ResponseExecutor,
    /// The reason for the call, for Cache-Status.
    pub reason: CacheResult,
    /// The origin has sent the whole representation in response to a single-range request.
    pub ignores_range: bool,
    /// The stored parts, if the request to the origin is for the one missing range.
    pub partial_object: Option<ObjectArc>,
}

/// The head of a response with a body that is not stored yet.
struct PendingHead {
    encoded: EncodedHead,
    details: HeadDetails,
}

/// Properties of the response that are not in the encoded head.
struct HeadDetails {
    modified_s: Option<u64>,
    lifetime: StoredExpiry,
    selecting: SelectingFields,
}

/// The decision to store a response, with the parameters.
struct StorageTerms {
    decision: StorageDecision,
    /// The selecting fields (Vary).
    selecting: SelectingFields,
}

impl StoreRequest {
    /// Stores a response if it is storable. `path` is the decoded path and `lines` the field lines of its request. The
    /// transfer of a streaming body starts only when this task yields, so that followers can join before the first
    /// byte.
    ///
    /// # Errors
    /// Returns the response if it must not be stored, or there is no room.
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
        if is_part && reply.response.source.is_some() {
            return Err(reply);
        }
        if is_part && !self.complete_parts(&mut reply) {
            return Err(parts::store_passing_part(self, reply, path, lines));
        }
        // An origin that ignores Range sends the whole representation (RFC 9110 §14.2).
        let is_full_response = self.key.requested_part == RequestedPart::Part
            && self.route.is_origin
            && reply.response.status == StatusCode::OK;
        if is_full_response {
            self.key = self.key.without_range();
        }
        // A longer body is forwarded to the client without being stored.
        if !self.key.is_whole() || !is_short(&reply.response.content, self.body_len_max()) {
            return Err(reply);
        }
        let judge = self.reuse_judge();
        let mut decision = match judge.lifetime(reply.response.status, &reply.response.fields) {
            Ok(decision) => decision,
            Err(reason) => {
                // Recorded for `lowroad explain`.
                self.store.unstored_reasons.record(self.key.hash, reason);
                return Err(reply);
            }
        };
        if let Some(name) = &reply.response.source {
            decision.lifetime = decision.lifetime.with_tag(name);
        }
        let Some(selecting) = judge.selecting(&reply.response.fields, lines) else {
            return Err(reply);
        };
        self.ignores_range = is_full_response && is_plain_range(lines);
        let client_fields = client_only_fields(&reply.response.fields, &decision.excluded_fields);
        let HandlerResponse { status, fields, .. } = &reply.response;
        let head = self.head(
            *status,
            fields,
            path,
            StorageTerms {
                decision,
                selecting,
            },
        );
        match &mut reply.response.content {
            Made::Bytes(body) => {
                let disk_copy = self.disk_copy(&head);
                let parts = std::slice::from_ref(body);
                let Some(object) = build_whole(&self.store, self.hashed_key(), head, parts) else {
                    return Err(reply);
                };
                let object = ObjectArc::new(object);
                let is_stored = self.insert(object.clone());
                self.copy_to_disk(disk_copy, body);
                Ok(StoredResponse {
                    client_fields,
                    is_stored,
                    reason: self.reason,
                    ..StoredResponse::from_object(&object, HitKind::Fetched)
                })
            }
            Made::Stream { len, stream } => {
                let (unused, replacement) = lowroad_engine::stream::stream(0);
                // Drops the sender of the stream that replaces the body; that stream is never read.
                drop(unused);
                let (len, receiver) = (*len, std::mem::replace(stream, replacement));
                Ok(StoredResponse {
                    client_fields,
                    ..self.start_transfer(head, len, receiver)
                })
            }
            Made::Stored(_) | Made::Upgrade(_) | Made::LocalRedirect(_) => Err(reply),
        }
    }

    /// Replaces a stored response, which the origin has validated, by one with freshened fields. `None` if the response
    /// must no longer be stored.
    pub fn renew(
        &self,
        representation: &Representation,
        fields: &ResponseFields,
        request: RequestLines<'_>,
    ) -> Option<ObjectArc> {
        let status = representation.head.status();
        // The selecting fields are taken from this request, since Vary may have changed.
        let judge = self.reuse_judge();
        let selecting = judge.selecting(fields, request.lines)?;
        let StorageDecision {
            lifetime,
            excluded_fields,
        } = judge.lifetime(status, fields).ok()?;
        let rules = SiteFields::new(&self.rules, request.path, status);
        let head = PendingHead {
            encoded: stored_heads::write_head(status, fields, &excluded_fields, &rules),
            details: HeadDetails {
                modified_s: representation.modified.get(),
                lifetime,
                selecting,
            },
        };
        let disk_copy = self.disk_copy(&head);
        let object = ObjectArc::new(with_body_of(
            &self.store,
            self.hashed_key(),
            head,
            representation,
        )?);
        self.insert(object.clone());
        self.renew_on_disk(disk_copy, &object);
        Some(object)
    }

    /// The key's bytes and hash.
    fn hashed_key(&self) -> HashedKey<'_> {
        HashedKey {
            hash: self.key.hash,
            bytes: &self.key.bytes,
        }
    }

    fn reuse_judge(&self) -> ReuseJudge<'_> {
        ReuseJudge {
            policy: &self.route.policy,
            rules: &self.route.cache_rules,
            rule_set: self.cache_rules,
            directives: &self.directives,
            request_time_ms: self.request_time_ms,
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
        // Without Last-Modified, If-Modified-Since is compared with Date (RFC 9111 §4.3.2).
        let date = fields.date().map(|date| &date[..]);
        let modified = fields.values("Last-Modified").next().or(date);
        let now_s = (clock::unix_ns() / 1_000_000_000) as u64;
        PendingHead {
            encoded: stored_heads::write_head(
                status,
                fields,
                &terms.decision.excluded_fields,
                &rules,
            ),
            details: HeadDetails {
                modified_s: modified.and_then(|value| date::parse(value, now_s)),
                lifetime: terms.decision.lifetime,
                selecting: terms.selecting,
            },
        }
    }

    /// Deletes a response that must no longer be stored, unless it is this request that forbids storing.
    pub fn delete(&self, stale: &ObjectArc) {
        let CacheKey { hash, bytes, .. } = &self.key;
        // Otherwise any client could delete stored responses by sending `no-store` or Authorization.
        if !self.directives.no_store && !self.directives.is_authorized {
            self.delete_on_disk();
            self.store.remove(*hash, bytes, stale);
        }
    }

    /// Inserts an object into the store, unless it was purged in the meantime or is too large; returns whether it was
    /// stored. Followers get the response in any case.
    fn insert(&self, object: ObjectArc) -> bool {
        let CacheKey { hash, bytes, .. } = &self.key;
        let is_stored = self.store.insert_selected(*hash, bytes, object);
        if is_stored {
            // From now on, equal requests are coalesced again.
            self.in_flight.record_sharing(*hash, true);
            if self.ignores_range {
                self.in_flight.record_sharing(self.key.part_mark(), true);
            }
            self.route.begin_storing();
        }
        is_stored
    }

    /// Stores a response with an arriving body, and starts the transfer.
    fn start_transfer(
        self,
        head: PendingHead,
        len: Option<u64>,
        receiver: BodyReceiver,
    ) -> StoredResponse {
        let disk_copy = self.disk_copy(&head);
        let PendingHead { encoded, details } = head;
        let head = StreamedHead {
            bytes: encoded.text.into(),
            map: encoded.map,
            modified_s: details.modified_s,
            len,
            selecting: details.selecting,
        };
        let streaming = StreamingObject::new(head, self.store.body_len_max(), clock::now_ms());
        let object = ObjectArc::new(StoredObject {
            // The bytes are not in the arena until the body is complete.
            kind: ObjectKind::Streaming(Box::new(streaming), self.key.bytes[..].into()),
            validity: ObjectValidity::Lifetime(details.lifetime),
        });
        let is_stored = self.insert(object.clone());
        let has_room = len.is_none_or(|len| len <= self.store.object_len_max());
        let mut stored = StoredResponse {
            is_stored: is_stored && has_room,
            reason: self.reason,
            ..StoredResponse::from_object(&object, HitKind::Fetched)
        };
        let executor = self.executor.clone();
        let mut fill = CacheFill {
            pending_write: self.hold_in_memory(&object),
            store_request: self,
            object,
            disk_copy,
            ending: StreamItem::Cut,
        };
        if !has_room {
            stored.is_stored = is_stored && fill.continue_on_disk(Vec::new());
        }
        // The transfer runs in a separate task, since followers may still read after this request's client has
        // disconnected.
        executor.spawn(fill.run(receiver));
        stored
    }
}

/// Builds an object with a complete body, if there is room.
fn build_whole(
    store: &SharedStore,
    hashed_key: HashedKey<'_>,
    head: PendingHead,
    parts: &[Bytes],
) -> Option<StoredObject> {
    let len: usize = parts.iter().map(Bytes::len).sum();
    let copy = |mut buffer: &mut [u8]| {
        for part in parts {
            let (target, rest) = buffer.split_at_mut(part.len());
            target.copy_from_slice(part);
            buffer = rest;
        }
        Ok(())
    };
    let mut encoded = head.encoded;
    // The stored head always has Content-Length, even if the handler's response was chunked.
    encoded.map.set_length(&mut encoded.text, len as u64);
    let placed = placement::place_response(store, hashed_key, encoded, len, copy).ok()?;
    Some(complete_object(placed, len as u64, head.details))
}

/// Builds an object with a new head and the body of a stored one.
fn with_body_of(
    store: &SharedStore,
    hashed_key: HashedKey<'_>,
    head: PendingHead,
    representation: &Representation,
) -> Option<StoredObject> {
    // An inline body is in the same block as the old head, so it is copied.
    let Some(content) = representation.content().clone_separate() else {
        let len = usize::try_from(representation.len()).ok()?;
        let body = Bytes::copy_from_slice(representation.body(0..len)?);
        return build_whole(store, hashed_key, head, &[body]);
    };
    let mut encoded = head.encoded;
    let len = representation.len();
    encoded.map.set_length(&mut encoded.text, len);
    let placed = placement::place_head(store, hashed_key, encoded, content).ok()?;
    Some(complete_object(placed, len, head.details))
}

/// Builds the object of a handler's response.
fn complete_object(placed: PlacedResponse, len: u64, details: HeadDetails) -> StoredObject {
    // Handlers choose the content coding themselves, so the coding here is identity.
    let representation = Representation::new(placed, len, details.modified_s, details.selecting);
    StoredObject {
        kind: ObjectKind::Representation(representation),
        validity: ObjectValidity::Lifetime(details.lifetime),
    }
}

/// The fields of a response that are not stored.
fn client_only_fields(
    fields: &ResponseFields,
    excluded_fields: &FieldNames,
) -> Option<Box<ResponseFields>> {
    let client_fields: ResponseFields = fields
        .iter()
        .filter(|(name, _)| excluded_fields.contains(name.as_bytes()))
        .collect();
    (!client_fields.is_empty()).then(|| Box::new(client_fields))
}

/// Whether the length of a body is within the limit, or unknown.
fn is_short(content: &Made, len_max: u64) -> bool {
    match content {
        Made::Bytes(body) => body.len() as u64 <= len_max,
        Made::Stream { len, .. } => len.is_none_or(|len| len <= len_max),
        Made::Stored(_) | Made::Upgrade(_) | Made::LocalRedirect(_) => false,
    }
}

#[cfg(test)]
mod tests;
