//! Validation of a stored response (RFC 9111 §4.3): it is freshened, replaced, or sent stale because the origin failed.

use lowroad_cache::request::RequestDirectives;
use lowroad_cache::validation::{self, HeadComparison, StoredValidators};
use lowroad_handler::{HandlerFailure, ResponseFields};
use lowroad_http::fields::{FieldLines, FieldName, FieldNames, StandardHeader};
use lowroad_http::h1::BodyLen;
use lowroad_http::status::StatusCode;
use lowroad_routes::compression_handler::{self, fields::includes_accept_encoding};
use lowroad_site_rules::SiteFields;
use lowroad_store::clock;
use lowroad_store::object::{ObjectKind, Representation};
use lowroad_store::{ObjectArc, StoredObject};

use crate::reply::HandlerReply;
use crate::reuse::RequestedPart;
use crate::storage::{HitKind, StoreRequest, StoredResponse};

/// The precondition field lines that validate a stored response, or that request its missing part; empty if the
/// response has no validators.
pub fn conditions(stale: &StoredObject) -> Vec<u8> {
    let mut lines = Vec::new();
    if let ObjectKind::Parts(partial) = &stale.kind {
        return partial.conditions();
    }
    let Some(representation) = stale.representation() else {
        return lines;
    };
    let stored = representation.head.all(representation.bytes()).fields();
    let validators =
        StoredValidators::from_fields(stored.map(|(name, value)| (name_bytes(name), value)));
    let conditions = validation::conditions(validators, []);
    if let Some(tags) = conditions.if_none_match {
        push_line(&mut lines, b"If-None-Match", &tags);
    }
    if let Some(date) = conditions.if_modified_since {
        push_line(&mut lines, b"If-Modified-Since", &date);
    }
    lines
}

pub(super) fn name_bytes(name: FieldName<'_>) -> &[u8] {
    match name {
        FieldName::Known(header) => header.as_str().as_bytes(),
        FieldName::Other(name) => name.as_bytes(),
    }
}

/// Request fields because of which the response may be other than a 200 with the whole representation. If-Match and
/// If-Unmodified-Since are not in the list, since requests with those are forwarded unchanged.
const CONDITIONS: [&[u8]; 4] = [
    b"if-none-match",
    b"if-modified-since",
    b"range",
    b"if-range",
];

/// The field lines of a request with its preconditions replaced by `conditions`.
pub fn lines_with(lines: &[u8], conditions: &[u8]) -> Vec<u8> {
    let is_condition = |name: &[u8]| {
        CONDITIONS
            .iter()
            .any(|condition| name.eq_ignore_ascii_case(condition))
    };
    let mut out = lines_without(lines, is_condition);
    out.extend_from_slice(conditions);
    out
}

/// The field lines without those with an omitted name.
pub(crate) fn lines_without(lines: &[u8], is_omitted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    // Most callers append a few lines.
    let mut out = Vec::with_capacity(lines.len() + 128);
    for (name, value) in FieldLines::new(lines).filter(|(name, _)| !is_omitted(name)) {
        push_line(&mut out, name, value);
    }
    out
}

/// Appends a field line.
pub(crate) fn push_line(lines: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for part in [name, b": ", value, b"\r\n"] {
        lines.extend_from_slice(part);
    }
}

/// The parts of a request that are needed to store its response.
#[derive(Clone, Copy)]
pub struct RequestLines<'r> {
    /// The decoded path.
    pub path: &'r [u8],
    /// The field lines.
    pub lines: &'r [u8],
}

/// A stored response that the current call of the origin may validate, update or replace.
pub struct StaleResponse {
    /// The stale stored response.
    pub object: ObjectArc,
    /// The request to the origin has the cache's preconditions: a 304 then refers to the stored response, and not to
    /// the client's copy.
    pub is_validated: bool,
    /// The request's cache directives.
    pub directives: RequestDirectives,
}

impl StaleResponse {
    /// Whether the response is a 304 for another version than the stored one, and so can't be used (RFC 9111 §4.3.4).
    pub fn is_other_version(&self, answer: &Result<HandlerReply, HandlerFailure>) -> bool {
        let (Ok(reply), Some(representation)) = (answer, self.object.representation()) else {
            return false;
        };
        let stored = representation.head.all(representation.bytes()).fields();
        let stored =
            StoredValidators::from_fields(stored.map(|(name, value)| (name_bytes(name), value)));
        let response_validators = reply.response.fields.iter();
        let response_validators = StoredValidators::from_fields(
            response_validators.map(|(name, value)| (name.as_bytes(), value)),
        );
        self.is_validated
            && reply.status() == StatusCode::NOT_MODIFIED
            && validation::selected(&[stored], 0, response_validators).is_none()
    }

