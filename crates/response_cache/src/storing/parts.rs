//! Parts of a representation on their way into the store: each is kept as it passes, and put to those of the same version
//! that are there already; and what is missing to a whole is put between what is there. Knows neither how parts are found
//! nor how they are sent. Read RFC 9111 §3.3, §3.4 and RFC 9110 §15.3.7.
//!
//! A part without a strong validator is stored alone and replaces other parts: it is reused for ranges within it, and
//! never combined.
//!
//! An origin may lie. What it says of a part is believed if it is what was asked for, of the length that came. Where two parts
//! of one version have other bytes at the same place, or wholes of other lengths, only the last one stays.

use std::future::poll_fn;

use bytes::Bytes;
use lowroad_cache::partial::{Part, Parts};
use lowroad_cache::validation::Validators;
use lowroad_cache::vary::Selecting;
use lowroad_engine::stream::{Next, Receiver, Sender, stream};
use lowroad_handler::{Content as Made, Fields};
use lowroad_http::fields::Lines;
use lowroad_http::h1::BodyLen;
use lowroad_http::range::ByteRange;
use lowroad_http::status::Status;
use lowroad_store::object::{Content, Kind, Representation};
use lowroad_store::parts::{Partial, Piece, Pieces, range_of};
use lowroad_store::place;
use lowroad_store::{Object, ObjectArc};

use super::{Storing, complete_object, whole};
use crate::reply::Reply;
use crate::reuse::Wants;
use crate::validating::{merged, name_of, renew};

/// More pieces are joined where they touch; if that leaves more, only the last part stays.
const PIECES_MAX: usize = 16;
/// How many bytes wait between who sends a part and who gets it.
const WAITING_LEN_MAX: usize = 64 << 10;

/// A part that came, and all that is needed to store it.
struct Came {
    range: ByteRange,
    /// The length of the whole.
    len: u64,
    /// The strong validator, if there is one.
    etag: Option<Box<[u8]>>,
    fields: Fields,
    /// Decoded path and field lines of the request.
    path: Box<[u8]>,
    lines: Box<[u8]>,
    selecting: Selecting,
    /// Fields may be left out that the client had (RFC 9110 §15.3.7).
    is_short_of_fields: bool,
}

/// Keeps the part in a 206, if it may be stored, once all of it has passed; the response goes on as it is.
pub fn keep(storing: Storing, mut reply: Reply, path: &[u8], lines: &[u8]) -> Reply {
    let Some(came) = Came::of(&storing, &reply, path, lines) else {
        return reply;
    };
    match &mut reply.response.content {
        Made::Bytes(body) => came.put(&storing, body),
        Made::Stream { stream: from, .. } => {
            let (to, passed) = stream(WAITING_LEN_MAX);
            let passing = Passing {
                from: std::mem::replace(from, passed),
                to,
            };
            storing
                .executor
                .clone()
                .spawn(keep_passing(storing, came, passing));
        }
        Made::Stored(_) | Made::Upgrade(_) | Made::Local(_) => {}
    }
    reply
}

async fn keep_passing(storing: Storing, came: Came, passing: Passing) {
    let len_max = came.range.end - came.range.start;
    let (mut kept, mut len) = (Some(Vec::new()), 0);
    let ended = passing
        .run(|bytes| {
            len += bytes.len() as u64;
            // It is counted among the bodies that are filling as long as it is one.
            let drawn = storing.store.draw(bytes.clone());
            match (&mut kept, drawn) {
                (Some(kept), Ok(drawn)) if len <= len_max => kept.push(drawn),
                _ => kept = None,
            }
        })
        .await;
    let (Some((from, to)), Some(kept)) = (ended, kept) else {
        return;
    };
    // Who has got all of it finds it stored.
    came.put(&storing, &kept.concat());
    to.end_with(from.take_trailers());
}

/// A body that is passed on.
struct Passing {
    from: Receiver,
    to: Sender,
}

impl Passing {
    /// Passes all of it on, and shows it; both ends, if it was all and somebody still wants it.
    async fn run(self, mut see: impl FnMut(&Bytes)) -> Option<(Receiver, Sender)> {
        let Passing { from, to } = self;
        loop {
            poll_fn(|context| to.poll_room(context)).await.ok()?;
            let next = poll_fn(|context| match to.poll_closed(context).is_ready() {
                true => std::task::Poll::Ready(Next::Cut),
                false => from.poll_next(context),
            });
            match next.await {
                Next::Bytes(bytes) => {
                    see(&bytes);
                    to.push(bytes).ok()?;
                }
                Next::End => return Some((from, to)),
                Next::Cut => return None,
            }
        }
    }
}

