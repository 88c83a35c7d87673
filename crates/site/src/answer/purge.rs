//! The method PURGE, from addresses that the site allows. It purges the URL of the request in all variants; all URLs
//! with that prefix if it ends with `*`; or all responses with the tags of its Cache-Tag and Surrogate-Key fields.
//! PURGE has no standard; applications send these forms to other caches.

use lowroad_cache::pattern::Pattern;
use lowroad_http::h1::BodyLen;
use lowroad_http::status::Status;
use lowroad_response_cache::invalidating::target_of;
use lowroad_response_cache::purge::{self, Meant};

use super::asked::{Asked, Decision, made};
use super::wait::WaitsFor;
use super::world::World;
use crate::respond::Responder;
use crate::sites::At;

/// The field that selects a soft or hard purge.
const HOW: &[u8] = b"x-purge-method";
/// Fastly's field for a soft purge.
const SOFT: &[u8] = b"fastly-soft-purge";

/// Answers a PURGE.
pub fn answer<W: World>(world: &W, asked: &Asked<'_>, to: &mut Responder<'_, '_>) -> Decision {
    let at = asked.at();
    if to.exchange.body.is_some() {
        to.response.close();
    }
    if !at.site.purge_from.has(to.exchange.peer) {
        return made(to.refuse(Some(at), Status::METHOD_NOT_ALLOWED));
    }
    let (Some(is_soft), Some(meant)) = (is_soft(to), meant(to)) else {
        return made(to.refuse(Some(at), Status::BAD_REQUEST));
    };
    let kind = purge::kind(is_soft);
    meant.iter().for_each(|meant| world.purge(meant, kind));
    match world.keep_purges(to.exchange.id) {
        true => asked.wait(to, WaitsFor::Purge),
        false => told(at, true, to),
    }
}

/// Answers a PURGE. If a disk cache outlives the process, this is called once the purge is durable there.
pub fn told(at: At<'_>, are_kept: bool, to: &mut Responder<'_, '_>) -> Decision {
    if !are_kept {
        return made(to.refuse(Some(at), Status::INTERNAL_ERROR));
    }
    const TEXT: &[u8] = b"purged\n";
    let mut head = to.response.head(Status::OK);
    head.field("Content-Type", b"text/plain");
    head.field("Cache-Control", b"no-store");
    if head.end(BodyLen::Known(TEXT.len() as u64)) {
        to.response.bytes(TEXT.into());
    }
    made(Status::OK)
}

/// Whether a purge only makes responses stale; `None` for an unknown kind: a weaker purge would leave responses that
/// the client meant to remove.
fn is_soft(to: &Responder<'_, '_>) -> Option<bool> {
    let mut is_soft = false;
    for (name, value) in to.request.fields() {
        let value = value.trim_ascii();
        if name.eq_ignore_ascii_case(SOFT) {
            is_soft |= value == b"1";
        } else if name.eq_ignore_ascii_case(HOW) {
            let is = |word: &[u8]| value.eq_ignore_ascii_case(word);
            match is(b"soft") {
                true => is_soft = true,
                false if is(b"hard") || is(b"exact") || is(b"default") => {}
                false => return None,
            }
        }
    }
    Some(is_soft)
}

/// The targets of a purge; `None` if they are invalid.
fn meant(to: &Responder<'_, '_>) -> Option<Vec<Meant>> {
    let mut tags = Vec::new();
    for (name, value) in to.request.fields() {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        let is_between = |byte: &u8| match is("Surrogate-Key") {
            true => *byte == b' ',
            false => *byte == b',',
        };
        if is("Surrogate-Key") || is("Cache-Tag") {
            let names = value.split(is_between).map(<[u8]>::trim_ascii);
            tags.extend(names.filter(|name| !name.is_empty()));
        }
    }
    if tags.is_empty() {
        let target = target_of(to.request)?;
        let (target, is_prefix) = match target.strip_suffix(b"*") {
            Some(prefix) => (prefix, true),
            None => (&target[..], false),
        };
        let url = Pattern::of_url(to.request.authority?, target, is_prefix);
        return Some(vec![Meant::Urls(url.ok()?)]);
    }
    let tag = |name: &[u8]| Some(Meant::Tag(String::from_utf8(name.to_vec()).ok()?));
    tags.into_iter().map(tag).collect()
}
