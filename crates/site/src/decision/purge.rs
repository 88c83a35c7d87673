//! The PURGE method, for addresses that the site allows. It purges all variants of the requested URL; with a final `*`,
//! all URLs with that prefix; or all responses with the tags in the request's Cache-Tag and Surrogate-Key fields. PURGE
//! is not standardized; applications send these forms to other caches.

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

/// The field that selects a soft or a hard purge.
const METHOD_FIELD: &[u8] = b"x-purge-method";
/// The field with which Fastly requests a soft purge.
const SOFT_FIELD: &[u8] = b"fastly-soft-purge";

/// Answers a PURGE request.
pub fn handle_purge<W: Effects>(
    effects: &W,
    context: &RequestContext<'_>,
    responder: &mut RequestResponder<'_, '_>,
) -> RequestDecision {
    let site_path = context.site_path();
    // The body is not read, so the connection cannot be reused.
    if responder.exchange.body.is_some() {
        responder.response.close();
    }
    // The status is 405 as for an unknown method, so that other clients do not learn about PURGE.
    if !site_path.site.purge_from.contains(responder.exchange.peer) {
        return generated_response(
            responder.refuse(Some(site_path), StatusCode::METHOD_NOT_ALLOWED),
        );
    }
    let (Some(is_soft), Some(targets)) = (is_soft(responder), parse_targets(responder)) else {
        return generated_response(responder.refuse(Some(site_path), StatusCode::BAD_REQUEST));
    };
    let kind = purge::kind(is_soft);
    let rules = || site_path.site.routes.iter().map(|route| &route.query_rules);
    let normalized: Vec<PurgeTarget> = targets
        .iter()
        .flat_map(|target| target.normalized(rules()))
        .collect();
    targets
        .iter()
        .chain(&normalized)
        .for_each(|target| effects.purge(target, kind));
    match effects.await_durable_purges(responder.exchange.id) {
        true => context.wait(responder, WaitReason::Purge),
        false => respond(site_path, true, responder),
    }
}

/// Responds to a PURGE request. With a disk cache, it is called once the purge is durable.
pub fn respond(
    site_path: SitePath<'_>,
    is_durable: bool,
    responder: &mut RequestResponder<'_, '_>,
) -> RequestDecision {
    if !is_durable {
        return generated_response(responder.refuse(Some(site_path), StatusCode::INTERNAL_ERROR));
    }
    const TEXT: &[u8] = b"purged\n";
    let mut head = responder.response.head(StatusCode::OK);
    head.field("Content-Type", b"text/plain");
    head.field("Cache-Control", b"no-store");
    if head.end(BodyLen::Known(TEXT.len() as u64)) {
        responder.response.write_bytes(TEXT.into());
    }
    generated_response(StatusCode::OK)
}

/// Whether a purge only makes responses stale. `None` for an unknown value: a soft purge instead of a hard one would
/// leave responses that the client wants removed.
fn is_soft(responder: &RequestResponder<'_, '_>) -> Option<bool> {
    let mut is_soft = false;
    for (name, value) in responder.request.fields() {
        let value = value.trim_ascii();
        if name.eq_ignore_ascii_case(SOFT_FIELD) {
            is_soft |= value == b"1";
        } else if name.eq_ignore_ascii_case(METHOD_FIELD) {
            let is = |word: &[u8]| value.eq_ignore_ascii_case(word);
            match is(b"soft") {
                true => is_soft = true,
                // Applications use these three names for a hard purge.
                false if is(b"hard") || is(b"exact") || is(b"default") => {}
                false => return None,
            }
        }
    }
    Some(is_soft)
}

/// The targets of a purge; `None` if they are invalid.
fn parse_targets(responder: &RequestResponder<'_, '_>) -> Option<Vec<PurgeTarget>> {
    let mut tags = Vec::new();
    for (name, value) in responder.request.fields() {
        let is = |field_name: &str| name.eq_ignore_ascii_case(field_name.as_bytes());
        // Fastly separates keys by spaces, Cloudflare separates tags by commas.
        let is_separator = |byte: &u8| match is("Surrogate-Key") {
            true => *byte == b' ',
            false => *byte == b',',
        };
        if is("Surrogate-Key") || is("Cache-Tag") {
            let names = value.split(is_separator).map(<[u8]>::trim_ascii);
            tags.extend(names.filter(|name| !name.is_empty()));
        }
    }
    // With tags, the URL is irrelevant.
    if tags.is_empty() {
        let target = target_of(responder.request)?;
        let (target, is_prefix) = match target.strip_suffix(b"*") {
            Some(prefix) => (prefix, true),
            None => (&target[..], false),
        };
        let url = RequestPattern::from_url(responder.request.authority?, target, is_prefix);
        return Some(vec![PurgeTarget::Urls(url.ok()?)]);
    }
    let tag = |name: &[u8]| Some(PurgeTarget::Tag(String::from_utf8(name.to_vec()).ok()?));
    tags.into_iter().map(tag).collect()
}
