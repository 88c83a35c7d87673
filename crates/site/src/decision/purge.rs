//! The method PURGE, from addresses that the site allows. It purges the URL of the request in all variants; all URLs
//! with that prefix if it ends with `*`; or all responses with the tags of its Cache-Tag and Surrogate-Key fields.
//! PURGE has no standard; applications send these forms to other caches.

use lowroad_cache::pattern::RequestPattern;
use lowroad_http::h1::BodyLen;
use lowroad_http::status::StatusCode;
use lowroad_response_cache::invalidation::target_of;
use lowroad_response_cache::purge::{self, PurgeTarget};

use super::context::{RequestContext, RequestDecision, generated_response};
use super::deferral::WaitReason;
use super::effects::Effects;
use crate::responder::RequestResponder;
use crate::sites::SitePath;

/// The field that selects a soft or hard purge.
const HOW: &[u8] = b"x-purge-method";
/// Fastly's field for a soft purge.
const SOFT: &[u8] = b"fastly-soft-purge";

/// Answers a PURGE.
pub fn answer<W: Effects>(
    world: &W,
    asked: &RequestContext<'_>,
    to: &mut RequestResponder<'_, '_>,
) -> RequestDecision {
    let at = asked.at();
    // The body is not read, so the connection can't be used again.
    if to.exchange.body.is_some() {
        to.response.close();
    }
    // 405 as for an unknown method: other clients don't learn that PURGE exists.
    if !at.site.purge_from.has(to.exchange.peer) {
        return generated_response(to.refuse(Some(at), StatusCode::METHOD_NOT_ALLOWED));
    }
    let (Some(is_soft), Some(meant)) = (is_soft(to), meant(to)) else {
        return generated_response(to.refuse(Some(at), StatusCode::BAD_REQUEST));
    };
    let kind = purge::kind(is_soft);
    meant.iter().for_each(|meant| world.purge(meant, kind));
    match world.keep_purges(to.exchange.id) {
        true => asked.wait(to, WaitReason::Purge),
        false => told(at, true, to),
    }
}

/// Answers a PURGE. If a disk cache outlives the process, this is called once the purge is durable there.
pub fn told(
    at: SitePath<'_>,
    are_kept: bool,
    to: &mut RequestResponder<'_, '_>,
) -> RequestDecision {
    if !are_kept {
        return generated_response(to.refuse(Some(at), StatusCode::INTERNAL_ERROR));
    }
    const TEXT: &[u8] = b"purged\n";
    let mut head = to.response.head(StatusCode::OK);
    head.field("Content-Type", b"text/plain");
    head.field("Cache-Control", b"no-store");
    if head.end(BodyLen::Known(TEXT.len() as u64)) {
        to.response.bytes(TEXT.into());
    }
    generated_response(StatusCode::OK)
}

/// Whether a purge only makes responses stale; `None` for an unknown kind: a weaker purge would leave responses that
/// the client meant to remove.
fn is_soft(to: &RequestResponder<'_, '_>) -> Option<bool> {
    let mut is_soft = false;
    for (name, value) in to.request.fields() {
        let value = value.trim_ascii();
        if name.eq_ignore_ascii_case(SOFT) {
            is_soft |= value == b"1";
        } else if name.eq_ignore_ascii_case(HOW) {
            let is = |word: &[u8]| value.eq_ignore_ascii_case(word);
            match is(b"soft") {
                true => is_soft = true,
                // The names of applications for a hard purge.
                false if is(b"hard") || is(b"exact") || is(b"default") => {}
                false => return None,
            }
        }
    }
    Some(is_soft)
}

/// The targets of a purge; `None` if they are invalid.
fn meant(to: &RequestResponder<'_, '_>) -> Option<Vec<PurgeTarget>> {
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
    // With tags, the target does not matter.
    if tags.is_empty() {
        let target = target_of(to.request)?;
        let (target, is_prefix) = match target.strip_suffix(b"*") {
            Some(prefix) => (prefix, true),
            None => (&target[..], false),
        };
        let url = RequestPattern::from_url(to.request.authority?, target, is_prefix);
        return Some(vec![PurgeTarget::Urls(url.ok()?)]);
    }
    let tag = |name: &[u8]| Some(PurgeTarget::Tag(String::from_utf8(name.to_vec()).ok()?));
    tags.into_iter().map(tag).collect()
}
