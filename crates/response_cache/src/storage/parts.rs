//! Storage of partial content (RFC 9111 §3.3, §3.4; RFC 9110 §15.3.7): each part is collected while it is forwarded,
//! and combined with stored parts of the same version. A response with the last missing range is completed with the
//! stored parts.
//!
//! A part without a strong validator replaces other stored parts: it answers requests for ranges within it, and is
//! never combined.
//!
//! Origins may be faulty. A part is accepted only if it has the requested range and the announced length. If two parts
//! of one version differ in overlapping bytes or in the complete length, only the newer part is stored.

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

/// The maximum number of stored pieces. Beyond it, adjacent pieces are joined; if there are still too many, only the
/// newest part is stored.
const PIECES_MAX: usize = 16;
/// The maximum number of bytes of a forwarded part that the client has not taken yet.
const WAITING_LEN_MAX: usize = 64 << 10;

/// A received part, with all that is needed to store it.
struct ReceivedPart {
    range: ByteRange,
    /// The complete length of the representation.
    len: u64,
    /// The strong validator, if there is one.
    etag: Option<Box<[u8]>>,
    fields: ResponseFields,
    /// The decoded path.
    path: Box<[u8]>,
    /// The field lines of the request.
    lines: Box<[u8]>,
    selecting: SelectingFields,
    /// Because of If-Range, the 206 may omit fields that the client already has (RFC 9110 §15.3.7).
    lacks_fields: bool,
}

/// Arranges that the part in a 206 is stored, if it is storable, once it is forwarded completely. The response itself
/// is unchanged.
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
            let passing_body = ForwardedBody {
                receiver: std::mem::replace(receiver, forwarded),
                sender,
            };
            store_request.executor.clone().spawn(forward_and_store(
                store_request,
                part,
                passing_body,
            ));
        }
        Made::Stored(_) | Made::Upgrade(_) | Made::LocalRedirect(_) => {}
    }
    reply
}

