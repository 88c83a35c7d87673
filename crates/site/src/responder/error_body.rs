//! Error responses: pages of the site, or built-in ones.

use bytes::Bytes;
use lowroad_engine::ResponseWriter;
use lowroad_engine::service::ConnectionRefusal;
use lowroad_http::error_page;
use lowroad_http::h1::BodyLen;
use lowroad_http::status::StatusCode;
use lowroad_site_rules::SiteFields;

use super::RETRY_AFTER;
use crate::sites::SitePath;

/// The value of Allow for files.
pub(super) const ALLOW: &str = "GET, HEAD, OPTIONS";
/// The value of Retry-After, in seconds, if the server is overloaded.
const RETRY_AFTER_S: &[u8] = b"1";

/// Answers input that is not a complete request. Returns the status for the log.
pub fn write_refusal(
    cause: ConnectionRefusal,
    site_path: Option<SitePath<'_>>,
    response: &mut ResponseWriter<'_>,
) -> StatusCode {
    let (status, explanation) = match cause {
        ConnectionRefusal::Request(refusal) => (refusal.status(), Some(refusal.as_str())),
        ConnectionRefusal::Timeout => (StatusCode::REQUEST_TIMEOUT, None),
        ConnectionRefusal::Overload => (StatusCode::SERVICE_UNAVAILABLE, None),
        ConnectionRefusal::ClearText => (
            StatusCode::BAD_REQUEST,
            Some("This port uses TLS: use https instead of http."),
        ),
    };
    let page = ErrorBody {
        site_path,
        status,
        replaced: status,
        explanation,
        fields: &[],
    };
    write_page(&page, response);
    status
}

/// The contents of an error page.
pub(super) struct ErrorBody<'p> {
    pub site_path: Option<SitePath<'p>>,
    pub status: StatusCode,
    /// The status of the replaced error. Its page is sent if the site has none for `status`.
    pub replaced: StatusCode,
    pub explanation: Option<&'p str>,
    pub fields: &'p [(&'p str, &'p [u8])],
}

/// Writes the page of the site for the status, or the built-in one.
pub(super) fn write_page(page: &ErrorBody<'_>, response: &mut ResponseWriter<'_>) {
    let (status, replaced) = (page.status, page.replaced);
    // The error page that the site has for this status, if any.
    let site_page = page.site_path.and_then(|site_path| {
        let pages = &site_path.site.pages;
        let page = pages.find(status.code());
        page.or_else(|| pages.find(replaced.code()))
    });
    let (content_type, body) = match site_page {
        Some(site_page) => (site_page.content_type, site_page.body),
        None => {
            let explanation = page
                .explanation
                .unwrap_or_else(|| error_page::explanation(status));
            let bytes = error_page::built_in(status, explanation);
            ("text/html; charset=utf-8".into(), Bytes::from(bytes))
        }
    };
    let mut response_fields = page.fields.to_vec();
    // A 405 must contain Allow (RFC 9110 §15.5.6).
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response_fields.push(("Allow", ALLOW.as_bytes()));
    }
    let has = |fields: &[(&str, &[u8])], name: &str| {
        fields
            .iter()
            .any(|(field_name, _)| field_name.eq_ignore_ascii_case(name))
    };
    // Retry-After tells the client when to retry (RFC 9110 §15.6.4).
    if status == StatusCode::SERVICE_UNAVAILABLE && !has(&response_fields, RETRY_AFTER) {
        response_fields.push((RETRY_AFTER, RETRY_AFTER_S));
    }
    let rules = page
        .site_path
        .map(|site_path| SiteFields::new(&site_path.site.rules, site_path.path, status));
    // Without a site, there are no header rules.
    let rules = rules.unwrap_or_default();
    let mut head = response.head(status);
    head.field("Content-Type", content_type.as_bytes());
    for (name, value) in response_fields
        .iter()
        .filter(|(name, value)| rules.keeps(name, value))
    {
        head.field(name, value);
    }
    for (name, value) in rules.added(|name| has(&response_fields, name)) {
        head.field(name, value.as_bytes());
    }
    if head.end(BodyLen::Known(body.len() as u64)) {
        response.write_bytes(body);
    }
}
