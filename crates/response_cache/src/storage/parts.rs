//! Storage of partial content (RFC 9111 §3.3, §3.4; RFC 9110 §15.3.7): each part is stored as it passes and combined
//! with stored parts of the same version; a response with the last missing range is completed with the stored parts.
//!
//! A part without a strong validator is stored alone and replaces other parts: it answers ranges within it and is never
//! combined.
//!
//! An origin may be wrong. A part is accepted only if it has the requested range and the announced length. If two
//! parts of one version differ in common bytes or in the length of the whole, only the last part stays.

use std::future::poll_fn;

use bytes::Bytes;
use lowroad_cache::partial_content::{ContentRange, PartSet};
use lowroad_cache::validation::StoredValidators;
use lowroad_cache::vary::SelectingFields;
use lowroad_engine::stream::{BodyReceiver, BodySender, StreamItem, stream};
use lowroad_handler::{ResponseContent as Made, ResponseFields};
use lowroad_http::fields::FieldLines;
use lowroad_http::h1::BodyLen;
use lowroad_http::range::ByteRange;
use lowroad_http::status::StatusCode;
use lowroad_store::object::{BodyLocation, ObjectKind, Representation};
use lowroad_store::partial_content::{ContentPiece, PartialContent, PieceList, range_of};
use lowroad_store::placement;
use lowroad_store::{ObjectArc, StoredObject};

use super::{StorageTerms, StoreRequest, build_whole, complete_object};
use crate::reply::HandlerReply;
use crate::reuse::RequestedPart;
use crate::validation::{RequestLines, merged, name_bytes, renew};

/// With more pieces, adjacent ones are joined; if too many remain, only the last part stays.
const PIECES_MAX: usize = 16;
/// The maximum number of bytes between the sender of a part and its receiver.
const WAITING_LEN_MAX: usize = 64 << 10;

/// A received part, with all data to store it.
struct ReceivedPart {
    range: ByteRange,
    /// The length of the whole.
    len: u64,
    /// The strong validator, if there is one.
    etag: Option<Box<[u8]>>,
    fields: ResponseFields,
    /// Decoded path and field lines of the request.
    path: Box<[u8]>,
    lines: Box<[u8]>,
    selecting: SelectingFields,
    /// The 206 may omit fields that the client already has (RFC 9110 §15.3.7).
    lacks_fields: bool,
}

/// Stores the part in a 206, if storable, once it has passed; the response itself is unchanged.
pub fn store_passing_part(
    store_request: StoreRequest,
    mut reply: HandlerReply,
    path: &[u8],
    lines: &[u8],
) -> HandlerReply {
    let Some(part) = ReceivedPart::from_reply(&store_request, &reply, path, lines) else {
        return reply;
    };
    match &mut reply.response.content {
        Made::Bytes(body) => part.add_to_store(&store_request, body),
        Made::Stream {
            stream: receiver, ..
        } => {
            let (sender, forwarded) = stream(WAITING_LEN_MAX);
            let passing_body = PassingBody {
                receiver: std::mem::replace(receiver, forwarded),
                sender,
            };
            store_request.executor.clone().spawn(forward_and_store(
                store_request,
                part,
                passing_body,
            ));
        }
        Made::Stored(_) | Made::Upgrade(_) | Made::Local(_) => {}
    }
    reply
}

async fn forward_and_store(
    store_request: StoreRequest,
    part: ReceivedPart,
    passing_body: PassingBody,
) {
    let len_max = part.range.end - part.range.start;
    let (mut collected, mut len) = (Some(Vec::new()), 0);
    let both_ends = passing_body
        .run(|bytes| {
            len += bytes.len() as u64;
            // The bytes count towards the memory of arriving bodies until the part is stored.
            let reserved = store_request.store.reserve_arriving(bytes.clone());
            match (&mut collected, reserved) {
                (Some(collected), Ok(reserved)) if len <= len_max => collected.push(reserved),
                _ => collected = None,
            }
        })
        .await;
    let (Some((receiver, sender)), Some(collected)) = (both_ends, collected) else {
        return;
    };
    // Stored before the end is sent: a client that has all of it finds it stored.
    part.add_to_store(&store_request, &collected.concat());
    sender.end_with(receiver.take_trailers());
}