async fn forward_and_store(
    store_request: StoreRequest,
    part: ReceivedPart,
    passing_body: ForwardedBody,
) {
    let len_max = part.range.end - part.range.start;
    let (mut collected, mut len) = (Some(Vec::new()), 0);
    let both_ends = passing_body
        .run(|bytes| {
            len += bytes.len() as u64;
            // Until the part is stored, its bytes are counted as those of arriving bodies.
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
    // Stored before the end is sent, so that a client that has received the part finds it stored.
    part.add_to_store(&store_request, &collected.concat());
    sender.end_with(receiver.take_trailers());
}

/// A body that is forwarded to a client.
struct ForwardedBody {
    receiver: BodyReceiver,
    sender: BodySender,
}

impl ForwardedBody {
    /// Forwards the body and passes each piece to `observe`. Returns both ends of the stream if the body was complete
    /// and the client has not disconnected.
    async fn run(self, mut observe: impl FnMut(&Bytes)) -> Option<(BodyReceiver, BodySender)> {
        let ForwardedBody { receiver, sender } = self;
        loop {
            // Backpressure: no more is received than the client takes.
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
    /// Whether the origin's response to a request for the one missing part can't be used: another part, 416, or the
    /// same version with another length. The stored parts are then deleted, and the whole representation must be
    /// requested.
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

    /// If a 206 has the missing part, turns it into a 200 with that part and the stored ones. Returns whether the 206
    /// has the missing part.
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
        // There is only one gap, so each piece is before or after it.
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
                let passing_body = ForwardedBody {
                    receiver: std::mem::replace(receiver, combined),
                    sender,
                };
                let len = partial.gap().map_or(0, |gap| gap.end - gap.start);
                self.executor
                    .spawn(send_joined(before, passing_body, len, after));
            }
            Made::Stored(_) | Made::Upgrade(_) | Made::LocalRedirect(_) => {}
        }
        true
    }
}

/// Sends the bytes before a part, the part itself, which must have `len` bytes, and the bytes after it.
async fn send_joined(before: Vec<Bytes>, passing_body: ForwardedBody, len: u64, after: Vec<Bytes>) {
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
    // If the part has another length, the bytes after it would be at wrong offsets: the response is truncated instead.
    if received_len == len && !after.into_iter().any(|part| sender.push(part).is_err()) {
        sender.end();
    }
}

/// The stored parts, if the response has the missing part.
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
    // A wrong part would corrupt the representation, so range, length and validator must match.
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
    // A response for another version may have another length.
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
    // Parts may be combined only by a strong validator (RFC 9110 §15.3.7.3).
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
    /// The part in a response, if it may be stored.
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
        let judge = store_request.reuse_judge();
        if let Err(reason) = judge.lifetime(response.status, &response.fields) {
            store_request
                .store
                .unstored_reasons
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
        // A part with another length than the origin announced is not stored.
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

    /// Handles a part if the whole representation is stored: a part of the same version validates it, a part of another
    /// version replaces it.
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
        // If the part is of another version, the stored representation is outdated.
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
        // The stored head is that of the first part, so it must be complete.
        if self.lacks_fields {
            return;
        }
        let parts = PartSet::with_part(self.len, self.range);
        let piece = placement::place_part(&store_request.store, store_request.key.hash, body);
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

    /// Adds a part to the stored parts.
    fn join_partial(&self, store_request: &StoreRequest, partial: &PartialContent, body: &[u8]) {
        let Some((pieces, parts)) = self.combine(store_request, partial, body) else {
            return self.begin(store_request, body);
        };
        let fields = merged(&partial.representation, &self.fields);
        let object = self.object(store_request, &fields, pieces, parts);
        self.insert(store_request, object);
    }

    /// The combined pieces; `None` if they contradict each other, or are too many or too long.
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
                // Other bytes for the same version: the origin is faulty, and the parts can't be combined.
                if body_range(ByteRange { start, end }) != piece.block.get(overlap) {
                    return None;
                }
            }
        }
        let (store, hash) = (&store_request.store, store_request.key.hash);
        let missing = partial.parts.missing_in(self.range);
        let old_len: usize = partial.pieces().iter().map(|it| it.block.len()).sum();
        let new_len: u64 = missing.iter().map(|gap| gap.end - gap.start).sum();
        // Beyond this limit, the whole representation could not be stored either.
        if old_len as u64 + new_len > store.object_len_max() {
            return None;
        }
        let mut pieces = partial.pieces().to_vec();
        for gap in missing {
            let block = placement::place_part(store, hash, body_range(gap)?)?;
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

    /// The object to store: a complete representation if no range is missing, otherwise parts.
    fn object(
        &self,
        store_request: &StoreRequest,
        fields: &ResponseFields,
        pieces: Vec<ContentPiece>,
        parts: PartSet,
    ) -> Option<StoredObject> {
        let (store, hashed_key) = (&store_request.store, store_request.hashed_key());
        let judge = store_request.reuse_judge();
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
        let placed = placement::place_head(store, hashed_key, head.encoded, content).ok()?;
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
            // Parts are stored in memory only; a response on disk is older.
            store_request.delete_on_disk();
            store_request.insert(ObjectArc::new(object));
        }
    }
}

/// Copies the pieces, with adjacent ones joined.
fn compacted(store_request: &StoreRequest, pieces: &[ContentPiece]) -> Option<Vec<ContentPiece>> {
    let is_adjacent = |left: &ContentPiece, right: &ContentPiece| left.range().end == right.start;
    let groups = pieces.chunk_by(is_adjacent);
    groups
        .map(|group| match group {
            [alone] => Some(alone.clone()),
            _ => {
                let bytes: Vec<u8> = group.iter().flat_map(|it| it.block.to_vec()).collect();
                let block =
                    placement::place_part(&store_request.store, store_request.key.hash, &bytes)?;
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