impl Storing {
    /// Whether an origin that was asked for the one missing part says nothing of use: another part, that there is none, or
    /// the same version of another length. Then what is stored is forgotten, and it has to be asked for all of it.
    pub fn is_misled(&self, reply: &Reply) -> bool {
        let Some(object) = &self.completes else {
            return false;
        };
        let is_misled = match reply.status() {
            Status::PARTIAL_CONTENT => gap_filled(object, reply).is_none(),
            Status::RANGE_NOT_SATISFIABLE => true,
            Status::OK => is_of_other_len(object, reply),
            _ => false,
        };
        if is_misled {
            self.forget(object);
        }
        is_misled
    }

    /// Makes a 200 of the 206 with the part that was missing, and of what is stored; whether that is what it was.
    pub(super) fn completed(&self, reply: &mut Reply) -> bool {
        let object = self.completes.as_ref();
        let Some(partial) = object.and_then(|object| gap_filled(object, reply)) else {
            return false;
        };
        let response = &mut reply.response;
        response.status = Status::OK;
        response.fields = without_range(&merged(&partial.representation, &response.fields));
        let gap_start = partial.gap().map_or(0, |gap| gap.start);
        let is_before = |piece: &&Piece| piece.start < gap_start;
        let before = partial.pieces().iter().filter(is_before);
        let before: Vec<Bytes> = before.map(Piece::bytes).collect();
        let after = partial.pieces().iter().filter(|piece| !is_before(piece));
        let after: Vec<Bytes> = after.map(Piece::bytes).collect();
        match &mut response.content {
            Made::Bytes(body) => {
                let parts = before.iter().chain([&*body]).chain(&after);
                *body = parts.flat_map(|part| part.iter().copied()).collect();
            }
            Made::Stream { len, stream: from } => {
                *len = Some(partial.representation.len());
                let (to, joined) = stream(WAITING_LEN_MAX);
                let passing = Passing {
                    from: std::mem::replace(from, joined),
                    to,
                };
                let len = partial.gap().map_or(0, |gap| gap.end - gap.start);
                self.executor.spawn(join(before, (passing, len), after));
            }
            Made::Stored(_) | Made::Upgrade(_) | Made::Local(_) => {}
        }
        true
    }
}

/// Passes on what stands before a part, the part, which has to have its length, and what stands behind it.
async fn join(before: Vec<Bytes>, (passing, len): (Passing, u64), after: Vec<Bytes>) {
    if before
        .into_iter()
        .any(|part| passing.to.push(part).is_err())
    {
        return;
    }
    let mut come = 0;
    let Some((_, to)) = passing.run(|bytes| come += bytes.len() as u64).await else {
        return;
    };
    if come == len && !after.into_iter().any(|part| to.push(part).is_err()) {
        to.end();
    }
}

/// The parts that are stored, if a response has the one that is missing.
fn gap_filled<'o>(object: &'o Object, reply: &Reply) -> Option<&'o Partial> {
    let Kind::Parts(partial) = &object.kind else {
        return None;
    };
    let gap = partial.gap()?;
    let fields = reply.response.fields.iter();
    let fields = fields.map(|(name, value)| (name.as_bytes(), value));
    let part = Part::of(range_of(gap).as_bytes(), fields)?;
    let is_it = part.range == gap
        && part.len == partial.representation.len()
        && part.etag.is_some()
        && part.etag == strong_tag(&partial.representation)
        && has_len(reply, gap.end - gap.start);
    is_it.then_some(partial)
}

/// Whether all of what is stored in parts is to have another length now, though it is the same version.
fn is_of_other_len(object: &Object, reply: &Reply) -> bool {
    let Kind::Parts(partial) = &object.kind else {
        return false;
    };
    let news = reply.response.fields.iter();
    let news = Validators::of(news.map(|(name, value)| (name.as_bytes(), value)));
    news.etag == strong_tag(&partial.representation)
        && !has_len(reply, partial.representation.len())
}

/// Whether the body has this length, as far as that is known.
fn has_len(reply: &Reply, len: u64) -> bool {
    match reply.len() {
        BodyLen::Known(known) => known == len,
        BodyLen::Unknown => true,
        BodyLen::None => false,
    }
}

