//! The decision about a request: resource, method, and response, from top to bottom.

use lowroad_http::encoding;
use lowroad_http::error_page;
use lowroad_http::method::Method;
use lowroad_http::request::{Request, Target};
use lowroad_http::status::Status;
use lowroad_http::target;

use crate::archive::{self, Archive, Entry};
use crate::out::{About, Out};
use crate::refuse::{self, Page};
use crate::respond;

/// The longest path that is decoded: that of the longest target.
pub const PATH_LEN_MAX: usize = 8 << 10;

/// The path prefix of counters and log.
const OWN: &[u8] = b"/.lowroad/";

/// The result of a decision.
pub enum Decision {
    /// The response was written.
    Answered,
    /// The page must be generated.
    Page(&'static archive::Page),
    /// A trusted client requests the counters or the log.
    Own(Own),
}

/// A built-in resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// Counters as text.
    Status,
    /// Counters as JSON.
    StatusJson,
    /// The newest lines of the log.
    Log,
}

/// Decides about a request, and writes the response if it needs no page. `is_trusted`: the client may read counters
/// and log.
#[inline]
pub fn decide(
    site: &Archive,
    request: &Request<'_>,
    is_trusted: bool,
    about: &About,
    out: &mut Out,
) -> Decision {
    let Target::Origin { path, query, plain } = request.target else {
        match request.method {
            Method::Options => refuse::options(about, out),
            Method::Connect => {
                refused(site, Status::METHOD_NOT_ALLOWED, None, request, about, out);
            }
            _ => refused(site, Status::BAD_REQUEST, None, request, about, out),
        }
        return Decision::Answered;
    };
    if plain {
        return of_path(site, request, path, query, is_trusted, about, out);
    }
    let mut scratch = [0; PATH_LEN_MAX];
    match target::decode(path, &mut scratch) {
        Ok(path) => of_path(site, request, path, query, is_trusted, about, out),
        Err(refusal) => {
            // As after any refusal: an intermediary and an operator's log may see another request than this server.
            out.closes = true;
            let about = About {
                keep_alive: false,
                ..*about
            };
            let text = Some(refusal.as_str());
            refused(site, refusal.status(), text, request, &about, out);
            Decision::Answered
        }
    }
}

#[inline]
fn of_path(
    site: &Archive,
    request: &Request<'_>,
    path: &[u8],
    query: Option<&[u8]>,
    is_trusted: bool,
    about: &About,
    out: &mut Out,
) -> Decision {
    let mut refuse = |status| refused(site, status, None, request, about, out);
    match request.method {
        Method::Get | Method::Head => {}
        Method::Options => {
            // A page handles OPTIONS itself.
            if let Some(Entry::Page(page)) = site.find(path) {
                return Decision::Page(page);
            }
            refuse::options(about, out);
            return Decision::Answered;
        }
        _ => {
            refuse(Status::METHOD_NOT_ALLOWED);
            return Decision::Answered;
        }
    }
    match site.find(path) {
        Some(Entry::File(file)) => {
            let wanted = encoding::choose(&request.accept_encoding(), file.encodings);
            match file.variant(wanted) {
                Some(variant) => respond::send(site, variant, request, about, out),
                None => refuse(Status::NOT_FOUND),
            }
        }
        Some(Entry::Page(page)) => return Decision::Page(page),
        Some(Entry::Redirect { location }) => redirect(site, location, query, request, about, out),
        Some(Entry::Forbidden) => {
            let text = Some(error_page::NO_INDEX);
            refused(site, Status::FORBIDDEN, text, request, about, out);
        }
        // Untrusted clients get 404, as for any missing path.
        None => match own(path).filter(|_| is_trusted) {
            Some(own) => return Decision::Own(own),
            None => refuse(Status::NOT_FOUND),
        },
    }
    Decision::Answered
}

fn own(path: &[u8]) -> Option<Own> {
    match path.strip_prefix(OWN)? {
        b"status" => Some(Own::Status),
        b"status.json" => Some(Own::StatusJson),
        b"log" => Some(Own::Log),
        _ => None,
    }
}

fn refused(
    site: &Archive,
    status: Status,
    explanation: Option<&str>,
    request: &Request<'_>,
    about: &About,
    out: &mut Out,
) {
    let page = Page {
        status,
        explanation,
        field: None,
        has_body: request.method != Method::Head,
    };
    refuse::page(site, page, about, out);
}

/// Redirects to a folder's path with its slash.
fn redirect(
    site: &Archive,
    location: &str,
    query: Option<&[u8]>,
    request: &Request<'_>,
    about: &About,
    out: &mut Out,
) {
    let mut value = alloc::vec::Vec::with_capacity(location.len() + 64);
    value.extend_from_slice(location.as_bytes());
    if let Some(query) = query {
        value.push(b'?');
        value.extend_from_slice(query);
    }
    let page = Page {
        status: Status::MOVED_PERMANENTLY,
        explanation: Some("It is to be found elsewhere."),
        field: Some(("Location", &value)),
        has_body: request.method != Method::Head,
    };
    refuse::page(site, page, about, out);
}
