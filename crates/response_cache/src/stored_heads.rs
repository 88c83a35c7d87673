//! Builds the head of a response when it is stored, so that a hit only copies it and sets the date. The fields have the
//! same order as in the head of a file: first those of every response, then those about the content, which a 304 omits.

use lowroad_handler::ResponseFields;
use lowroad_handler::fields::TAG_FIELD;
use lowroad_http::fields::FieldNames;
use lowroad_http::status::StatusCode;
use lowroad_http::stored_head::{EncodedHead, HeadEncoder};
use lowroad_site_rules::SiteFields;

/// Builds the head of a handler's response, without Content-Length and with a Date that is overwritten at each use. The
/// `excluded_fields` are not stored.
pub fn write_head(
    status: StatusCode,
    fields: &ResponseFields,
    excluded_fields: &FieldNames,
    rules: &SiteFields<'_>,
) -> EncodedHead {
    let mut head = HeadEncoder::start(status);
    if let Some(date) = fields.date() {
        head.set_date(date);
    }
    // Age is recomputed from the stored value at each use. Trailers are not stored, so Trailer is dropped.
    // Fields for one client, and those that the cache adds itself, are not stored.
    let is_retained = |name: &str| {
        let is_dropped = [TAG_FIELD, "Age", "Trailer"]
            .iter()
            .any(|it| name_is(name, it));
        !is_dropped && !excluded_fields.contains(name.as_bytes())
    };
    let has_field = |name: &str| fields.values(name).next().is_some();
    let fields = || {
        let retained = fields.iter().filter(|(name, _)| is_retained(name));
        retained.filter(|(name, value)| rules.keeps(name, value))
    };
    for (name, value) in fields().filter(|(name, _)| !is_content_field(name)) {
        head.field(name, value);
    }
    for (name, value) in rules.added(has_field) {
        head.field(name, value.as_bytes());
    }
    head.begin_content();
    for (name, value) in fields().filter(|(name, _)| is_content_field(name)) {
        head.field(name, value);
    }
    head.finish_open()
}

/// Whether a field describes the content; a 304 omits these (RFC 9110 §15.4.5).
fn is_content_field(name: &str) -> bool {
    const ABOUT: [&str; 4] = [
        "Content-Encoding",
        "Content-Language",
        "Content-Type",
        "Accept-Ranges",
    ];
    ABOUT
        .iter()
        .any(|content_field| name_is(name, content_field))
}

fn name_is(name: &str, expected: &str) -> bool {
    name.eq_ignore_ascii_case(expected)
}
