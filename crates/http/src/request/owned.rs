//! A request that outlives its receive buffer. Borrowing a [`Request`] from it costs no parsing: the offsets of all
//! parts are stored.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::index::{FieldIndex, offset, saturated};
use super::{Request, RequestTarget};
use crate::method::Method;

/// A copy of a request in one allocation.
#[derive(Debug)]
pub struct OwnedRequest {
    method: Method,
    form: TargetForm,
    /// The raw target, the authority and the field lines, concatenated.
    text: Box<[u8]>,
    target_end: u32,
    /// `None` if there is no authority.
    authority_end: Option<u32>,
    index: FieldIndex,
}

/// The form of the target.
#[derive(Clone, Copy, Debug)]
enum TargetForm {
    Origin {
        /// The offset of the path in the raw target; `None` if the raw target has no path, which means `/`.
        path: Option<u32>,
        path_len: u32,
        has_query: bool,
        plain: bool,
    },
    Asterisk,
    Authority,
}

impl OwnedRequest {
    /// Copies a request.
    #[must_use]
    pub fn from_request(request: &Request<'_>) -> OwnedRequest {
        let authority = request.authority.unwrap_or_default();
        let len = request.raw_target.len() + authority.len() + request.lines.len();
        let mut text = Vec::with_capacity(len);
        text.extend_from_slice(request.raw_target);
        let target_end = saturated(text.len());
        text.extend_from_slice(authority);
        let authority_end = request.authority.map(|_| saturated(text.len()));
        text.extend_from_slice(request.lines);
        OwnedRequest {
            method: request.method,
            form: TargetForm::from_request(request),
            text: text.into(),
            target_end,
            authority_end,
            index: request.index,
        }
    }

    /// The request that was copied.
    #[must_use]
    pub fn get(&self) -> Request<'_> {
        let (raw_target, rest) = split(&self.text, self.target_end);
        let authority_len = self.authority_end.map(|end| end - self.target_end);
        let (authority, lines) = split(rest, authority_len.unwrap_or(0));
        Request {
            method: self.method,
            target: self.form.target(raw_target),
            authority: authority_len.map(|_| authority),
            raw_target,
            lines,
            index: self.index,
        }
    }
}

impl TargetForm {
    fn from_request(request: &Request<'_>) -> TargetForm {
        match request.target {
            RequestTarget::Origin { path, query, plain } => {
                let at = offset(request.raw_target, path);
                // An absolute-form target without a path has the static path "/", which is not a slice of the raw
                // target, so its offset is meaningless.
                let is_within =
                    u64::from(at) + path.len() as u64 <= request.raw_target.len() as u64;
                TargetForm::Origin {
                    path: is_within.then_some(at),
                    path_len: saturated(path.len()),
                    has_query: query.is_some(),
                    plain,
                }
            }
            RequestTarget::Asterisk => TargetForm::Asterisk,
            RequestTarget::Authority(_) => TargetForm::Authority,
        }
    }

    fn target(self, raw: &[u8]) -> RequestTarget<'_> {
        match self {
            TargetForm::Asterisk => RequestTarget::Asterisk,
            TargetForm::Authority => RequestTarget::Authority(raw),
            TargetForm::Origin {
                path,
                path_len,
                has_query,
                plain,
            } => {
                let (path, rest): (&[u8], _) = match path {
                    Some(at) => split(split(raw, at).1, path_len),
                    None => (b"/", after_path(raw)),
                };
                RequestTarget::Origin {
                    path,
                    // The first byte is the `?`.
                    query: has_query.then(|| rest.get(1..).unwrap_or_default()),
                    plain,
                }
            }
        }
    }
}

/// The query, with its `?`, of a raw target without a path; empty if there is none.
fn after_path(raw: &[u8]) -> &[u8] {
    let at = raw.iter().position(|byte| *byte == b'?');
    raw.get(at.unwrap_or(raw.len())..).unwrap_or_default()
}

fn split(bytes: &[u8], at: u32) -> (&[u8], &[u8]) {
    bytes.split_at_checked(at as usize).unwrap_or((bytes, &[]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::h1::parse;
    use crate::limits::RequestLimits;

    #[test]
    fn owned_request_equals_its_original() {
        for line in [
            "GET / HTTP/1.1",
            "GET /a%20b/c?d=e HTTP/1.1",
            "GET /a? HTTP/1.1",
            "GET http://b HTTP/1.1",
            "GET http://b?q HTTP/1.1",
            "GET HTTP://b/a/c?q=1 HTTP/1.1",
            "OPTIONS * HTTP/1.1",
            "OPTIONS http://b HTTP/1.1",
            "CONNECT b:1 HTTP/1.1",
            "PROPFIND /a HTTP/1.1",
            "GET /a HTTP/1.0",
        ] {
            for fields in [
                "",
                "Host: h\r\n",
                "Host: b:1\r\nRange: bytes=0-\r\nIf-Match: \"a\"\r\nX: y\r\nIf-Match: \"b\"\r\n",
                "Accept-Encoding: gzip\r\nHost: \r\nReferer: r\r\nReferer: s\r\nUser-Agent: u\r\n",
            ] {
                let head = alloc::format!("{line}\r\n{fields}\r\n");
                let Ok(Some(head)) = parse(head.as_bytes(), &RequestLimits::default()) else {
                    continue;
                };
                let owned = OwnedRequest::from_request(&head.request);
                assert_eq!(
                    debug_text(&owned.get()),
                    debug_text(&head.request),
                    "{line} {fields}"
                );
            }
        }
    }

    fn debug_text(request: &Request<'_>) -> alloc::string::String {
        let lists = [
            request.accept_encoding(),
            request.if_match(),
            request.if_none_match(),
        ];
        let lists = lists.map(|values| values.iter().collect::<Vec<_>>());
        let single = [
            request.authority,
            request.if_modified_since(),
            request.if_unmodified_since(),
            request.if_range(),
            request.range(),
            request.referer(),
            request.user_agent(),
        ];
        let (method, target) = (request.method, request.target);
        let text = (request.raw_target(), request.lines());
        alloc::format!("{method:?} {target:?} {text:?} {lists:?} {single:?}")
    }
}
