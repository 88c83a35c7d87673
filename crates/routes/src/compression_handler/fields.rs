//! The header fields on which compression depends, and their values after it (RFC 9110 §8.4, §8.8.3, §12.5.5).

use lowroad_files::mime;
use lowroad_handler::{HandlerResponse, ResponseFields};
use lowroad_http::content_coding::ContentCoding;
use lowroad_http::fields::{FieldName, StandardHeader};
use lowroad_http::preconditions;
use lowroad_http::status::StatusCode;

/// Fields that exclude compression: of partial content, of an encoded body, or of a body with a digest.
const UNCOMPRESSIBLE_FIELDS: [&str; 6] = [
    "Content-Encoding",
    "Content-Range",
    "Content-Digest",
    "Content-MD5",
    "Digest",
    "Repr-Digest",
];
const VARY: &[u8] = b"Accept-Encoding";

/// Whether a response may be compressed, and is worth it.
pub fn may_compress(response: &HandlerResponse) -> bool {
    let HandlerResponse { status, fields, .. } = response;
    // Ranges refer to the uncompressed representation.
    if status.is_bodiless() || *status == StatusCode::PARTIAL_CONTENT {
        return false;
    }
    let is_text = fields
        .standard_values(StandardHeader::ContentType)
        .next()
        .is_some_and(is_compressible);
    let is_fixed = |name: &str| {
        let is = |listed: &&str| name.eq_ignore_ascii_case(listed);
        UNCOMPRESSIBLE_FIELDS.iter().any(is)
    };
    let no_transform = || {
        let values = fields.standard_values(StandardHeader::CacheControl);
        let mut directives = values.flat_map(|value| value.split(|byte| *byte == b','));
        // Such content must not be transformed (RFC 9110 §7.7).
        directives.any(|directive| directive.trim_ascii().eq_ignore_ascii_case(b"no-transform"))
    };
    is_text && !fields.iter().any(|(name, _)| is_fixed(name)) && !no_transform()
}

/// Whether a media type is worth compressing. Event streams are not: short events gain little.
fn is_compressible(content_type: &[u8]) -> bool {
    let content_type = String::from_utf8_lossy(content_type).to_ascii_lowercase();
    // Events must reach the client immediately; a compressor would hold them back.
    mime::is_compressible(&content_type) && !content_type.starts_with("text/event-stream")
}

/// Adds Vary: Accept-Encoding.
pub fn vary(fields: &mut ResponseFields) {
    if !includes_accept_encoding(fields.standard_values(StandardHeader::Vary)) {
        fields.push("Vary", VARY);
    }
}

/// Whether Vary values include Accept-Encoding.
pub fn includes_accept_encoding<'v>(vary: impl Iterator<Item = &'v [u8]>) -> bool {
    let mut names = vary.flat_map(|value| value.split(|byte| *byte == b','));
    names.any(|name| {
        let name = name.trim_ascii();
        name == b"*" || name.eq_ignore_ascii_case(VARY)
    })
}

/// Sets the content coding, if known. The bytes differ from those of the handler, so the entity tag becomes weak and
/// Accept-Ranges is removed.
pub fn mark(fields: &mut ResponseFields, coding: Option<ContentCoding>) {
    let mut marked = ResponseFields::new();
    if let Some(date) = fields.date() {
        marked.set_date(*date);
    }
    for (name, value) in fields.entries() {
        match name {
            // The ranges that the handler offers are those of the uncompressed representation.
            FieldName::Known(StandardHeader::AcceptRanges) => {}
            // The encoded bytes may differ each time, so a strong entity tag would be wrong (RFC 9110 §8.8.1).
            FieldName::Known(StandardHeader::Etag) => marked.push(name.as_str(), &weak(value)),
            _ => marked.push(name.as_str(), value),
        }
    }
    if let Some(coding) = coding {
        marked.push("Content-Encoding", coding.as_str().as_bytes());
    }
    *fields = marked;
}

/// Makes the entity tag of a 304 weak, if the client sent the weak tag: that is the tag of a compressed response.
pub fn mark_unchanged(fields: &mut ResponseFields, weak_tags: &[u8]) {
    let is_listed = |tag: &[u8]| {
        let weak = weak(tag);
        preconditions::list_matches(weak_tags, |listed| listed == weak)
    };
    if fields.standard_values(StandardHeader::Etag).any(is_listed) {
        vary(fields);
        fields.replace(StandardHeader::Etag, |tag| Some(weak(tag)));
    }
}

fn weak(tag: &[u8]) -> Vec<u8> {
    match tag.starts_with(b"\"") {
        true => [b"W/", tag].concat(),
        false => tag.to_vec(),
    }
}