/// A body that is forwarded.
struct PassingBody {
    receiver: BodyReceiver,
    sender: BodySender,
}

impl PassingBody {
    /// Forwards the whole body and shows it to `observe`; returns both ends if it was complete and still wanted.
    async fn run(self, mut observe: impl FnMut(&Bytes)) -> Option<(BodyReceiver, BodySender)> {
        let PassingBody { receiver, sender } = self;
        loop {
            // The client's pace bounds the memory.
            poll_fn(|context| sender.poll_room(context)).await.ok()?;
            let next = poll_fn(|context| match sender.poll_closed(context).is_ready() {
                true => std::task::Poll::Ready(StreamItem::Cut),
                false => receiver.poll_next(context),
            });
            match next.await {
                StreamItem::Bytes(bytes) => {
                    observe(&bytes);
                    sender.push(bytes).ok()?;
                }
                StreamItem::End => return Some((receiver, sender)),
                StreamItem::Cut => return None,
            }
        }
    }
}

impl StoreRequest {
    /// Whether the answer of an origin to a request for the one missing part is unusable: another part, 416, or the
    /// same version with another length. Then the stored parts are deleted, and the whole must be requested.
    pub fn is_unusable_part(&self, reply: &HandlerReply) -> bool {
        let Some(object) = &self.partial_object else {
            return false;
        };
        let is_unusable_part = match reply.status() {
            StatusCode::PARTIAL_CONTENT => completed_parts(object, reply).is_none(),
            StatusCode::RANGE_NOT_SATISFIABLE => true,
            StatusCode::OK => has_other_len(object, reply),
            _ => false,
        };
        if is_unusable_part {
            self.delete(object);
        }
        is_unusable_part
    }

    /// Turns a 206 with the missing part into a 200 with the stored parts; returns whether the part was the missing
    /// one.
    pub(super) fn complete_parts(&self, reply: &mut HandlerReply) -> bool {
        let object = self.partial_object.as_ref();
        let Some(partial) = object.and_then(|object| completed_parts(object, reply)) else {
            return false;
        };
        let response = &mut reply.response;
        response.status = StatusCode::OK;
        response.fields = without_range(&merged(&partial.representation, &response.fields));
        let gap_start = partial.gap().map_or(0, |gap| gap.start);
        let is_before = |piece: &&ContentPiece| piece.start < gap_start;
        // There is one gap, so all pieces are before or after it.
        let before = partial.pieces().iter().filter(is_before);
        let before: Vec<Bytes> = before.map(ContentPiece::bytes).collect();
        let after = partial.pieces().iter().filter(|piece| !is_before(piece));
        let after: Vec<Bytes> = after.map(ContentPiece::bytes).collect();
        match &mut response.content {
            Made::Bytes(body) => {
                let parts = before.iter().chain([&*body]).chain(&after);
                *body = parts.flat_map(|part| part.iter().copied()).collect();
            }
            Made::Stream {
                len,
                stream: receiver,
            } => {
                *len = Some(partial.representation.len());
                let (sender, combined) = stream(WAITING_LEN_MAX);
                let passing_body = PassingBody {
                    receiver: std::mem::replace(receiver, combined),
                    sender,
                };
                let len = partial.gap().map_or(0, |gap| gap.end - gap.start);
                self.executor
                    .spawn(send_joined(before, passing_body, len, after));
            }
            Made::Stored(_) | Made::Upgrade(_) | Made::Local(_) => {}
        }
        true
    }
}

