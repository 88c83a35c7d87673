//! Stores handlers' responses: at once, or while the body arrives. `reuse` decides which responses are storable.

use std::sync::Arc;

use bytes::Bytes;
use lowroad_cache::cache_status::Answered;
use lowroad_cache::request::Asked;
use lowroad_cache::vary::Selecting;
use lowroad_engine::growing::Reader;
use lowroad_engine::stream::{Next, Receiver};
use lowroad_handler::executor::Executor;
use lowroad_handler::{Content as Made, Fields, Response};
use lowroad_http::date;
use lowroad_http::encoded::Encoded;
use lowroad_http::fields::FieldNames;
use lowroad_http::status::Status;
use lowroad_routes::routes::Route;
use lowroad_site_rules::{SiteFields, SiteRules};
use lowroad_store::clock;
use lowroad_store::filling::Filling;
use lowroad_store::makings::Makings;
use lowroad_store::object::{Kind, Placed, Representation};
use lowroad_store::place;
use lowroad_store::seen::Since;
use lowroad_store::validity::{Lifetime, Validity};
use lowroad_store::{Object, ObjectArc, SharedStore};

use crate::heads;
use crate::outcome::{Outcome, Waiter};
use crate::reply::Reply;
use crate::reuse::{Judge, Judged, Key, Wants, is_plain_range};

mod fill;
mod on_disk;
mod parts;

use fill::Fill;

/// A stored response for one of the requests that wait for it.
pub struct Stored {
    /// The object; its body may still be arriving.
    pub object: ObjectArc,
    /// The reader of an arriving body.
    pub body: Option<Reader>,
    /// The kind of hit.
    pub way: Way,
    /// The reason for the handler's call, if there was one.
    pub why: Answered,
    /// Fields of the response that are for this client only (RFC 9111 §5.2.2.4, §5.2.2.7).
    pub own: Option<Box<Fields>>,
    /// The store accepted it: it is not too large and was not purged in the meantime.
    pub is_kept: bool,
}

/// The source of a stored response for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
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

impl Way {
    /// Whether the response is for this request, so that its selecting fields need no comparison.
    pub fn is_own(self) -> bool {
        self != Way::Shared
    }
}

impl Stored {
    /// Creates it from an object in the store.
    pub fn of_store(object: &ObjectArc, way: Way) -> Stored {
        let body = match &object.kind {
            Kind::Filling(filling, _) => filling.read(),
            _ => None,
        };
        Stored {
            object: object.clone(),
            body,
            way,
            why: Answered::UriMiss,
            own: None,
            is_kept: true,
        }
    }

    /// Whether followers may use it: no validation per request is required, or the origin failed.
    pub fn is_for_others(&self) -> bool {
        let lifetime = self.object.validity.lifetime();
        self.way == Way::OnError || lifetime.is_none_or(|lifetime| lifetime.was_useful())
    }

    /// The same response for a follower.
    pub fn for_other(&self) -> Stored {
        Stored {
            is_kept: self.is_kept,
            why: self.why,
            ..Stored::of_store(&self.object, Way::Shared)
        }
    }

    /// Returns the response if its body has begun or is whole. Otherwise the waiter gets it once the body begins, or
    /// is told to call the handler itself. The leader always gets it back.
    pub fn unless_quiet(mut self, waiter: impl FnOnce() -> Waiter) -> Option<Stored> {
        let object = self.object.clone();
        let Kind::Filling(filling, _) = &object.kind else {
            return Some(self);
        };
        let joins = matches!(self.way, Way::Hit | Way::Shared);
        if let Some(body) = self.body.take_if(|_| joins) {
            let (later, waiter) = (self.without_body(), waiter());
            let tell = Box::new(move |body: Option<Reader>| {
                let outcome = match body {
                    None => Outcome::Alone,
                    body => Outcome::Stored(Stored { body, ..later }),
                };
                waiter.wake(outcome);
            });
            self.body = Some(filling.wait(body, clock::now_ms(), tell)?);
        }
        Some(self)
    }

    /// The response for when its body begins, without the fields for one client.
    fn without_body(&self) -> Stored {
        Stored {
            object: self.object.clone(),
            body: None,
            own: None,
            ..*self
        }
    }
}