fn strong_tag(representation: &Representation) -> Option<&[u8]> {
    let stored = representation.head.all(representation.bytes()).fields();
    let stored = stored.map(|(name, value)| (name_of(name), value));
    let tag = Validators::of(stored).etag;
    tag.filter(|tag| tag.starts_with(b"\""))
}

fn without_range(fields: &Fields) -> Fields {
    let is_range = |name: &str| name.eq_ignore_ascii_case("content-range");
    let kept = fields.iter().filter(|(name, _)| !is_range(name));
    let mut kept: Fields = kept.collect();
    if let Some(date) = fields.date() {
        kept.set_date(*date);
    }
    kept
}

impl Came {
    /// What came, if it is a part that may be stored.
    fn of(storing: &Storing, reply: &Reply, path: &[u8], lines: &[u8]) -> Option<Came> {
        let response = &reply.response;
        if storing.key.wants != Wants::Part {
            return None;
        }
        let fields = response.fields.iter();
        let fields = fields.map(|(name, value)| (name.as_bytes(), value));
        let Part { range, len, etag } = Part::of(values(lines, b"range").next()?, fields)?;
        let part_len = range.end - range.start;
        if !has_len(reply, part_len) || part_len > storing.store.object_len_max() {
            return None;
        }
        let judge = storing.judge();
        if let Err(why) = judge.lifetime(response.status, &response.fields) {
            storing.store.refusals.note(storing.key.hash, why);
            return None;
        }
        Some(Came {
            range,
            len,
            etag: etag.map(Box::from),
            fields: without_range(&response.fields),
            path: path.into(),
            lines: lines.into(),
            selecting: judge.selecting(&response.fields, lines)?,
            is_short_of_fields: values(lines, b"if-range").next().is_some(),
        })
    }

    /// Stores it with its bytes, as far as it goes with what is there now.
    fn put(&self, storing: &Storing, body: &[u8]) {
        if body.len() as u64 != self.range.end - self.range.start {
            return;
        }
        let key = &storing.key;
        let entry = storing.store.peek_kept(key.hash, &key.bytes);
        let is_same = |object: &&ObjectArc| object.selecting() == Some(&self.selecting);
        let stored = entry.as_ref().and_then(|it| it.variants().find(is_same));
        let Some(stored) = stored else {
            return self.begin(storing, body);
        };
        match &stored.kind {
            Kind::Representation(whole) => self.compare(storing, (stored, whole), body),
            Kind::Parts(partial) if self.is_of(&partial.representation) => {
                self.join(storing, partial, body);
            }
            Kind::Parts(_) => self.begin(storing, body),
            _ => {}
        }
    }

    fn is_of(&self, stored: &Representation) -> bool {
        let etag = self.etag.as_deref();
        stored.len() == self.len && etag.is_some() && strong_tag(stored) == etag
    }

    /// Where all of it is stored: a part of the same version says that it holds still, one of another that it does not.
    fn compare(
        &self,
        storing: &Storing,
        (stored, whole): (&ObjectArc, &Representation),
        body: &[u8],
    ) {
        let (Some(tag), Some(etag)) = (strong_tag(whole), self.etag.as_deref()) else {
            return;
        };
        if tag != etag {
            return self.begin(storing, body);
        }
        let range = self.range.start as usize..self.range.end as usize;
        let is_true = whole.len() == self.len
            && whole.head.status() == Status::OK
            && whole.body(range).is_none_or(|own| own == body);
        let request = (&*self.path, &*self.lines);
        if !is_true || renew(storing, stored, &self.fields, request).is_none() {
            storing.forget(stored);
        }
    }

    /// The first part of a version.
    fn begin(&self, storing: &Storing, body: &[u8]) {
        if self.is_short_of_fields {
            return;
        }
        let parts = Parts::with_part(self.len, self.range);
        let piece = place::piece(&storing.store, storing.key.hash, body);
        let Some(block) = piece else {
            return;
        };
        let start = self.range.start;
        let object = self.object(storing, &self.fields, vec![Piece { start, block }], parts);
        self.insert(storing, object);
    }