/// Sends the bytes before a part, the part, which must have its length, and the bytes after it.
async fn send_joined(before: Vec<Bytes>, passing_body: PassingBody, len: u64, after: Vec<Bytes>) {
    if before
        .into_iter()
        .any(|part| passing_body.sender.push(part).is_err())
    {
        return;
    }
    let mut received_len = 0;
    let Some((_, sender)) = passing_body
        .run(|bytes| received_len += bytes.len() as u64)
        .await
    else {
        return;
    };
    // A shorter part must not be completed: the bytes after it would be at wrong places.
    if received_len == len && !after.into_iter().any(|part| sender.push(part).is_err()) {
        sender.end();
    }
}

/// The stored parts, if a response contains the missing one.
fn completed_parts<'o>(
    object: &'o StoredObject,
    reply: &HandlerReply,
) -> Option<&'o PartialContent> {
    let ObjectKind::Parts(partial) = &object.kind else {
        return None;
    };
    let gap = partial.gap()?;
    let fields = reply.response.fields.iter();
    let fields = fields.map(|(name, value)| (name.as_bytes(), value));
    let part = ContentRange::from_fields(range_of(gap).as_bytes(), fields)?;
    // A wrong part would damage the whole, so everything must agree.
    let is_missing_part = part.range == gap
        && part.len == partial.representation.len()
        && part.etag.is_some()
        && part.etag == strong_tag(&partial.representation)
        && has_len(reply, gap.end - gap.start);
    is_missing_part.then_some(partial)
}

/// Whether a response reports another length for the version that is stored in parts.
fn has_other_len(object: &StoredObject, reply: &HandlerReply) -> bool {
    let ObjectKind::Parts(partial) = &object.kind else {
        return false;
    };
    let response_validators = reply.response.fields.iter();
    let response_validators = StoredValidators::from_fields(
        response_validators.map(|(name, value)| (name.as_bytes(), value)),
    );
    // Another version is simply a new response.
    response_validators.etag == strong_tag(&partial.representation)
        && !has_len(reply, partial.representation.len())
}

/// Whether the body has this length, as far as it is known.
fn has_len(reply: &HandlerReply, len: u64) -> bool {
    match reply.len() {
        BodyLen::Known(actual) => actual == len,
        BodyLen::Unknown => true,
        BodyLen::None => false,
    }
}

fn strong_tag(representation: &Representation) -> Option<&[u8]> {
    let stored = representation.head.all(representation.bytes()).fields();
    let stored = stored.map(|(name, value)| (name_bytes(name), value));
    let tag = StoredValidators::from_fields(stored).etag;
    // Parts may be combined by a strong validator only (RFC 9110 §15.3.7.3).
    tag.filter(|tag| tag.starts_with(b"\""))
}

fn without_range(fields: &ResponseFields) -> ResponseFields {
    let is_range = |name: &str| name.eq_ignore_ascii_case("content-range");
    let retained = fields.iter().filter(|(name, _)| !is_range(name));
    let mut retained: ResponseFields = retained.collect();
    if let Some(date) = fields.date() {
        retained.set_date(*date);
    }
    retained
}

impl ReceivedPart {
    /// The part of a response, if it may be stored.
    fn from_reply(
        store_request: &StoreRequest,
        reply: &HandlerReply,
        path: &[u8],
        lines: &[u8],
    ) -> Option<ReceivedPart> {
        let response = &reply.response;
        if store_request.key.requested_part != RequestedPart::Part {
            return None;
        }
        let fields = response.fields.iter();
        let fields = fields.map(|(name, value)| (name.as_bytes(), value));
        let ContentRange { range, len, etag } =
            ContentRange::from_fields(values(lines, b"range").next()?, fields)?;
        let part_len = range.end - range.start;
        if !has_len(reply, part_len) || part_len > store_request.store.object_len_max() {
            return None;
        }
        let judge = store_request.judge();
        if let Err(reason) = judge.lifetime(response.status, &response.fields) {
            store_request
                .store
                .refusals
                .record(store_request.key.hash, reason);
            return None;
        }
        Some(ReceivedPart {
            range,
            len,
            etag: etag.map(Box::from),
            fields: without_range(&response.fields),
            path: path.into(),
            lines: lines.into(),
            selecting: judge.selecting(&response.fields, lines)?,
            lacks_fields: values(lines, b"if-range").next().is_some(),
        })
    }