    /// Applies the response to HEAD: if it is for the same version, the stored response is freshened, otherwise
    /// invalidated (RFC 9111 §4.3.5).
    pub fn apply_head(
        &self,
        reply: &HandlerReply,
        store_request: &StoreRequest,
        request: RequestLines<'_>,
    ) {
        let stored = self.object.representation();
        let (RequestedPart::Head, Some(representation)) =
            (store_request.key.requested_part, stored)
        else {
            return;
        };
        // A page that was built from a stored object may have other content than this response to HEAD describes.
        let is_derived = reply.response.source.is_some();
        if is_derived
            || reply.status() != StatusCode::OK
            || representation.head.status() != StatusCode::OK
        {
            return;
        }
        let renewed = || renew(store_request, &self.object, &reply.response.fields, request);
        let is_outdated = match compare_head(representation, reply) {
            // If the new fields forbid storage, the stored response must not stay either.
            HeadComparison::Same => renewed().is_none(),
            HeadComparison::Other => true,
            HeadComparison::Nothing => false,
        };
        if is_outdated {
            store_request.delete(&self.object);
        }
    }

    /// The stored response to send instead of the origin's: after a 304, or stale after an error. `None` if the
    /// origin's response is to be sent.
    pub fn outcome(
        &self,
        answer: &Result<HandlerReply, HandlerFailure>,
        store_request: Option<&StoreRequest>,
        request: RequestLines<'_>,
    ) -> Option<StoredResponse> {
        let stale = &self.object;
        let status = match answer {
            Ok(reply) => reply.status(),
            Err(failure) => failure.status,
        };
        if let Ok(reply) = answer
            && self.is_validated
            && status == StatusCode::NOT_MODIFIED
        {
            let renewed = store_request.and_then(|store_request| {
                renew(store_request, stale, &reply.response.fields, request)
            });
            // If the new fields forbid storage, the response is deleted, but this client still gets it.
            if let (None, Some(store_request)) = (&renewed, store_request) {
                store_request.delete(stale);
            }
            let object = renewed.as_ref().unwrap_or(stale);
            return Some(StoredResponse::from_object(object, HitKind::Validated));
        }
        // The statuses that count as errors in RFC 5861 §4.
        let is_error = matches!(status.code(), 500 | 502..=504);
        let can_use_stale = is_error
            && stale
                .validity
                .is_usable_on_error(&self.directives, clock::now_ms());
        can_use_stale.then(|| StoredResponse::from_object(stale, HitKind::StaleIfError))
    }
}

/// Compares a response to HEAD with the stored response.
fn compare_head(representation: &Representation, reply: &HandlerReply) -> HeadComparison {
    let stored = representation.head.all(representation.bytes()).fields();
    let stored: Vec<_> = stored
        .map(|(name, value)| (name_bytes(name), value))
        .collect();
    let head_fields = reply.response.fields.iter();
    let head_fields: Vec<_> = head_fields
        .map(|(name, value)| (name.as_bytes(), value))
        .collect();
    // Content-Length in a response to HEAD is that of a GET (RFC 9110 §8.6).
    let has_len = match reply.len() {
        BodyLen::Known(len) => len == representation.len(),
        BodyLen::None | BodyLen::Unknown => true,
    };
    match has_len {
        true => validation::compare_head(&stored, &head_fields),
        false => HeadComparison::Other,
    }
}

/// Freshens a stored response with the fields of a 304 (RFC 9111 §3.2, §4.3.4).
pub(super) fn renew(
    store_request: &StoreRequest,
    stale: &StoredObject,
    new_fields: &ResponseFields,
    request: RequestLines<'_>,
) -> Option<ObjectArc> {
    let representation = stale.representation()?;
    // If the site's header rules set the stored lifetime, a 304 without a lifetime does not freshen the response: the
    // stored fields did not all come from the origin.
    let status = representation.head.status();
    let rules = SiteFields::new(&store_request.rules, request.path, status);
    if rules.changes_lifetime() && !new_fields.has_lifetime() {
        return None;
    }
    let fields = merged(representation, new_fields);
    store_request.renew(representation, &fields, request)
}

/// The fields of a stored response, freshened with new ones.
pub(super) fn merged(
    representation: &Representation,
    new_fields: &ResponseFields,
) -> ResponseFields {
    let bytes = representation.bytes();
    let stored = representation.head.all(bytes).fields();
    let stored: Vec<_> = stored
        .map(|(name, value)| (name_bytes(name), value))
        .collect();
    let new: Vec<_> = new_fields
        .iter()
        .map(|(name, value)| (name.as_bytes(), value))
        .collect();
    let mut fields = ResponseFields::new();
    for (name, value) in validation::merged(&stored, &new, &FieldNames::NONE) {
        // Can't fail: the fields were valid when they were stored or received.
        fields.try_push(name, value);
    }
    // The stored response may have been compressed by this server, so the origin's 304 may lack Vary: Accept-Encoding.
    let is_vary = |(name, _): &&(&[u8], &[u8])| name.eq_ignore_ascii_case(b"vary");
    let vary = stored.iter().filter(is_vary).map(|(_, value)| *value);
    if fields
        .standard_values(StandardHeader::ContentEncoding)
        .next()
        .is_some()
        && includes_accept_encoding(vary)
    {
        compression_handler::fields::vary(&mut fields);
    }
    // The age of the freshened response counts from the Date of the 304 (RFC 9111 §4.2.3).
    if let Some(date) = new_fields.date().or(representation.head.date(bytes)) {
        fields.set_date(*date);
    }
    fields
}
