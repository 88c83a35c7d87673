//! Selects the response to a request by its target, method and resource.

use lowroad_http::content_coding;
use lowroad_http::error_page;
use lowroad_http::method::Method;
use lowroad_http::request::{Request, RequestTarget};
use lowroad_http::status::StatusCode;
use lowroad_http::target;

use crate::archive::{self, ArchiveEntry, SiteArchive};
use crate::refusal_page::{self, RefusalPage};
use crate::response::{ResponseContext, UnikernelResponse};
use crate::response_fields;

/// Maximum length of a path that is decoded; no request target is longer.
pub const PATH_LEN_MAX: usize = 8 << 10;

/// Prefix of the paths of counters and log.
const BUILTIN_PREFIX: &[u8] = b"/.lowroad/";

/// The result of a decision.
pub enum SiteDecision {
    /// The response has been written.
    Answered,
    /// A page must be generated.
    Page(&'static archive::PageSource),
    /// A trusted client requests the counters or the log.
    Builtin(BuiltinResource),
}

/// A built-in resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuiltinResource {
    /// Counters as text.
    Status,
    /// Counters as JSON.
    StatusJson,
    /// The newest lines of the log.
    Log,
}

/// Selects the response to a request, and writes it unless a page must be generated. `is_trusted`: the client may read
/// counters and log.
#[inline]
pub fn decide(
    site: &SiteArchive,
    request: &Request<'_>,
    is_trusted: bool,
    context: &ResponseContext,
    out: &mut UnikernelResponse,
) -> SiteDecision {
    let RequestTarget::Origin { path, query, plain } = request.target else {
        match request.method {
            Method::Options => refusal_page::options(context, out),
            Method::Connect => {
                write_error(
                    site,
                    StatusCode::METHOD_NOT_ALLOWED,
                    None,
                    request,
                    context,
                    out,
                );
            }
            _ => write_error(site, StatusCode::BAD_REQUEST, None, request, context, out),
        }
        return SiteDecision::Answered;
    };
    // A path without percent-encoding needs no decoding.
    if plain {
        return decide_path(site, request, path, query, is_trusted, context, out);
    }
    let mut scratch = [0; PATH_LEN_MAX];
    match target::decode(path, &mut scratch) {
        Ok(path) => decide_path(site, request, path, query, is_trusted, context, out),
        Err(refusal) => {
            // The connection is closed, as after other invalid requests: a proxy in between may understand the target
            // differently.
            out.closes = true;
            let context = ResponseContext {
                keep_alive: false,
                ..*context
            };
            let text = Some(refusal.as_str());
            write_error(site, refusal.status(), text, request, &context, out);
            SiteDecision::Answered
        }
    }
}

#[inline]
fn decide_path(
    site: &SiteArchive,
    request: &Request<'_>,
    path: &[u8],
    query: Option<&[u8]>,
    is_trusted: bool,
    context: &ResponseContext,
    out: &mut UnikernelResponse,
) -> SiteDecision {
    let mut refuse = |status| write_error(site, status, None, request, context, out);
    match request.method {
        Method::Get | Method::Head => {}
        Method::Options => {
            // A page handles OPTIONS itself.
            if let Some(ArchiveEntry::Page(page)) = site.find(path) {
                return SiteDecision::Page(page);
            }
            refusal_page::options(context, out);
            return SiteDecision::Answered;
        }
        _ => {
            refuse(StatusCode::METHOD_NOT_ALLOWED);
            return SiteDecision::Answered;
        }
    }
    match site.find(path) {
        Some(ArchiveEntry::File(file)) => {
            let coding = content_coding::choose(&request.accept_encoding(), file.encodings);
            match file.variant(coding) {
                Some(variant) => response_fields::send(site, variant, request, context, out),
                None => refuse(StatusCode::NOT_FOUND),
            }
        }
        Some(ArchiveEntry::Page(page)) => return SiteDecision::Page(page),
        Some(ArchiveEntry::Redirect { location }) => {
            redirect(site, location, query, request, context, out)
        }
        Some(ArchiveEntry::Forbidden) => {
            let text = Some(error_page::NO_INDEX);
            write_error(site, StatusCode::FORBIDDEN, text, request, context, out);
        }
        // Other clients get 404, as for any missing path.
        None => match builtin_resource(path).filter(|_| is_trusted) {
            Some(resource) => return SiteDecision::Builtin(resource),
            None => refuse(StatusCode::NOT_FOUND),
        },
    }
    SiteDecision::Answered
}

fn builtin_resource(path: &[u8]) -> Option<BuiltinResource> {
    match path.strip_prefix(BUILTIN_PREFIX)? {
        b"status" => Some(BuiltinResource::Status),
        b"status.json" => Some(BuiltinResource::StatusJson),
        b"log" => Some(BuiltinResource::Log),
        _ => None,
    }
}

fn write_error(
    site: &SiteArchive,
    status: StatusCode,
    explanation: Option<&str>,
    request: &Request<'_>,
    context: &ResponseContext,
    out: &mut UnikernelResponse,
) {
    let page = RefusalPage {
        status,
        explanation,
        field: None,
        has_body: request.method != Method::Head,
    };
    refusal_page::page(site, page, context, out);
}

/// Redirects a path of a folder to the same path with a trailing slash.
fn redirect(
    site: &SiteArchive,
    location: &str,
    query: Option<&[u8]>,
    request: &Request<'_>,
    context: &ResponseContext,
    out: &mut UnikernelResponse,
) {
    let mut value = alloc::vec::Vec::with_capacity(location.len() + 64);
    value.extend_from_slice(location.as_bytes());
    // The query is kept.
    if let Some(query) = query {
        value.push(b'?');
        value.extend_from_slice(query);
    }
    let page = RefusalPage {
        status: StatusCode::MOVED_PERMANENTLY,
        explanation: Some("The page has moved."),
        field: Some(("Location", &value)),
        has_body: request.method != Method::Head,
    };
    refusal_page::page(site, page, context, out);
}