/// Stores the response to one request.
pub struct Storing {
    pub key: Key,
    /// The purge epoch before the handler was called.
    pub purges: Since,
    /// The time of the call, monotonic ms.
    pub begun_ms: u64,
    /// The request's cache directives.
    pub asked: Asked,
    pub store: Arc<SharedStore>,
    /// The table of calls in flight.
    pub makings: Arc<Makings<Waiter>>,
    pub route: Arc<Route>,
    /// The site, for its header rules.
    pub rules: Arc<SiteRules>,
    /// Runs the transfer of the body into the store.
    pub executor: Executor,
    /// The reason for the call, for Cache-Status.
    pub why: Answered,
    /// The origin has answered a single-range request with the whole.
    pub ignores_range: bool,
    /// The stored parts, if the request asks for the one missing range.
    pub completes: Option<ObjectArc>,
}

/// The head of a response before its body is stored.
struct Head {
    built: (Vec<u8>, Encoded),
    about: About,
}

/// Properties that are not in the encoded head.
struct About {
    modified_s: Option<u64>,
    lifetime: Lifetime,
    selecting: Selecting,
}

impl Storing {
    /// Stores a response if it is storable. `path` is the decoded path and `lines` the field lines of its request. A
    /// streaming body starts to arrive only when this task yields, so followers can join with all of it.
    ///
    /// # Errors
    /// It must not be stored, or there is no room: the response.
    #[expect(
        clippy::result_large_err,
        reason = "it goes on at once, and a box is an allocation a call"
    )]
    pub fn store(mut self, mut reply: Reply, path: &[u8], lines: &[u8]) -> Result<Stored, Reply> {
        let is_part = reply.response.status == Status::PARTIAL_CONTENT;
        if is_part && reply.response.made_from.is_some() {
            return Err(reply);
        }
        if is_part && !self.completed(&mut reply) {
            return Err(parts::keep(self, reply, path, lines));
        }
        // An origin that does not take ranges sends all (RFC 9110 §14.2).
        let is_whole_for_part = self.key.wants == Wants::Part
            && self.route.is_origin
            && reply.response.status == Status::OK;
        if is_whole_for_part {
            self.key = self.key.of_whole();
        }
        if !self.key.is_whole() || !is_short(&reply.response.content, self.body_len_max()) {
            return Err(reply);
        }
        let judge = self.judge();
        let mut judged = match judge.lifetime(reply.response.status, &reply.response.fields) {
            Ok(judged) => judged,
            Err(why) => {
                self.store.refusals.note(self.key.hash, why);
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
        let judged = (judged, selecting);
        let own = own_fields(&reply.response.fields, &judged.0.left_out);
        let Response { status, fields, .. } = &reply.response;
        let head = self.head((*status, fields), path, judged);
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
                Ok(Stored {
                    own,
                    is_kept,
                    why: self.why,
                    ..Stored::of_store(&object, Way::Made)
                })
            }
            Made::Stream { len, stream } => {
                let (unused, rest) = lowroad_engine::stream::stream(0);
                drop(unused);
                let (len, from) = (*len, std::mem::replace(stream, rest));
                Ok(Stored {
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
        fields: &Fields,
        (path, lines): (&[u8], &[u8]),
    ) -> Option<ObjectArc> {
        let status = representation.head.status();
        // Vary may name other fields than before; the values are those of this request.
        let judge = self.judge();
        let selecting = judge.selecting(fields, lines)?;
        let Judged { lifetime, left_out } = judge.lifetime(status, fields).ok()?;
        let rules = SiteFields::new(&self.rules, path, status);
        let head = Head {
            built: heads::of_program(status, fields, &left_out, &rules),
            about: About {
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

    /// Hash and bytes of the key.
    fn under(&self) -> (u64, &[u8]) {
        (self.key.hash, &self.key.bytes)
    }

    fn judge(&self) -> Judge<'_> {
        Judge {
            policy: &self.route.policy,
            asked: &self.asked,
            begun_ms: self.begun_ms,
            now_ms: clock::now_ms(),
            purges: self.purges,
        }
    }

    fn head(
        &self,
        (status, fields): (Status, &Fields),
        path: &[u8],
        (judged, selecting): (Judged, Selecting),
    ) -> Head {
        let rules = SiteFields::new(&self.rules, path, status);
        // Without Last-Modified, conditions compare with Date (RFC 9111 §4.3.2).
        let date = fields.date().map(|date| &date[..]);
        let modified = fields.values("Last-Modified").next().or(date);
        let now_s = (clock::unix_ns() / 1_000_000_000) as u64;
        Head {
            built: heads::of_program(status, fields, &judged.left_out, &rules),
            about: About {
                modified_s: modified.and_then(|value| date::parse(value, now_s)),
                lifetime: judged.lifetime,
                selecting,
            },
        }
    }

    /// Deletes a response that must not be stored any more, unless only this request's directives forbid it.
    pub fn forget(&self, stale: &ObjectArc) {
        let Key { hash, bytes, .. } = &self.key;
        if !self.asked.no_store && !self.asked.is_authorized {
            self.forget_on_disk();
            self.store.remove(*hash, bytes, stale);
        }
    }

    /// Inserts an object, unless it was purged in the meantime or is too large; returns whether it was stored.
    /// Followers get it in any case.
    fn insert(&self, object: ObjectArc) -> bool {
        let Key { hash, bytes, .. } = &self.key;
        let is_kept = self.store.insert_selected(*hash, bytes, object);
        if is_kept {
            self.makings.mark(*hash, true);
            if self.ignores_range {
                self.makings.mark(self.key.part_mark(), true);
            }
            self.route.begin_storing();
        }
        is_kept
    }

    /// Stores a response with an arriving body, and starts the transfer.
    fn fill(self, head: Head, len: Option<u64>, from: Receiver) -> Stored {
        let for_disk = self.for_disk(&head);
        let Head { built, about } = head;
        let filling = Filling::new(
            (built.0.into(), built.1),
            about.modified_s,
            len,
            about.selecting,
            self.store.body_len_max(),
            clock::now_ms(),
        );
        let object = ObjectArc::new(Object {
            // Outside the arena until the body is whole.
            kind: Kind::Filling(Box::new(filling), self.key.bytes[..].into()),
            validity: Validity::Lifetime(about.lifetime),
        });
        let is_kept = self.insert(object.clone());
        let has_room = len.is_none_or(|len| len <= self.store.object_len_max());
        let mut stored = Stored {
            is_kept: is_kept && has_room,
            why: self.why,
            ..Stored::of_store(&object, Way::Made)
        };
        let executor = self.executor.clone();
        let mut fill = Fill {
            held: self.hold(&object),
            storing: self,
            object,
            for_disk,
            ended: Next::Cut,
        };
        if !has_room {
            stored.is_kept = is_kept && fill.go_on_disk(Vec::new());
        }
        executor.spawn(fill.run(from));
        stored
    }
}

/// Builds a complete object, if there is room.
fn whole(store: &SharedStore, under: (u64, &[u8]), head: Head, parts: &[Bytes]) -> Option<Object> {
    let len: usize = parts.iter().map(Bytes::len).sum();
    let copy = |mut into: &mut [u8]| {
        for part in parts {
            let (here, rest) = into.split_at_mut(part.len());
            here.copy_from_slice(part);
            into = rest;
        }
        Ok(())
    };
    let (mut text, mut places) = head.built;
    places.set_length(&mut text, len as u64);
    let placed = place::in_memory(store, under, (text, places), len, copy).ok()?;
    Some(complete_object(placed, len as u64, head.about))
}

/// Builds a complete object with a new head and the body of a stored one.
fn with_body_of(
    store: &SharedStore,
    under: (u64, &[u8]),
    head: Head,
    representation: &Representation,
) -> Option<Object> {
    let Some(content) = representation.content().elsewhere() else {
        let len = usize::try_from(representation.len()).ok()?;
        let body = Bytes::copy_from_slice(representation.body(0..len)?);
        return whole(store, under, head, &[body]);
    };
    let (mut text, mut places) = head.built;
    let len = representation.len();
    places.set_length(&mut text, len);
    let placed = place::head_alone(store, under, (text, places), content).ok()?;
    Some(complete_object(placed, len, head.about))
}

/// Builds the object of a handler's response.
fn complete_object(placed: Placed, len: u64, about: About) -> Object {
    // Handlers choose the content coding themselves, so the coding here is identity.
    let representation = Representation::new(placed, len, about.modified_s, about.selecting);
    Object {
        kind: Kind::Representation(representation),
        validity: Validity::Lifetime(about.lifetime),
    }
}

/// The fields that are not stored.
fn own_fields(fields: &Fields, left_out: &FieldNames) -> Option<Box<Fields>> {
    let own: Fields = fields
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