    /// Stores the part, combined with the stored parts where possible.
    fn add_to_store(&self, store_request: &StoreRequest, body: &[u8]) {
        // The origin announced another length than it sent.
        if body.len() as u64 != self.range.end - self.range.start {
            return;
        }
        let key = &store_request.key;
        let entry = store_request.store.peek_valid(key.hash, &key.bytes);
        let is_same = |object: &&ObjectArc| object.selecting() == Some(&self.selecting);
        let stored = entry.as_ref().and_then(|it| it.variants().find(is_same));
        let Some(stored) = stored else {
            return self.begin(store_request, body);
        };
        match &stored.kind {
            ObjectKind::Representation(whole) => self.compare(store_request, stored, whole, body),
            ObjectKind::Parts(partial) if self.is_same_version(&partial.representation) => {
                self.join_partial(store_request, partial, body);
            }
            ObjectKind::Parts(_) => self.begin(store_request, body),
            _ => {}
        }
    }

    fn is_same_version(&self, stored: &Representation) -> bool {
        let etag = self.etag.as_deref();
        stored.len() == self.len && etag.is_some() && strong_tag(stored) == etag
    }

    /// If the whole is stored: a part of the same version validates it, a part of another version replaces it.
    fn compare(
        &self,
        store_request: &StoreRequest,
        stored: &ObjectArc,
        whole: &Representation,
        body: &[u8],
    ) {
        let (Some(tag), Some(etag)) = (strong_tag(whole), self.etag.as_deref()) else {
            return;
        };
        // Another version: the stored whole is outdated.
        if tag != etag {
            return self.begin(store_request, body);
        }
        let range = self.range.start as usize..self.range.end as usize;
        let is_consistent = whole.len() == self.len
            && whole.head.status() == StatusCode::OK
            && whole
                .body(range)
                .is_none_or(|stored_bytes| stored_bytes == body);
        let request = RequestLines {
            path: &self.path,
            lines: &self.lines,
        };
        if !is_consistent || renew(store_request, stored, &self.fields, request).is_none() {
            store_request.delete(stored);
        }
    }

    /// Stores the first part of a version.
    fn begin(&self, store_request: &StoreRequest, body: &[u8]) {
        // The first part supplies the stored head, which must be complete.
        if self.lacks_fields {
            return;
        }
        let parts = PartSet::with_part(self.len, self.range);
        let piece = placement::piece(&store_request.store, store_request.key.hash, body);
        let Some(block) = piece else {
            return;
        };
        let start = self.range.start;
        let object = self.object(
            store_request,
            &self.fields,
            vec![ContentPiece { start, block }],
            parts,
        );
        self.insert(store_request, object);
    }

    /// Adds a part to the stored version.
    fn join_partial(&self, store_request: &StoreRequest, partial: &PartialContent, body: &[u8]) {
        let Some((pieces, parts)) = self.combine(store_request, partial, body) else {
            return self.begin(store_request, body);
        };
        let fields = merged(&partial.representation, &self.fields);
        let object = self.object(store_request, &fields, pieces, parts);
        self.insert(store_request, object);
    }

