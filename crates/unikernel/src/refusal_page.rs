//! Responses that are not from a resource: errors, redirects, and responses to OPTIONS.

use alloc::vec::Vec;

use lowroad_http::error_page;
use lowroad_http::head_writer::HeadWriter;
use lowroad_http::status::StatusCode;

use crate::archive::SiteArchive;
use crate::response::{ResponseContext, UnikernelResponse};

/// The value of Allow.
const ALLOW: &str = "GET, HEAD, OPTIONS";
/// The value of Retry-After in a response with 503.
const RETRY_AFTER_S: u64 = 1;

/// A page that explains a status code.
#[derive(Clone, Copy)]
pub struct RefusalPage<'p> {
    /// The status.
    pub status: StatusCode,
    /// The explanation; `None` for the default one of the status.
    pub explanation: Option<&'p str>,
    /// An additional field.
    pub field: Option<(&'p str, &'p [u8])>,
    /// Whether the body is sent; false for HEAD.
    pub has_body: bool,
}

/// Writes the page: the site's error page for the status, or the built-in one.
pub fn page(
    site: &SiteArchive,
    page: RefusalPage<'_>,
    context: &ResponseContext,
    out: &mut UnikernelResponse,
) {
    let status = page.status;
    out.status(status);
    let custom = site.error_page(status.code());
    let built_in = match custom {
        Some(_) => Vec::new(),
        None => {
            let explanation = page.explanation;
            error_page::built_in(
                status,
                explanation.unwrap_or_else(|| error_page::explanation(status)),
            )
        }
    };
    let (content_type, body) = match custom {
        Some(custom) => (custom.content_type.as_bytes(), custom.body),
        None => (&b"text/html; charset=utf-8"[..], built_in.as_slice()),
    };
    let mut head = HeadWriter::start(&mut out.copied, status, &context.date);
    head.field("Content-Type", content_type);
    if let Some((name, value)) = page.field {
        head.field(name, value);
    }
    // RFC 9110 §15.5.6: 405 requires Allow.
    if status == StatusCode::METHOD_NOT_ALLOWED {
        head.field("Allow", ALLOW.as_bytes());
    }
    if status == StatusCode::SERVICE_UNAVAILABLE {
        head.field_u64("Retry-After", RETRY_AFTER_S);
    }
    head.field_u64("Content-Length", body.len() as u64);
    head.finish_open();
    out.copied.extend_from_slice(context.head_end());
    if !page.has_body {
        return;
    }
    out.body_len = body.len();
    match custom {
        // The site's page is in static memory, so it is not copied.
        Some(custom) => out.static_bytes = custom.body,
        None => out.copied.extend_from_slice(body),
    }
}

/// Writes the response to OPTIONS.
pub fn options(context: &ResponseContext, out: &mut UnikernelResponse) {
    out.status(StatusCode::NO_CONTENT);
    let mut head = HeadWriter::start(&mut out.copied, StatusCode::NO_CONTENT, &context.date);
    head.field("Allow", ALLOW.as_bytes());
    head.finish_open();
    out.copied.extend_from_slice(context.head_end());
}