    /// Another part of the version that is there.
    fn join(&self, storing: &Storing, partial: &Partial, body: &[u8]) {
        let Some((pieces, parts)) = self.joined(storing, partial, body) else {
            return self.begin(storing, body);
        };
        let fields = merged(&partial.representation, &self.fields);
        let object = self.object(storing, &fields, pieces, parts);
        self.insert(storing, object);
    }

    /// `None`: they contradict each other, or are too many or too long.
    fn joined(
        &self,
        storing: &Storing,
        partial: &Partial,
        body: &[u8],
    ) -> Option<(Vec<Piece>, Parts)> {
        let of_body = |range: ByteRange| {
            let at = |place: u64| (place - self.range.start) as usize;
            body.get(at(range.start)..at(range.end))
        };
        for piece in partial.pieces() {
            if let Some(own) = piece.within(self.range) {
                let start = piece.start + own.start as u64;
                let end = piece.start + own.end as u64;
                if of_body(ByteRange { start, end }) != piece.block.get(own) {
                    return None;
                }
            }
        }
        let (store, hash) = (&storing.store, storing.key.hash);
        let news = partial.parts.news(self.range);
        let old_len: usize = partial.pieces().iter().map(|it| it.block.len()).sum();
        let new_len: u64 = news.iter().map(|new| new.end - new.start).sum();
        if old_len as u64 + new_len > store.object_len_max() {
            return None;
        }
        let mut pieces = partial.pieces().to_vec();
        for new in news {
            let block = place::piece(store, hash, of_body(new)?)?;
            let start = new.start;
            pieces.push(Piece { start, block });
        }
        pieces.sort_unstable_by_key(|piece| piece.start);
        if pieces.len() > PIECES_MAX {
            pieces = compacted(storing, &pieces)?;
        }
        let mut parts = partial.parts.clone();
        let etag = self.etag.as_deref()?;
        let is_added = parts.add(self.range, self.len, (etag, etag));
        (is_added && pieces.len() <= PIECES_MAX).then_some((pieces, parts))
    }

    /// What is stored: all of the representation, if nothing is missing any more.
    fn object(
        &self,
        storing: &Storing,
        fields: &Fields,
        pieces: Vec<Piece>,
        parts: Parts,
    ) -> Option<Object> {
        let (store, under) = (&storing.store, storing.under());
        let judge = storing.judge();
        let selecting = judge.selecting(fields, &self.lines)?;
        let judged = judge.lifetime(Status::OK, fields).ok()?;
        let head = storing.head((Status::OK, fields), &self.path, (judged, selecting));
        if parts.is_whole() {
            let pieces: Vec<Bytes> = pieces.iter().map(Piece::bytes).collect();
            return whole(store, under, head, &pieces);
        }
        let content = Content::Pieces(Box::new(Pieces(pieces.into())));
        let placed = place::head_alone(store, under, head.built, content).ok()?;
        let object = complete_object(placed, self.len, head.about);
        let Kind::Representation(representation) = object.kind else {
            return None;
        };
        let partial = Partial {
            representation,
            parts,
            may_be_whole: self.etag.is_some() && self.len <= store.object_len_max(),
        };
        Some(Object {
            kind: Kind::Parts(Box::new(partial)),
            ..object
        })
    }

    fn insert(&self, storing: &Storing, object: Option<Object>) {
        if let Some(object) = object {
            // Parts are in memory only, and newer than a whole on the disk.
            storing.forget_on_disk();
            storing.insert(ObjectArc::new(object));
        }
    }
}

/// The same bytes in fewer pieces: those that touch become one.
fn compacted(storing: &Storing, pieces: &[Piece]) -> Option<Vec<Piece>> {
    let touch = |one: &Piece, two: &Piece| one.range().end == two.start;
    let groups = pieces.chunk_by(touch);
    groups
        .map(|group| match group {
            [alone] => Some(alone.clone()),
            _ => {
                let bytes: Vec<u8> = group.iter().flat_map(|it| it.block.to_vec()).collect();
                let block = place::piece(&storing.store, storing.key.hash, &bytes)?;
                let start = group.first()?.start;
                Some(Piece { start, block })
            }
        })
        .collect()
}

/// The values of a field of a request.
fn values<'l>(lines: &'l [u8], name: &'l [u8]) -> impl Iterator<Item = &'l [u8]> {
    let named = move |(known, _): &(&[u8], &[u8])| known.eq_ignore_ascii_case(name);
    Lines::of(lines).filter(named).map(|(_, value)| value)
}