    /// The combined pieces; `None`: they contradict each other, are too many or too long.
    fn combine(
        &self,
        store_request: &StoreRequest,
        partial: &PartialContent,
        body: &[u8],
    ) -> Option<(Vec<ContentPiece>, PartSet)> {
        let body_range = |range: ByteRange| {
            let body_offset = |position: u64| (position - self.range.start) as usize;
            body.get(body_offset(range.start)..body_offset(range.end))
        };
        for piece in partial.pieces() {
            if let Some(overlap) = piece.intersect(self.range) {
                let start = piece.start + overlap.start as u64;
                let end = piece.start + overlap.end as u64;
                // The same version with other bytes: the origin is wrong, so neither can be trusted.
                if body_range(ByteRange { start, end }) != piece.block.get(overlap) {
                    return None;
                }
            }
        }
        let (store, hash) = (&store_request.store, store_request.key.hash);
        let missing = partial.parts.missing_in(self.range);
        let old_len: usize = partial.pieces().iter().map(|it| it.block.len()).sum();
        let new_len: u64 = missing.iter().map(|gap| gap.end - gap.start).sum();
        // Beyond the limit, the whole could not be stored either.
        if old_len as u64 + new_len > store.object_len_max() {
            return None;
        }
        let mut pieces = partial.pieces().to_vec();
        for gap in missing {
            let block = placement::piece(store, hash, body_range(gap)?)?;
            let start = gap.start;
            pieces.push(ContentPiece { start, block });
        }
        pieces.sort_unstable_by_key(|piece| piece.start);
        if pieces.len() > PIECES_MAX {
            pieces = compacted(store_request, &pieces)?;
        }
        let mut parts = partial.parts.clone();
        let etag = self.etag.as_deref()?;
        let is_added = parts.add(self.range, self.len, etag, etag);
        (is_added && pieces.len() <= PIECES_MAX).then_some((pieces, parts))
    }

    /// The object to store: a whole representation if no range is missing.
    fn object(
        &self,
        store_request: &StoreRequest,
        fields: &ResponseFields,
        pieces: Vec<ContentPiece>,
        parts: PartSet,
    ) -> Option<StoredObject> {
        let (store, hashed_key) = (&store_request.store, store_request.hashed_key());
        let judge = store_request.judge();
        let selecting = judge.selecting(fields, &self.lines)?;
        let decision = judge.lifetime(StatusCode::OK, fields).ok()?;
        let terms = StorageTerms {
            decision,
            selecting,
        };
        let head = store_request.head(StatusCode::OK, fields, &self.path, terms);
        if parts.is_whole() {
            let pieces: Vec<Bytes> = pieces.iter().map(ContentPiece::bytes).collect();
            return build_whole(store, hashed_key, head, &pieces);
        }
        let content = BodyLocation::Pieces(Box::new(PieceList(pieces.into())));
        let placed = placement::head_alone(store, hashed_key, head.encoded, content).ok()?;
        let object = complete_object(placed, self.len, head.details);
        let ObjectKind::Representation(representation) = object.kind else {
            return None;
        };
        let partial = PartialContent {
            representation,
            parts,
            may_be_whole: self.etag.is_some() && self.len <= store.object_len_max(),
        };
        Some(StoredObject {
            kind: ObjectKind::Parts(Box::new(partial)),
            ..object
        })
    }

    fn insert(&self, store_request: &StoreRequest, object: Option<StoredObject>) {
        if let Some(object) = object {
            // Parts are in memory only and newer than a whole on disk.
            store_request.delete_on_disk();
            store_request.insert(ObjectArc::new(object));
        }
    }
}

/// The same bytes with adjacent pieces joined.
fn compacted(store_request: &StoreRequest, pieces: &[ContentPiece]) -> Option<Vec<ContentPiece>> {
    let is_adjacent = |left: &ContentPiece, right: &ContentPiece| left.range().end == right.start;
    let groups = pieces.chunk_by(is_adjacent);
    groups
        .map(|group| match group {
            [alone] => Some(alone.clone()),
            _ => {
                let bytes: Vec<u8> = group.iter().flat_map(|it| it.block.to_vec()).collect();
                let block = placement::piece(&store_request.store, store_request.key.hash, &bytes)?;
                let start = group.first()?.start;
                Some(ContentPiece { start, block })
            }
        })
        .collect()
}

/// The values of a request field.
fn values<'l>(lines: &'l [u8], name: &'l [u8]) -> impl Iterator<Item = &'l [u8]> {
    let has_name = move |(field_name, _): &(&[u8], &[u8])| field_name.eq_ignore_ascii_case(name);
    FieldLines::new(lines)
        .filter(has_name)
        .map(|(_, value)| value)
}
